package tensorfile

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"fulcrum/internal/digest"
	"fulcrum/internal/regular"
)

// Whoever writes into a mapped file changes what has been read from it, and whoever cuts it takes pages away that are still to be read.
// All mappings of the process are therefore kept in a list, and looked at before what was computed from them is saved.

// mappings holds the open mappings of this process and the outcome of the closed ones.
type mappings struct {
	mu     sync.Mutex
	list   []*mapping
	broken []error  // of mappings that changed before they were closed
	memory []uint64 // of Records
}

// open is the one list: a file may be mapped by a model inside a reward inside a phase, and none must be missed.
var open mappings

const (
	recordWords = 4 // address, bytes, whether a page was missing, unused
	mostRecords = 4096
)

// Records is what a handler of SIGBUS needs to know: for every mapping four words, its address (0: none), its length in bytes, and room
// for the handler to note with a 1 that a page was missing. It lies outside of Go's memory and never moves. nil: the system gives none.
func Records() []uint64 {
	open.mu.Lock()
	defer open.mu.Unlock()
	return open.records()
}

func (o *mappings) records() []uint64 {
	if o.memory == nil {
		memory, err := syscall.Mmap(-1, 0, 8*recordWords*mostRecords, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err != nil {
			return nil
		}
		o.memory = unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(memory))), recordWords*mostRecords)
	}
	return o.memory
}

// words are the record of a mapping; nil: it has none, because there are too many.
func (o *mappings) words(m *mapping) []uint64 {
	if m.record < 0 {
		return nil
	}
	return o.memory[recordWords*m.record:][:recordWords]
}

func (o *mappings) add(m *mapping) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, m)
	records := o.records()
	for m.record = 0; recordWords*m.record < len(records); m.record++ {
		if w := o.words(m); atomic.LoadUint64(&w[0]) == 0 {
			atomic.StoreUint64(&w[2], 0)
			atomic.StoreUint64(&w[1], uint64(len(m.data)))
			atomic.StoreUint64(&w[0], uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.data)))))
			return
		}
	}
	m.record = -1
}

// remove ends the watch over a mapping. What was read from one that changed meanwhile is not forgotten.
func (o *mappings) remove(m *mapping) {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := m.look(false)
	if o.wasCut(m) {
		err = m.wasCut()
	}
	if err != nil {
		o.broken = append(o.broken, err)
	}
	if w := o.words(m); w != nil {
		atomic.StoreUint64(&w[0], 0)
	}
	o.list = slices.DeleteFunc(o.list, func(other *mapping) bool { return other == m })
}

func (o *mappings) wasCut(m *mapping) bool {
	w := o.words(m)
	return w != nil && atomic.LoadUint64(&w[2]) != 0
}

// ChangedError names a file that changed while it was mapped.
type ChangedError struct{ Path, How string }

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s was %s while it was in use: put it back as it was", e.Path, e.How)
}

// Look compares every file that is mapped, or was since the last look, with what it was: by size and times, and where these differ by its
// content. The first look at a mapping takes the digest of its content, tenths of a second a gigabyte. A file that is not what it was is a
// ChangedError. notes name those whose path leads to another file by now: what is mapped is still what it was.
func Look() (notes []string, err error) { return open.look(true) }

// Cut names a file of which a page was missing when it was read. It asks no file system: it may be called often.
func Cut() error {
	open.mu.Lock()
	defer open.mu.Unlock()
	for _, m := range open.list {
		if open.wasCut(m) {
			return m.wasCut()
		}
	}
	return nil
}

// Changed is Look without the digests of what was never looked at: a file that was touched counts as changed.
func Changed() error {
	_, err := open.look(false)
	return err
}

func (o *mappings) look(digests bool) (notes []string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.broken) > 0 {
		err, o.broken = o.broken[0], nil
		return nil, err
	}
	for _, m := range o.list {
		if o.wasCut(m) {
			return notes, m.wasCut()
		}
		if err := m.look(digests); err != nil {
			return notes, err
		}
		if o.wasCut(m) { // while its content was compared
			return notes, m.wasCut()
		}
		if there := regular.Identify(m.path); digests && !m.moved && (there.Device != m.is.Device || there.Inode != m.is.Inode) {
			m.moved = true
			notes = append(notes, fmt.Sprintf("%s has been replaced or removed: this run goes on with the file that it opened, "+
				"and a resume will need that file", m.path))
		}
	}
	return notes, nil
}

// look compares one file.
func (m *mapping) look(digests bool) error {
	info, err := m.file.Stat()
	if err != nil {
		return err
	}
	now := regular.IdentityOf(info)
	switch {
	case now == m.is && (m.sum != "" || !digests):
		return nil
	case now.Size != m.is.Size || m.sum == "" && now.Written != m.is.Written:
		return m.hasChanged()
	case m.sum == "" && !digests:
		return nil
	}
	sum := checksum(m.data)
	if m.sum != "" && sum != m.sum {
		return m.hasChanged()
	}
	m.is, m.sum = now, sum
	return nil
}

func (m *mapping) hasChanged() error { return &ChangedError{m.path, "changed"} }

func (m *mapping) wasCut() error {
	return &ChangedError{m.path, "cut short, or could not be read any more,"}
}

// Input is a file that is mapped, and the digest of its content.
type Input struct {
	Path   string
	Digest string
}

// Name is what the file is called wherever it lies.
func (i Input) Name() string { return filepath.Base(i.Path) }

// Inputs are the files that Look has seen and that are still mapped.
func Inputs() (all []Input) {
	open.mu.Lock()
	defer open.mu.Unlock()
	for _, m := range open.list {
		if m.sum != "" {
			all = append(all, Input{m.path, m.sum})
		}
	}
	return all
}

// checksum is a digest of the CRC-32C (hardware) of blocks of a megabyte.
func checksum(data []byte) string {
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	var sums []byte
	for block := range slices.Chunk(data, 1<<20) {
		sums = binary.LittleEndian.AppendUint32(sums, crc32.Checksum(block, castagnoli))
	}
	return digest.Of(sums)[:32]
}
