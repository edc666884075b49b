package tensorfile

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
)

// unpacker takes entries out of one zip archive. Together they may not grow to more than 64 times the
// archive or a gigabyte: a compressed archive of a few megabytes can claim to hold many.
type unpacker struct {
	data []byte // of the archive
	left uint64 // bytes that may still come out
}

func newUnpacker(data []byte) *unpacker {
	return &unpacker{data, max(64*uint64(len(data)), 1<<30)}
}

// unzip returns an entry's content, checked against its CRC. Memory grows with what really comes
// out, never with what the directory claims.
func (u *unpacker) unzip(entry *zip.File) ([]byte, error) {
	bomb := fmt.Errorf("refused: it unpacks to many times the archive's %d bytes", len(u.data))
	if entry.UncompressedSize64 > u.left {
		return nil, bomb
	}
	r, err := entry.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var b bytes.Buffer
	if entry.UncompressedSize64/2048 <= entry.CompressedSize64 { // deflate reaches at most 1032:1
		b.Grow(int(entry.UncompressedSize64) + bytes.MinRead)
	}
	n, err := io.Copy(&b, io.LimitReader(r, int64(u.left)+1))
	if uint64(n) > u.left {
		return nil, bomb
	}
	u.left -= uint64(n)
	return b.Bytes(), err
}
