package parquet

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
)

func checkCodec(codec format.CompressionCodec) error {
	switch codec {
	case format.Uncompressed, format.Snappy, format.Gzip, format.Zstd:
		return nil
	}
	name := strings.ToLower(codec.String())
	if strings.HasSuffix(name, "(?)") {
		name = fmt.Sprintf("number %d", codec)
	}
	return fmt.Errorf("compression %s is not supported (supported: uncompressed, snappy, gzip, zstd)", name)
}

// decompress returns exactly size bytes.
func decompress(codec format.CompressionCodec, data []byte, size int) ([]byte, error) {
	var out []byte
	var err error
	switch codec {
	case format.Uncompressed:
		out = data
	case format.Snappy:
		var n int
		if n, err = snappy.DecodedLen(data); err == nil && (n != size || size > 32*len(data)) { // three bytes copy 64 at most
			err = snappy.ErrCorrupt
		}
		if err == nil {
			out, err = snappy.Decode(nil, data)
		}
	case format.Gzip:
		var r *gzip.Reader
		if r, err = gzip.NewReader(bytes.NewReader(data)); err == nil {
			out, err = io.ReadAll(io.LimitReader(r, int64(size)+1))
		}
	case format.Zstd:
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
