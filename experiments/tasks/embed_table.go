//go:build !core

package tasks

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"time"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/filelock"
	"fulcrum/internal/regular"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/usage"
)

// part is the file that a table grows in, one frame a batch: what a kill or a power cut leaves of it is whole frames, and perhaps
// a torn one, which is dropped.
//
//	fulcrum embeddings KEY DIM\n
//	bytes and CRC-32C of the rows (uint32 each), rows (float32) …
type part struct {
	file   *os.File
	rows   []float32
	synced time.Time
}

// openPart opens a part for appending. One of another key is started anew.
func openPart(path, key string, dim int) (*part, error) {
	f, err := regular.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	p := &part{file: f, synced: time.Now()}
	if err := filelock.Take(f); err != nil {
		f.Close()
		return nil, usage.Errorf("embed.out: another process is writing %s: give another embed.out, or wait", path)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	head := fmt.Appendf(nil, "fulcrum embeddings %s %d\n", key, dim)
	at := len(head)
	if len(data) < at || string(data[:at]) != string(head) {
		data = head
		_, err = f.WriteAt(head, 0)
		err = errors.Join(err, f.Truncate(int64(at)))
	}
	for len(data)-at >= 8 {
		n, sum := int(binary.LittleEndian.Uint32(data[at:])), binary.LittleEndian.Uint32(data[at+4:])
		if n > len(data)-at-8 || n%(4*dim) != 0 || checksum(data[at+8:at+8+n]) != sum {
			break
		}
		for b := data[at+8 : at+8+n]; len(b) > 0; b = b[4:] {
			p.rows = append(p.rows, math.Float32frombits(binary.LittleEndian.Uint32(b)))
		}
		at += 8 + n
	}
	if err == nil {
		err = f.Truncate(int64(at))
	}
	if err == nil {
		_, err = f.Seek(int64(at), io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot write %s: %w", path, err)
	}
	return p, nil
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// append adds a batch; it is on the disk after at most ten seconds.
func (p *part) append(rows []float32) error {
	p.rows = append(p.rows, rows...)
	body := tensorfile.FromFloat32s("", []int{len(rows)}, rows).Data
	frame := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
	frame = binary.LittleEndian.AppendUint32(frame, checksum(body))
	if _, err := p.file.Write(append(frame, body...)); err != nil {
		return fmt.Errorf("cannot write %s: %w", p.file.Name(), err)
	}
	if time.Since(p.synced) < 10*time.Second {
		return nil
	}
	p.synced = time.Now()
	return p.file.Sync()
}

// Close ends the lock.
func (p *part) Close() error { return p.file.Close() }

// table puts the rows of the records together, [records, Dim] or, for both, [records, 2·Dim]: picture then question, divided by
// √2, so that a product is the mean of both cosines.
func (e *embedding) table(items []float32) tensorfile.Tensor {
	dim, records := e.encoder.Dim, e.set.Records
	both := embedOf(e.job.Config).Modality == "both"
	width := dim
	if both {
		width = 2 * dim
	}
	values := make([]float32, 0, len(records)*width)
	for _, r := range records {
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
	return tensorfile.FromFloat32s("embeddings", []int{len(records), width}, values)
}

// writeTable writes a table by the ending of its name. What is known of it stands in a safetensors file's metadata, and beside
// the other kinds, in FILE.json.
func writeTable(path string, t tensorfile.Tensor, about map[string]string) error {
	about = maps.Clone(about)
	switch filepath.Ext(path) {
	case ".safetensors":
		return tensorfile.WriteSafetensors(path, []tensorfile.Tensor{t}, about)
	case ".npy":
		if err := tensorfile.WriteNPY(path, t); err != nil {
			return err
		}
	default:
		if err := tensorfile.WritePT(path, t); err != nil {
			return err
		}
	}
	return atomicfile.WriteJSON(path+".json", about)
}

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
	}
	_, err := os.Stat(e.out)
	return err == nil && about["key"] == e.about["key"]
}
