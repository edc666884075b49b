// Package store keeps values under digests in a folder that many processes share. It loses nothing that Put has returned for:
// not when its process is killed, and after a power cut at most the last second.
//
//	s, err := store.Open("scores")
//	value, ok, err := s.Get(key)
//	err = s.Put(key, value)
//
// The folder holds append-only segments. A process writes to one that nobody else writes to, under the kernel's lock, and
// reads all of them; of a segment that another writes at this moment it reads as far as that is whole. In memory there is an
// index alone: 16 bytes of a key and where its value lies.
//
// What is not yet to be trusted is held back (Hold): it stands in segments of another ending, which processes read too, until
// the one that vouches for it takes it over (Commit) or throws it away (Discard). See held.go.
package store

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/filelock"
	"fulcrum/internal/list"
	"fulcrum/internal/regular"
)

// Key is the digest that a value is kept under.
type Key [sha256.Size]byte

// A segment is its head and then records: mark, length of the value, CRC-32C of length, key and value, key, value. A mark lets
// the reader find the next record behind damage.
const (
	head      = "fulcrum score store 1\n"
	ending    = ".segment"
	mark      = 0x7e5c04ed
	record    = 12 + sha256.Size // bytes before a value
	maxValue  = 1 << 20          // bytes
	placeBits = 44               // of an offset in a segment; the rest of a place numbers the segment, but for one bit
	used      = 1 << 63          // of a place: this process was given the value
)

// Store is an open folder. It is safe for concurrent use.
type Store struct {
	dir string

	mu       sync.RWMutex
	index    map[[16]byte]uint64 // key's first half → segment and offset of its record
	segments []*segment
	own      *segment // nil until the first Put
	held     *segment // nil until the first Hold
	refused  bool     // Discard was called
	synced   time.Time
	looked   time.Time
	damaged  int64
}

// segment is a file of the store, open while the store is: what another process removes stays readable.
type segment struct {
	name string
	file *os.File
	read int64 // bytes that are in the index, and of our own the end
	open bool  // its values are held back: the file's name ends in unchecked
}

// Open reads the index of a folder, which is made where it is missing.
func Open(dir string) (*Store, error) {
	if err := atomicfile.MkdirAll(dir); err != nil {
		return nil, err
	}
	s := &Store{dir: dir, index: map[[16]byte]uint64{}}
	if err := s.refresh(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Store) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.index)
}

// Damaged returns how many bytes in the middle of segments were no records and are left out. The torn end of a segment, whose
// writer was killed, does not count.
func (s *Store) Damaged() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.damaged
}

// Get returns the value of key; false where there is none.
func (s *Store) Get(key Key) ([]byte, bool, error) {
	s.mu.RLock()
	place, ok := s.index[half(key)]
	var seg *segment
	if ok {
		seg = s.of(place)
	}
	first := ok && seg.open && place&used == 0
	s.mu.RUnlock()
	if !ok {
		return nil, false, nil
	}
	if first {
		s.use(key)
	}
	data, err := seg.record(offset(place))
	if err != nil {
		return nil, false, err
	}
	return data[record:], bytes.Equal(data[12:record], key[:]), nil // two keys may share a half
}

// of returns the segment of a place.
func (s *Store) of(place uint64) *segment { return s.segments[place&^used>>placeBits] }

func offset(place uint64) int64 { return int64(place & (1<<placeBits - 1)) }

// place numbers an offset in a segment.
func (s *Store) place(seg *segment, at int64) uint64 {
	return uint64(slices.Index(s.segments, seg))<<placeBits | uint64(at)
}

// record reads the record at an offset.
func (seg *segment) record(at int64) ([]byte, error) {
	data := make([]byte, record)
	_, err := seg.file.ReadAt(data, at)
	if err == nil {
		data = append(data, make([]byte, min(maxValue, binary.LittleEndian.Uint32(data[4:])))...)
		_, err = seg.file.ReadAt(data[record:], at+record)
	}
	if err == nil && !isRecord(data) {
		err = errors.New("the record has changed since it was indexed")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: byte %d: %w", seg.file.Name(), at, err)
	}
	return data, nil
}

