package board

import (
	"cmp"
	"encoding/json"
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
	"fulcrum/internal/list"
	"fulcrum/internal/regular"
	"fulcrum/reports/curves"
	"fulcrum/reports/record"
	"fulcrum/reports/sweeps"
)

const (
	sweepFile  = "sweep.jsonl"
	runsIndex  = "runs.idx"
	configFile = ".hydra/config.yaml"
	scanEvery  = 500 * time.Millisecond
	deepest    = 12 // folders below a root
	// readAtOnce is how long a look reads runs before it answers with what it has; the rest comes with the next looks.
	readAtOnce = 300 * time.Millisecond
	// fresh is how long after its last change a folder is listed again: clocks of file systems are coarse.
	fresh = 2 * time.Second
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
	ID         string         `json:"id"`
	Path       string         `json:"path"`
	Title      string         `json:"title"`
	Sweeper    string         `json:"sweeper"`
	Keys       []string       `json:"keys,omitempty"` // that are swept
	Jobs       int            `json:"jobs"`
	States     map[string]int `json:"states"`
	Running    bool           `json:"running"`              // a controller is at work
	Lead       string         `json:"lead,omitempty"`       // the best job or setting, or that several are equal
	SettingOf  map[int]int    `json:"settings,omitempty"`   // by job: its setting, 0 is the best
	Infeasible []int          `json:"infeasible,omitempty"` // jobs that violate a constraint: they count in no mean
	Seeds      bool           `json:"seeds,omitempty"`      // some jobs differ in their seed alone
	Left       *float64       `json:"left,omitempty"`       // seconds, about
	Error      string         `json:"error,omitempty"`
	Version    int64          `json:"version"`

	dir   string
	stamp regular.Identity
	read  time.Time
}

