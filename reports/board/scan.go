package board

import (
	"bytes"
	"encoding/gob"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fulcrum/internal/atomicfile"
	"fulcrum/reports/curves"
	"fulcrum/reports/record"
)

const (
	sweepFile  = "sweep.db"
	runsIndex  = "runs.idx"
	configFile = ".hydra/config.yaml"
	scanEvery  = 500 * time.Millisecond
	deepest    = 12 // folders below a root
	// readAtOnce is how long a look reads runs before it answers with what it has; the rest comes with the next looks.
	readAtOnce = 300 * time.Millisecond
	// fresh is how long after its last change a folder is listed again: clocks of file systems are coarse.
	fresh = 2 * time.Second
	// turns is in how many looks every run that is done is looked at wholly; in the others only at its rows.
	turns = 8
	// sweepEvery is how often the ledger of a sweep at work is read for the list.
	sweepEvery = 2 * time.Second
)

// folder is a folder that is no run: it may hold some.
type folder struct {
	changed time.Time
	sweep   string // id of the sweep that it belongs to
	depth   int
}

// sweepEntry is a line of the list of sweeps.
type sweepEntry struct {
	ID        string         `json:"id"`
	Path      string         `json:"path"`
	Title     string         `json:"title"`
	Sweeper   string         `json:"sweeper"`
	Jobs      int            `json:"jobs"`
	States    map[string]int `json:"states"`
	Objective string         `json:"objective,omitempty"`
	Minimize  bool           `json:"minimize,omitempty"`
	Running   bool           `json:"running"` // a controller is at work
	Error     string         `json:"error,omitempty"`
	Version   int64          `json:"version"`

	dir   string
	stamp int64
	read  time.Time
}

// Scan looks for runs that came, changed or went, unless that was done just now. It reads for a third of a second at
// most and leaves the rest to the next call; all reads everything.
func (b *Board) Scan(all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !all && b.reading == 0 && time.Since(b.scanned) < scanEvery {
		return
	}
	if b.scanned.IsZero() {
		b.loadIndex()
	}
	b.look()
	b.readChanged(all)
	b.scanned = time.Now()
}

// readOn reads the runs that a look has left over, while nobody asks: a page asks every second or two, and a look reads for a
// third of a second.
func (b *Board) readOn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reading == 0 || b.readingOn {
		return
	}
	b.readingOn = true
	go func() {
		for more := true; more; {
			b.Scan(false)
			b.mu.Lock()
			more = b.reading > 0
			b.readingOn = more
			b.mu.Unlock()
		}
	}()
}

// look finds folders, runs and sweeps. A folder whose time has not changed holds what it held.
func (b *Board) look() {
	for _, root := range b.roots {
		if _, known := b.folders[root]; !known && b.runs[idOf(root)] == nil {
			b.find(root, "", 0)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(b.folders)) {
		f := b.folders[dir]
		info, err := os.Stat(dir)
		if err != nil {
			delete(b.folders, dir)
			if s := b.sweeps[idOf(dir)]; s != nil {
				delete(b.sweeps, s.ID)
				b.leave(s.ID)
			}
			continue
		}
		if !info.ModTime().Equal(f.changed) || time.Since(f.changed) < fresh {
			delete(b.folders, dir)
			b.find(dir, f.sweep, f.depth)
		}
	}
}

// find says what a folder is, and looks at those in it that are not known.
func (b *Board) find(dir, sweep string, depth int) {
	id := idOf(dir)
	if depth > deepest {
		return
	}
	if isRun(dir) { // the time of its folder says nothing: one look less at each of thousands
		if b.runs[id] == nil {
			b.runs[id] = &entry{ID: id, Path: b.shown(dir), Sweep: sweep, dir: dir, stamp: stamp{Metrics: -1}}
		}
		if e := b.runs[id]; sweep != "" && e.Sweep == "" {
			e.Sweep = sweep
		}
		if sweep != "" {
			b.runs[id].Job = filepath.Base(dir)
		}
		return
	}
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	if slices.ContainsFunc(names, func(n os.DirEntry) bool { return n.Name() == sweepFile }) {
		if sweep = id; b.sweeps[id] == nil {
			b.sweeps[id] = &sweepEntry{ID: id, Path: b.shown(dir), dir: dir}
		}
	}
	b.folders[dir] = folder{info.ModTime(), sweep, depth}
	for _, n := range names {
		child := filepath.Join(dir, n.Name())
		if _, known := b.folders[child]; n.IsDir() && !known && !strings.HasPrefix(n.Name(), ".") && b.runs[idOf(child)] == nil {
			b.find(child, sweep, depth+1)
		}
	}
}

func isRun(dir string) bool {
	for _, name := range []string{configFile, record.MetricsFile, record.SummaryFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

// leave notes that a run or sweep is gone.
func (b *Board) leave(id string) {
	b.version++
	b.gone = append(b.gone, gone{id, b.version})
}

// readChanged reads runs and sweeps whose files have changed.
func (b *Board) readChanged(all bool) {
	begin, unread := time.Now(), b.reading > 0
	b.reading = 0
	for _, s := range b.sweeps {
		if at := stampOf(filepath.Join(s.dir, sweepFile)); at != s.stamp && time.Since(s.read) > sweepEvery {
			b.readSweep(s, at)
		}
	}
	b.turn++
	var unknown []*entry
	for id, e := range b.runs {
		if e.Version == 0 { // what is not read costs no look at its files
			unknown = append(unknown, e)
			continue
		}
		if unread && e.Progress != nil && *e.Progress == 1 && b.turn%turns != 0 {
			continue // nor do those that have ended while others wait to be read
		}
		if !all && e.Progress != nil && *e.Progress == 1 && int(id[0]+id[1])%turns != b.turn%turns &&
			stampOf(filepath.Join(e.dir, record.MetricsFile)) == e.stamp.Metrics {
			continue
		}
		at := b.stampOf(e.dir)
		if at == e.stamp {
			continue
		}
		if at == (stamp{}) && !isRun(e.dir) {
			delete(b.runs, id)
			b.leave(id)
			continue
		}
		if !all && time.Since(begin) > readAtOnce {
			b.reading++
			continue
		}
		b.read(e)
		b.told(e)
	}
	b.readUnknown(unknown, func() bool { return all || time.Since(begin) < readAtOnce })
	if b.unsaved >= 500 {
		b.saveIndex()
	}
}

// told gives an entry that was read anew its version.
func (b *Board) told(e *entry) {
	b.version++
	e.Version = b.version
	b.unsaved++
}

// readUnknown reads runs for the first time, several at once, as long as more says so.
func (b *Board) readUnknown(unknown []*entry, more func() bool) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(8, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for more() {
				i := int(next.Add(1)) - 1
				if i >= len(unknown) {
					return
				}
				b.read(unknown[i])
			}
		})
	}
	workers.Wait()
	for i, e := range unknown {
		switch {
		case i >= int(next.Load()):
			e.State = "unread"
			b.reading++
		case e.stamp == (stamp{}) && !isRun(e.dir): // it went in between
			delete(b.runs, e.ID)
		default:
			b.told(e)
		}
	}
}