// Put keeps value under key; a key that has one keeps it.
func (s *Store) Put(key Key, value []byte) error {
	if err := s.fits(value); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.index[half(key)]; ok {
		return nil
	}
	if s.own == nil {
		if err := s.claim(); err != nil {
			return err
		}
	}
	return s.write(s.own, key, value)
}

func (s *Store) fits(value []byte) error {
	if len(value) > maxValue {
		return fmt.Errorf("%s: a value of %d bytes: want at most %d", s.dir, len(value), maxValue)
	}
	return nil
}

// write appends a record to a segment of our own and syncs it once a second.
func (s *Store) write(seg *segment, key Key, value []byte) error {
	data := encode(key, value)
	if _, err := seg.file.WriteAt(data, seg.read); err != nil {
		return errors.Join(err, seg.file.Truncate(seg.read)) // a full disk leaves no half record behind
	}
	s.index[half(key)] = s.place(seg, seg.read)
	seg.read += int64(len(data))
	if time.Since(s.synced) < time.Second {
		return nil
	}
	s.synced = time.Now()
	return seg.file.Sync()
}

// Refresh reads what other processes have added; calls within a second of another do nothing.
func (s *Store) Refresh() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.looked) < time.Second {
		return nil
	}
	return s.refresh()
}

// Close syncs and closes the segments.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, seg := range []*segment{s.own, s.held} {
		if seg != nil {
			errs = append(errs, seg.file.Sync())
		}
	}
	for _, seg := range s.segments {
		errs = append(errs, seg.file.Close())
	}
	s.segments, s.own, s.held, s.index = nil, nil, nil, nil
	return errors.Join(errs...)
}