// Scan looks for runs that came, changed or went, unless that was done just now. It reads for a third of a second, those that it
// knows and as long those that are new, and leaves the rest to the next call; all reads everything.
func (b *Board) Scan(all bool) {
	b.scanning.Lock()
	defer b.scanning.Unlock()
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

// refresh looks for what is new until all is read, and waits for it no longer than a page can: the rest comes with the next
// answers.
func (b *Board) refresh() {
	b.mu.Lock()
	looking := b.looking
	if looking == nil {
		looking = make(chan struct{})
		b.looking = looking
		go b.readAll(looking)
	}
	b.mu.Unlock()
	select {
	case <-looking:
	case <-time.After(readAtOnce):
	}
}

// readAll scans until nothing is left to be read.
func (b *Board) readAll(looking chan struct{}) {
	for more := true; more; {
		b.Scan(false)
		b.mu.Lock()
		if more = b.reading > 0; !more {
			b.looking = nil
		}
		b.mu.Unlock()
	}
	close(looking)
}

// changed publishes what a look has found.
func (b *Board) changed(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
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
			if id := idOf(dir); b.sweeps[id] != nil {
				b.leave(id)
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
		b.changed(func() {
			e := b.runs[id]
			if e == nil {
				e = &entry{ID: id, Path: b.shown(dir), State: stateUnread, dir: dir}
				b.runs[id] = e
			}
			if sweep != "" {
				e.Sweep, e.Job = cmp.Or(e.Sweep, sweep), filepath.Base(dir)
			}
		})
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
			b.changed(func() { b.sweeps[id] = &sweepEntry{ID: id, Path: b.shown(dir), dir: dir} })
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
	return slices.ContainsFunc([]string{configFile, record.MetricsFile, record.SummaryFile}, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

// leave notes that a run or sweep is gone.
func (b *Board) leave(id string) {
	b.changed(func() {
		delete(b.runs, id)
		delete(b.sweeps, id)
		b.version++
		b.gone = append(b.gone, gone{id, b.version})
	})
}

// readChanged reads runs and sweeps whose files have changed.
func (b *Board) readChanged(all bool) {
	unread, left := b.reading > 0, 0
	var spent time.Duration // reading: to look at a slow disk may take longer than all of it may
	for _, s := range b.sweeps {
		at, running := regular.Identify(filepath.Join(s.dir, sweepFile)), b.opt.Locked(s.dir)
		if (at != s.stamp || running != s.Running) && time.Since(s.read) > sweepEvery {
			b.readSweep(s, at, running)
		}
	}
	var unknown []*entry
	for id, e := range b.runs {
		if e.Version == 0 { // what is not read costs no look at its files
			unknown = append(unknown, e)
			continue
		}
		if unread && !all && e.ended() {
			continue // nor do those that have ended while others wait to be read
		}
		at := b.stampOf(e)
		if at == (stamp{}) && !isRun(e.dir) {
			b.leave(id)
			continue
		}
		if at == e.stamp {
			continue
		}
		if !all && spent > readAtOnce {
			left++
			continue
		}
		begin := time.Now()
		b.told(e, b.read(*e))
		spent += time.Since(begin)
	}
	begin := time.Now()
	left += b.readUnknown(unknown, func() bool { return all || time.Since(begin) < readAtOnce })
	b.changed(func() { b.reading = left })
	if b.unsaved >= 500 || unread && left == 0 && !b.scanned.IsZero() { // what earlier looks left is saved with the rest, however little
		b.saveIndex()
	}
}

// told publishes an entry that was read anew, with its version.
func (b *Board) told(e *entry, read entry) {
	b.changed(func() {
		b.version++
		*e = read
		e.Version = b.version
	})
	b.unsaved++
}

// readUnknown reads runs for the first time, several at once, as long as more says so, and returns how many are left.
func (b *Board) readUnknown(unknown []*entry, more func() bool) (left int) {
	var next atomic.Int64
	var workers sync.WaitGroup
	read := make([]entry, len(unknown))
	for range min(8, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for more() {
				i := int(next.Add(1)) - 1
				if i >= len(unknown) {
					return
				}
				read[i] = b.read(*unknown[i])
			}
		})
	}
	workers.Wait()
	done := min(int(next.Load()), len(unknown))
	for i, e := range unknown[:done] {
		if read[i].stamp == (stamp{}) && !isRun(e.dir) { // it went in between
			b.leave(e.ID)
			continue
		}
		b.told(e, read[i])
	}
	return len(unknown) - done
}

// readSweep reads a ledger for the list.
func (b *Board) readSweep(s *sweepEntry, at regular.Identity, running bool) {
	opt, jobs, err := b.opt.Sweep(s.dir)
	read := sweepEntry{ID: s.ID, Path: s.Path, Title: opt.Title, Sweeper: opt.Sweeper, Jobs: len(jobs), Left: leftOf(jobs),
		States:  list.Tally(list.Map(jobs, func(j sweeps.Job) string { return j.State })),
		Keys:    list.Map(opt.Dimensions, func(d sweeps.Dimension) string { return d.Key }),
		Running: running, dir: s.dir, stamp: at, read: time.Now()}
	if err != nil {
		read.Error = "the ledger cannot be read: " + err.Error()
	}
	if err == nil {
		model := sweeps.ModelOf(jobs, opt)
		read.Lead, read.SettingOf = model.Lead(), map[int]int{}
		for i, s := range model.Settings {
			for _, j := range s.Jobs {
				read.SettingOf[j.Number] = i
			}
		}
		read.Seeds = model.HasSeeds()
		for _, j := range jobs {
			if model.Infeasible(j) {
				read.Infeasible = append(read.Infeasible, j.Number)
			}
		}
	}
	b.changed(func() {
		b.version++
		*s = read
		s.Version = b.version
	})
}

// leftOf is about how many seconds the jobs that have not ended take, as many at a time as run now, by those that have; nil before
// the first.
func leftOf(jobs []sweeps.Job) *float64 {
	ended, seconds, left, running := 0.0, 0.0, 0.0, 0.0
	for _, j := range jobs {
		switch {
		case j.State == record.StateRunning:
			running, left = running+1, left+1
		case j.State == "queued":
			left++
		case j.Seconds > 0:
			ended, seconds = ended+1, seconds+j.Seconds
		}
	}
	if ended == 0 {
		return nil
	}
	return finite(left * seconds / ended / max(running, 1))
}

// indexVersion is the number of the index's format and of how a run is read and judged: whoever changes either counts it on, and
// boards read the runs anew.
const indexVersion = 9

// savedIndex is the index of a root.
type savedIndex struct {
	Version int                   `json:"version"`
	Runs    map[string]savedEntry `json:"runs"` // by path below the root
}

type savedEntry struct {
	Entry entry `json:"entry"`
	Stamp stamp `json:"stamp"`
}

// loadIndex takes the entries that a board has read before.
func (b *Board) loadIndex() {
	for _, root := range b.roots {
		data, err := regular.ReadSmall(filepath.Join(root, curves.IndexFolder, runsIndex), 4*regular.Document)
		if err != nil {
			continue
		}
		var saved savedIndex
		if json.Unmarshal(data, &saved) != nil || saved.Version != indexVersion {
			continue
		}
		for relative, one := range saved.Runs {
			dir := filepath.Join(root, relative)
			e := one.Entry
			e.ID, e.Path, e.dir, e.stamp = idOf(dir), b.shown(dir), dir, one.Stamp
			if e.Job != "" {
				e.Sweep = idOf(filepath.Dir(dir))
			}
			b.changed(func() {
				b.version++
				e.Version = b.version
				b.runs[e.ID] = &e
			})
		}
	}
}

// saveIndex writes the entries of runs that have ended beside the roots' runs, nothing into a root that is a run. Where it cannot, it
// tries again behind as many changes.
func (b *Board) saveIndex() {
	b.unsaved = 0
	for _, root := range b.roots {
		saved := savedIndex{indexVersion, map[string]savedEntry{}}
		for _, e := range b.runs {
			relative, err := filepath.Rel(root, e.dir)
			if err == nil && relative != "." && filepath.IsLocal(relative) && e.Progress != nil && !e.stamp.Locked {
				saved.Runs[relative] = savedEntry{*e, e.stamp}
			}
		}
		if data, err := json.Marshal(saved); err == nil && len(saved.Runs) > 0 {
			_ = atomicfile.WriteIn(filepath.Join(root, curves.IndexFolder), runsIndex, data) // without it the next board reads the runs
		}
	}
}
