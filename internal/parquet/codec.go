package parquet

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// codecNames are the compressions of the format, by number.
func codecNames() []string {
	return []string{"uncompressed", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw"}
}

const (
	codecNone   = 0
	codecSnappy = 1
	codecGzip   = 2
	codecZstd   = 6
)

func checkCodec(codec int64) error {
	switch codec {
	case codecNone, codecSnappy, codecGzip, codecZstd:
		return nil
	}
	name := fmt.Sprint("number ", codec)
	if names := codecNames(); codec >= 0 && codec < int64(len(names)) {
		name = names[codec]
	}
	return fmt.Errorf("compression %s is not supported (supported: uncompressed, snappy, gzip, zstd)", name)
}

// decompress returns exactly size bytes.
func decompress(codec int64, data []byte, size int) ([]byte, error) {
	var out []byte
	var err error
	switch codec {
	case codecNone:
		out = data
	case codecSnappy:
		out, err = unsnappy(data, size)
	case codecGzip:
		var r *gzip.Reader
		if r, err = gzip.NewReader(bytes.NewReader(data)); err == nil {
			out, err = io.ReadAll(io.LimitReader(r, int64(size)+1))
		}
	case codecZstd:
		if size == 0 { // an empty page may be no frame at all
			return nil, nil
		}
		var d *zstd.Decoder
		if d, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxPage)); err == nil {
			out, err = d.DecodeAll(data, make([]byte, 0, min(size, 64*len(data))))
			d.Close()
		}
	}
	if err != nil {
		return nil, err
	}
	if len(out) != size {
		return nil, fmt.Errorf("%d bytes when decompressed, want %d", len(out), size)
	}
	return out, nil
}

// unsnappy decodes Snappy's block format: the length, then literals and copies of what was written before.
func unsnappy(data []byte, size int) ([]byte, error) {
	bad := errors.New("damaged Snappy data")
	n, k := binary.Uvarint(data)
	if k <= 0 || n != uint64(size) || size > 32*len(data) { // three bytes copy 64 at most
		return nil, bad
	}
	data = data[k:]
	out := make([]byte, 0, size)
	for len(data) > 0 {
		tag := data[0]
		data = data[1:]
		length, back, extra := int(tag>>2)+1, 0, 0
		switch tag & 3 {
		case 0: // literal; its length may follow
			if length > 60 {
				extra = length - 60
				if len(data) < extra {
					return nil, bad
				}
				length = int(little(data[:extra])) + 1
				data = data[extra:]
			}
			if length > len(data) || length > size-len(out) {
				return nil, bad
			}
			out = append(out, data[:length]...)
			data = data[length:]
			continue
		case 1:
			length, extra, back = int(tag>>2&7)+4, 1, int(tag>>5)<<8
		case 2:
			extra = 2
		case 3:
			extra = 4
		}
		if len(data) < extra {
			return nil, bad
		}
		back += int(little(data[:extra]))
		data = data[extra:]
		if back <= 0 || back > len(out) || length > size-len(out) {
			return nil, bad
		}
		for range length { // byte by byte: a copy may overlap what it writes
			out = append(out, out[len(out)-back])
		}
	}
	return out, nil
}

// little reads up to eight bytes, the lowest first.
func little(b []byte) uint64 {
	v := uint64(0)
	for i, c := range b {
		v |= uint64(c) << (8 * i)
	}
	return v
}
