package regular

import (
	"io/fs"
	"os"
	"syscall"
)

// Identity tells a file and its content from others: whatever writes to it, replaces it or sets its times changes one of these. The zero
// Identity is that of no regular file.
type Identity struct {
	Device, Inode    uint64
	Size             int64
	Written, Changed int64 // content and all else, nanoseconds since 1970
}

// IdentityOf returns the identity of the regular file that info describes.
func IdentityOf(info fs.FileInfo) Identity {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return Identity{}
	}
	return Identity{uint64(s.Dev), s.Ino, s.Size, s.Mtim.Nano(), s.Ctim.Nano()}
}

// Identify returns the identity of the regular file at path, none where there is none.
func Identify(path string) Identity {
	info, err := os.Stat(path)
	if err != nil {
		return Identity{}
	}
	return IdentityOf(info)
}
