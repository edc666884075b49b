//go:build !core

package tasks

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"

	"fulcrum/experiments/lvlm/store"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/digest"
	"fulcrum/internal/regular"
	"fulcrum/internal/tensorfile"
)

// part is the folder that a table grows in, a vector an item: what a kill or a power cut leaves of it is whole vectors.
type part struct {
	*store.Store
	about string // all that a vector depends on beside its item
	dim   int
}

func (p part) key(item int) store.Key {
	return sha256.Sum256(fmt.Appendf(nil, "%s %d %d", p.about, p.dim, item))
}

// rows returns the vectors of a batch; false where one is missing.
func (p part) rows(b embedBatch) (rows []float32, ok bool, err error) {
	for i := b.from; i < b.to; i++ {
		value, ok, err := p.Get(p.key(i))
		if !ok || err != nil {
			return nil, false, err
		}
		for ; len(value) > 0; value = value[4:] {
			rows = append(rows, math.Float32frombits(binary.LittleEndian.Uint32(value)))
		}
	}
	return rows, true, nil
}

// keep adds the vectors of a batch.
func (p part) keep(b embedBatch, rows []float32) error {
	for i := b.from; i < b.to; i++ {
		value := tensorfile.FromFloat32s("", []int{p.dim}, rows[(i-b.from)*p.dim:(i-b.from+1)*p.dim]).Data
		if err := p.Put(p.key(i), value); err != nil {
			return err
		}
	}
	return nil
}

// table puts the rows of the records together, [records, Dim] or, for both, [records, 2·Dim]: picture then question, divided by
// √2, so that a product is the mean of both cosines.
func (e *embedding) table(items []float32) tensorfile.Tensor {
	dim, records := e.dim, e.set.Records
	both := embedOf(e.job.Config).Modality == "both"
	width := dim
	if both {
		width = 2 * dim
	}
	values := make([]float32, 0, records.Len()*width)
	for _, r := range records.All() {
		for _, item := range []embedItem{{picture: true, value: r.Image}, {value: r.Question}} {
			if at, ok := e.at[item.key()]; ok {
				values = append(values, items[at*dim:(at+1)*dim]...)
			}
		}
	}
	if both {
		for i := range values {
			values[i] *= math.Sqrt2 / 2
		}
	}
	return tensorfile.FromFloat32s("embeddings", []int{records.Len(), width}, values)
}

// writeTable writes a table by the ending of its name. What is known of it stands in a safetensors file's metadata, and beside
// the other kinds, in FILE.json.
func writeTable(path string, t tensorfile.Tensor, about map[string]string) error {
	var err error
	switch filepath.Ext(path) {
	case ".safetensors":
		return tensorfile.WriteSafetensors(path, []tensorfile.Tensor{t}, about)
	case ".npy":
		err = tensorfile.WriteNPY(path, t)
	default:
		err = tensorfile.WritePT(path, t)
	}
	about = maps.Clone(about)
	if err == nil {
		about[fileDigest], _, err = digest.File(path)
	}
	if err == nil {
		err = atomicfile.WriteJSON(path+".json", about)
	}
	return err
}

// fileDigest is the entry of FILE.json that says which file it is about: another program may have written over it.
const fileDigest = "file_sha256"

// upToDate says whether the output was made of the same by the same.
func (e *embedding) upToDate() bool {
	if _, err := os.Stat(e.partPath()); !errors.Is(err, os.ErrNotExist) {
		return false
	}
	about := map[string]string{}
	if filepath.Ext(e.out) == ".safetensors" {
		f, err := tensorfile.ReadSafetensors(e.out)
		if err != nil {
			return false
		}
		defer f.Close()
		about = f.Metadata
	} else if raw, err := regular.ReadFile(e.out + ".json"); err != nil || json.Unmarshal(raw, &about) != nil {
		return false
	} else if sum, _, err := digest.File(e.out); err != nil || sum != about[fileDigest] {
		return false
	}
	return about["key"] == e.about["key"]
}
