package store

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/filelock"
)

// Compact joins the segments without another writer into one, without duplicates, damage and torn ends. Killed at any
// moment it leaves every value in the old segments or in the new one.
func (s *Store) Compact() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	turn, err := filelock.TakeFolder(s.dir) // nil where folders cannot be locked
	if err != nil {
		return fmt.Errorf("%s: compact: %w", s.dir, err)
	}
	if turn != nil {
		defer turn.Close()
	}
	if err := s.sweep(); err != nil {
		return err
	}
	var old []*segment
	for _, seg := range s.segments {
		if seg.open || seg != s.own && (filelock.Take(seg.file) != nil || !stillThere(seg.file)) {
			continue
		}
		if seg != s.own { // what its writer added before it went
			if err := s.scan(seg); err != nil {
				return err
			}
		}
		old = append(old, seg)
	}
	if len(old) == 0 {
		return nil
	}
	into, err := s.create(unfinished)
	if err != nil {
		return err
	}
	if err := s.move(old, into); err != nil {
		return fmt.Errorf("compact: %w", err)
	}
	s.own, s.damaged = into, 0
	for _, seg := range old { // still open: what is being read from it goes on
		if err := os.Remove(filepath.Join(s.dir, seg.name)); err != nil {
			return err
		}
	}
	return atomicfile.SyncDir(s.dir)
}

// unfinished ends the name of a segment that a compaction is writing.
const unfinished = ".compacting"

// sweep removes what killed compactions left.
func (s *Store) sweep() error {
	left, err := s.names(unfinished) // no pattern: the folder's name may hold one
	for _, name := range left {
		if path := filepath.Join(s.dir, name); !filelock.Held(path) {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

// move copies the indexed records of the old segments into a new one, in their order, gives it its name and points the index at it.
func (s *Store) move(old []*segment, into *segment) error {
	type entry struct {
		key   [16]byte
		place uint64
	}
	var entries []entry
	for k, place := range s.index {
		if slices.Contains(old, s.of(place)) {
			entries = append(entries, entry{k, place})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.place, b.place) })
	at := into.read
	var buffer []byte
	flush := func() error {
		_, err := into.file.WriteAt(buffer, at-int64(len(buffer)))
		buffer = buffer[:0]
		return err
	}
	for i, e := range entries {
		data, err := s.of(e.place).record(offset(e.place))
		if err != nil {
			return err
		}
		entries[i].place = s.place(into, at)
		buffer = append(buffer, data...)
		if at += int64(len(data)); len(buffer) > 1<<20 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	into.read = at
	path := filepath.Join(s.dir, into.name)
	if err := errors.Join(into.file.Sync(), os.Rename(path+unfinished, path), atomicfile.SyncDir(s.dir)); err != nil {
		return err
	}
	for _, e := range entries {
		s.index[e.key] = e.place
	}
	return nil
}
