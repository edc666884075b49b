package tensorfile

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"fulcrum/internal/regular"
)

// mapping is a file's content, mapped read-only. Everything of ours replaces files by rename, which leaves a mapping as it is; whoever
// writes into the file changes it. Look finds out.
type mapping struct {
	data []byte

	// Of a file that is mapped, not read:
	path   string
	file   *os.File         // the one that is mapped, whatever path names by now
	is     regular.Identity // when it was looked at last
	sum    string           // of data; "" until the first look
	record int              // its number in Records
	moved  bool             // it was said that path names another file
}

func mapFile(path string) (*mapping, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	m, err := mapOpen(f, path)
	if err != nil || m.file == nil {
		f.Close()
	}
	return m, err
}

func mapOpen(f *os.File, path string) (*mapping, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	is := regular.IdentityOf(info)
	if is.Size == 0 {
		return nil, fmt.Errorf("%s is empty", path)
	}
	data, err := syscall.Mmap(int(f.Fd()), 0, int(is.Size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil { // pipes and some network file systems
		data, err = regular.ReadFile(path)
		return &mapping{data: data}, err
	}
	at, _ := filepath.Abs(path) // the process may go to another folder
	m := &mapping{data: data, path: cmp.Or(at, path), file: f, is: is}
	open.add(m)
	return m, nil
}

// parseMapped maps a file and parses it; kind is what it should be, for errors.
func parseMapped[T any](path, kind string, parse func(data []byte) (T, error)) (v T, mem *mapping, err error) {
	if mem, err = mapFile(path); err != nil {
		return v, nil, err
	}
	if v, err = parse(mem.data); err != nil {
		mem.Close()
		return v, nil, fmt.Errorf("%s: not %s file: %w", path, kind, err)
	}
	return v, mem, nil
}

// Close unmaps; whatever shared the memory must not be used any more.
func (m *mapping) Close() error {
	if m == nil || m.file == nil {
		return nil
	}
	open.remove(m)
	data, file := m.data, m.file
	m.data, m.file = nil, nil
	file.Close()
	return syscall.Munmap(data)
}
