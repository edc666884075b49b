// Package account keeps account of the queries that optimizer steps see, so that another reader can count them again.
package account

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Of says which queries the optimizer steps of a phase were made of, through every stop, resume and change of processes.
type Of struct {
	Phase    string `json:"phase"`
	Queries  int    `json:"queries"`   // that the phase can draw
	PerEpoch int    `json:"per_epoch"` // of them, each once
	Seen     int    `json:"seen"`      // in all epochs
	// Digest is a chain: SHA-256 of the digest before and of the next query's number, from no digest on.
	Digest string `json:"digest"`
}

// Add enters queries by their numbers in the phase's data, in the order in which steps saw them.
func (a *Of) Add(queries ...int) {
	sum, _ := hex.DecodeString(a.Digest) // always our own: a state's digests are checked before it is read
	for _, q := range queries {
		next := sha256.Sum256(binary.LittleEndian.AppendUint64(sum, uint64(q)))
		sum = next[:]
	}
	a.Seen += len(queries)
	a.Digest = hex.EncodeToString(sum)
}
