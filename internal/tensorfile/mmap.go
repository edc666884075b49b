package tensorfile

import (
	"fmt"
	"syscall"

	"fulcrum/internal/regular"
)

// mapping is a file's content, mapped read-only. The file must not be truncated while it is mapped
// (a read would raise SIGBUS); everything of ours replaces files by rename, which is safe.
type mapping struct {
	data   []byte
	mapped bool
}

func mapFile(path string) (*mapping, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 {
		return nil, fmt.Errorf("%s is empty", path)
	}
	data, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil { // pipes and some network file systems
		if data, err = regular.ReadFile(path); err != nil {
			return nil, err
		}
		return &mapping{data: data}, nil
	}
	return &mapping{data: data, mapped: true}, nil
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
	if m == nil || !m.mapped {
		return nil
	}
	m.mapped = false
	data := m.data
	m.data = nil
	return syscall.Munmap(data)
}