func (s *Store) refresh() error {
	s.looked = time.Now()
	for _, suffix := range []string{unchecked, ""} { // in this order: one that is renamed meanwhile is seen
		names, err := s.names(ending + suffix)
		if err != nil {
			return err
		}
		for _, name := range names {
			seg, err := s.segment(strings.TrimSuffix(name, suffix), suffix)
			if errors.Is(err, os.ErrNotExist) { // thrown away meanwhile
				continue
			}
			if err == nil && seg != s.own && seg != s.held {
				err = s.scan(seg)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// names lists the files in the folder whose names end so.
func (s *Store) names(ending string) ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	names := list.Map(entries, fs.DirEntry.Name)
	return list.Filter(names, func(name string) bool { return strings.HasSuffix(name, ending) }), err
}

// segment returns the open segment of a name; its file's name may end in suffix. A file that may not be written is read all the same.
func (s *Store) segment(name, suffix string) (*segment, error) {
	if i := slices.IndexFunc(s.segments, func(seg *segment) bool { return seg.name == name }); i >= 0 {
		s.segments[i].open = s.segments[i].open && suffix != "" // its writer has vouched for it meanwhile
		return s.segments[i], nil
	}
	path := filepath.Join(s.dir, name+suffix)
	f, err := regular.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrPermission) {
		f, err = regular.Open(path)
	}
	if err != nil {
		return nil, err
	}
	seg := &segment{name: name, file: f, open: suffix != ""}
	s.segments = append(s.segments, seg)
	return seg, nil
}

// scan indexes the records of a segment behind those read before. Bytes that are no record are stepped over when a record
// follows; else they are the torn end of a killed writer, or what another is writing now.
func (s *Store) scan(seg *segment) error {
	info, err := seg.file.Stat()
	if err != nil || info.Size() <= seg.read {
		return err
	}
	if seg.read == 0 {
		found := make([]byte, len(head))
		n, err := seg.file.ReadAt(found, 0)
		if err == io.EOF && strings.HasPrefix(head, string(found[:n])) {
			return nil // its writer was killed at once
		}
		if err != nil || string(found) != head {
			return fmt.Errorf("%s: no segment of scores of this program's version (%v): remove it or take another folder",
				seg.file.Name(), err)
		}
		seg.read = int64(len(head))
	}
	r := bufio.NewReaderSize(io.NewSectionReader(seg.file, seg.read, info.Size()-seg.read), maxValue+record)
	at := seg.read
	for {
		data, err := r.Peek(record)
		if err == nil && binary.LittleEndian.Uint32(data) == mark {
			data, _ = r.Peek(record + int(min(maxValue, binary.LittleEndian.Uint32(data[4:])))) // short at the end
		}
		if len(data) < record {
			return nil
		}
		if !isRecord(data) {
			if _, err := r.Discard(1); err != nil {
				return fmt.Errorf("%s: byte %d: %w", seg.file.Name(), at, err)
			}
			at++
			continue
		}
		k := [16]byte(data[12:28])
		if known, ok := s.index[k]; !ok || s.of(known).open && !seg.open {
			s.index[k] = s.place(seg, at)
		}
		s.damaged += at - seg.read
		at += int64(len(data))
		seg.read = at
		if _, err := r.Discard(len(data)); err != nil {
			return fmt.Errorf("%s: byte %d: %w", seg.file.Name(), at, err)
		}
	}
}

// claim takes a segment to write to: one whose writer has gone, without its torn end, or a new one.
func (s *Store) claim() error {
	for _, seg := range s.segments {
		if seg.open || filelock.Take(seg.file) != nil || !stillThere(seg.file) || s.scan(seg) != nil { // in use, removed, read only, foreign
			continue
		}
		if seg.read == 0 {
			if _, err := seg.file.WriteAt([]byte(head), 0); err != nil {
				return err
			}
			seg.read = int64(len(head))
		}
		s.own = seg
		return seg.file.Truncate(seg.read)
	}
	seg, err := s.create("")
	if err == nil {
		s.own = seg
	}
	return err
}

// stillThere reports whether f is the file of its name: whoever threw it away may have done so before the lock was ours.
func stillThere(f *os.File) bool {
	named, err := os.Stat(f.Name())
	if err != nil {
		return false
	}
	opened, err := f.Stat()
	return err == nil && os.SameFile(named, opened)
}

// create makes an empty locked segment; its name ends in suffix until it is renamed.
func (s *Store) create(suffix string) (*segment, error) {
	const tries = 100 // another process may see the new file and claim it first
	for range tries {
		random := make([]byte, 8)
		rand.Read(random) // never fails
		name := hex.EncodeToString(random) + ending
		f, err := regular.OpenFile(filepath.Join(s.dir, name+suffix), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return nil, err
		}
		if filelock.Take(f) != nil {
			f.Close()
			continue
		}
		_, err = f.WriteAt([]byte(head), 0)
		if err = errors.Join(err, atomicfile.SyncDir(s.dir)); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		seg := &segment{name: name, file: f, read: int64(len(head))}
		s.segments = append(s.segments, seg)
		return seg, nil
	}
	return nil, fmt.Errorf("%s: no new file could be locked: does this file system have POSIX locks?", s.dir)
}

func half(k Key) [16]byte { return [16]byte(k[:16]) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encode(key Key, value []byte) []byte {
	b := make([]byte, record, record+len(value))
	binary.LittleEndian.PutUint32(b, mark)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(value)))
	copy(b[12:], key[:])
	b = append(b, value...)
	binary.LittleEndian.PutUint32(b[8:], sum(b))
	return b
}

// sum is the checksum of a record: of everything but its mark and itself.
func sum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[4:8], castagnoli), castagnoli, b[12:])
}

// isRecord reports whether b is a whole record.
func isRecord(b []byte) bool {
	return len(b) >= record && binary.LittleEndian.Uint32(b) == mark && int(binary.LittleEndian.Uint32(b[4:])) == len(b)-record &&
		binary.LittleEndian.Uint32(b[8:]) == sum(b)
}
