package store

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/filelock"
	"fulcrum/internal/list"
)

// unchecked ends the name of a segment whose values are held back. A process that is killed leaves it behind: the next one that
// asks for a value of it is given it, and vouches for it with its own.
const unchecked = ".unchecked"

// Hold keeps value under key until Commit or Discard; a key that has a value keeps it. It is as safe from kills as what Put keeps.
func (s *Store) Hold(key Key, value []byte) error {
	if err := s.fits(value); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.index[half(key)]; ok || s.refused {
		return nil
	}
	return s.hold(key, value)
}

func (s *Store) hold(key Key, value []byte) (err error) {
	if s.held == nil {
		if s.held, err = s.create(unchecked); err != nil {
			return err
		}
		s.held.open = true
	}
	if err = s.write(s.held, key, value); err == nil {
		s.index[half(key)] |= used
	}
	return err
}

// Held reports whether key has a value that is held back.
func (s *Store) Held(key Key) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	place, ok := s.index[half(key)]
	return ok && s.of(place).open
}

// use remembers that this process was given a value that is held back.
func (s *Store) use(key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if place, ok := s.index[half(key)]; ok && s.of(place).open {
		s.index[half(key)] = place | used
	}
}

// Commit makes what this process held back, and what it was given of others' that is held back, values like all others, at once:
// killed at any moment it has done so for all of them or for none. Segments of killed processes that hold nothing else go.
func (s *Store) Commit() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refresh(); err != nil { // what others have vouched for, or thrown away, meanwhile
		return err
	}
	there := map[*segment]bool{}
	for _, place := range s.index {
		seg := s.of(place)
		if !seg.open || seg == s.held || place&used == 0 {
			continue
		}
		if _, looked := there[seg]; !looked {
			there[seg] = stillThere(seg.file)
		}
		if !there[seg] {
			return fmt.Errorf("%s: answers that this job took over were thrown away by another job, which found that their server lies: start "+
				"this job again", s.dir)
		}
		data, err := seg.record(offset(place))
		if err == nil {
			err = s.hold(Key(data[12:record]), data[record:])
		}
		if err != nil {
			return err
		}
	}
	if seg := s.held; seg != nil {
		path := filepath.Join(s.dir, seg.name)
		if err := errors.Join(seg.file.Sync(), os.Rename(path+unchecked, path), atomicfile.SyncDir(s.dir)); err != nil {
			return err
		}
		seg.open, s.held = false, nil
	}
	left := list.SetBy(slices.Collect(maps.Values(s.index)), s.of)
	return s.drop(func(seg *segment) bool { return !left[seg] })
}

// Discard throws away what this process held back, and the segments of processes that are gone of which it was given a value. What
// it is to hold from now on is not kept.
func (s *Store) Discard() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = true
	given := map[*segment]bool{}
	for key, place := range s.index {
		if seg := s.of(place); seg.open {
			given[seg] = given[seg] || place&used != 0
			delete(s.index, key)
		}
	}
	var err error
	if s.held != nil {
		err = os.Remove(filepath.Join(s.dir, s.held.name+unchecked))
		s.held = nil
	}
	return errors.Join(err, s.drop(func(seg *segment) bool { return given[seg] }))
}

// drop removes held-back segments whose writers are gone.
func (s *Store) drop(which func(*segment) bool) error {
	for _, seg := range s.segments {
		if !seg.open || !which(seg) || filelock.Take(seg.file) != nil || !stillThere(seg.file) {
			continue
		}
		if err := os.Remove(seg.file.Name()); err != nil {
			return err
		}
	}
	return atomicfile.SyncDir(s.dir)
}