// readSweep reads a ledger for the list.
func (b *Board) readSweep(s *sweepEntry, at int64) {
	opt, jobs, err := b.opt.Sweep(s.dir)
	running := b.opt.Locked(s.dir)
	*s = sweepEntry{ID: s.ID, Path: s.Path, dir: s.dir, stamp: at, read: time.Now(), States: map[string]int{}, Running: running}
	if err != nil {
		s.Error = "the ledger cannot be read: " + err.Error()
	}
	s.Title, s.Sweeper, s.Jobs = opt.Title, opt.Sweeper, len(jobs)
	for _, j := range jobs {
		s.States[j.State]++
	}
	if len(opt.Objectives) > 0 {
		s.Objective, s.Minimize = opt.Objectives[0].Name, opt.Objectives[0].Minimize
	}
	b.version++
	s.Version = b.version
}

// savedEntry is an entry in the index of a root.
type savedEntry struct {
	Entry entry
	Stamp stamp
}

// loadIndex takes the entries that a board has read before.
func (b *Board) loadIndex() {
	for _, root := range b.roots {
		data, err := os.ReadFile(filepath.Join(root, curves.IndexFolder, runsIndex))
		if err != nil {
			continue
		}
		saved := map[string]savedEntry{} // by path below the root
		if gob.NewDecoder(bytes.NewReader(data)).Decode(&saved) != nil {
			continue
		}
		for relative, one := range saved {
			dir := filepath.Join(root, relative)
			e := one.Entry
			e.ID, e.Path, e.dir, e.stamp = idOf(dir), b.shown(dir), dir, one.Stamp
			b.version++
			e.Version = b.version
			b.runs[e.ID] = &e
			if s := filepath.Dir(dir); e.Job != "" {
				e.Sweep = idOf(s)
			}
		}
	}
}

// saveIndex writes the entries of runs that have ended beside the roots' runs.
func (b *Board) saveIndex() {
	for _, root := range b.roots {
		saved := map[string]savedEntry{}
		for _, e := range b.runs {
			relative, err := filepath.Rel(root, e.dir)
			if err == nil && filepath.IsLocal(relative) && e.Progress != nil && !e.stamp.Locked {
				saved[relative] = savedEntry{*e, e.stamp}
			}
		}
		var data bytes.Buffer
		if len(saved) == 0 || gob.NewEncoder(&data).Encode(saved) != nil || os.MkdirAll(filepath.Join(root, curves.IndexFolder), 0o755) != nil {
			continue
		}
		if atomicfile.Write(filepath.Join(root, curves.IndexFolder, runsIndex), data.Bytes(), 0o644) != nil {
			continue
		}
		b.unsaved = 0
	}
}
