package parquet

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"

	"github.com/klauspost/compress/snappy"
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

func checkCodec(codec int32) error {
	switch codec {
	case codecNone, codecSnappy, codecGzip, codecZstd:
		return nil
	}
	name := fmt.Sprint("number ", codec)
	if names := codecNames(); codec >= 0 && int(codec) < len(names) {
		name = names[codec]
	}
	return fmt.Errorf("compression %s is not supported (supported: uncompressed, snappy, gzip, zstd)", name)
}

// decompress returns exactly size bytes.
func decompress(codec int32, data []byte, size int) ([]byte, error) {
	var out []byte
	var err error
	switch codec {
	case codecNone:
		out = data
	case codecSnappy:
		var n int
		if n, err = snappy.DecodedLen(data); err == nil && (n != size || size > 32*len(data)) { // three bytes copy 64 at most
			err = snappy.ErrCorrupt
		}
		if err == nil {
			out, err = snappy.Decode(nil, data)
		}
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

// little reads up to eight bytes, the lowest first.
func little(b []byte) uint64 {
	v := uint64(0)
	for i, c := range b {
		v |= uint64(c) << (8 * i)
	}
	return v
}
