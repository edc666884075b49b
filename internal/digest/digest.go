// Package digest computes SHA-256 digests, written in hexadecimal.
//
//	sum := digest.Of(data)
//	sum, size, err := digest.File("model.safetensors")     // streamed: a file may be larger than the memory
//	h := digest.New(); fmt.Fprintln(h, "train", 7); sum := h.Hex()
package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/regular"
)

// Hash collects what is written to it.
type Hash struct{ hash.Hash }

func New() Hash { return Hash{sha256.New()} }

func (h Hash) Hex() string { return hex.EncodeToString(h.Sum(nil)) }

// Of returns the digest of the parts, one after the other.
func Of(parts ...[]byte) string {
	h := New()
	for _, p := range parts {
		h.Write(p)
	}
	return h.Hex()
}

// File reads a regular file from end to end and returns its digest and its size in bytes.
func File(path string) (sum string, size int64, err error) {
	f, err := regular.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := New()
	if size, err = io.Copy(h, f); err != nil {
		return "", 0, fmt.Errorf("%s: %w", path, err)
	}
	return h.Hex(), size, nil
}

// Sketch returns the 64 smallest hashes of a set's members. Of two sets together it tells the 64 smallest that either has, a random sample,
// so that sets which share one member in twenty of both share a hash 24 times in 25, and sets that share none never do (bottom-k sketches:
// Broder 1997).
func Sketch(members []string) []string {
	all := list.Map(members, func(m string) string { return Of([]byte(m))[:12] })
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(64, len(all))]
}
