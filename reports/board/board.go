package board

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"fulcrum/reports/curves"
	"fulcrum/reports/sweeps"
)

// Options say what a board shows, and give it what it does not know itself.
type Options struct {
	Roots []string
	// Sweep reads the ledger of a sweep folder.
	Sweep func(dir string) (sweeps.Options, []sweeps.Job, error)
	// Locked reports whether a process is at work on a run or sweep.
	Locked func(dir string) bool
	// Stop tells the process at work on dir to save its state and to end; Resume starts one that goes on. Nil: a board
	// that cannot.
	Stop, Resume func(dir string) error
	// Starts names what a resume of dir starts or calls besides this program; the reader is asked first. Nil: nothing.
	Starts func(dir string) []Start
}

// Start is a program that a run starts or an address that it calls, by the key of its configuration.
type Start struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Board knows the runs and sweeps below its roots.
type Board struct {
	opt   Options
	roots []string // absolute

	// A look at the folders holds scanning, and mu only while it changes what answers read: a disk may be slow. Nothing else
	// changes it, so the look reads it without mu.
	scanning sync.Mutex
	folders  map[string]folder
	scanned  time.Time
	unsaved  int

	mu      sync.Mutex // of all to the blank line
	version int64      // grows with every change
	runs    map[string]*entry
	sweeps  map[string]*sweepEntry
	gone    []gone
	reading int           // runs that are yet to be read; before the first look, 1
	looking chan struct{} // closed when the look under way has ended; nil: none is

	openMu sync.Mutex
	open   []*opened
}

// gone is a run or sweep that is no longer there.
type gone struct {
	id      string
	version int64
}

// opened is a run whose rows are held in memory.
type opened struct {
	mu      sync.Mutex
	id      string
	curves  *curves.Curves
	reading bool // a goroutine reads on
}

// maxOpen is how many runs' rows are in memory at a time, about 4 MB each at most.
const maxOpen = 16

// Open returns the board of some folders. It reads nothing yet.
func Open(opt Options) *Board {
	b := &Board{opt: opt, runs: map[string]*entry{}, sweeps: map[string]*sweepEntry{}, folders: map[string]folder{},
		version: time.Now().UnixMilli(), reading: 1}
	for _, root := range opt.Roots {
		if absolute, err := filepath.Abs(root); err == nil {
			root = absolute
		}
		if !slices.Contains(b.roots, root) {
			b.roots = append(b.roots, root)
		}
	}
	return b
}

// idOf names a folder in addresses: no path is ever taken from one.
func idOf(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:6])
}

// shown is a folder's path for readers: below its root, with the root's name where there are several.
func (b *Board) shown(dir string) string {
	for _, root := range b.roots {
		relative, err := filepath.Rel(root, dir)
		if err != nil || relative == ".." || strings.HasPrefix(relative, ".."+string(filepath.Separator)) {
			continue
		}
		if relative == "." {
			return filepath.Base(root)
		}
		if len(b.roots) > 1 {
			return filepath.Join(filepath.Base(root), relative)
		}
		return relative
	}
	return dir
}

// run returns what is known of a run.
func (b *Board) run(id string) (entry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.runs[id]; e != nil {
		return *e, true
	}
	return entry{}, false
}

func (b *Board) sweep(id string) (sweepEntry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.sweeps[id]; s != nil {
		return *s, true
	}
	return sweepEntry{}, false
}

// atOnce is how many bytes of rows are read before an answer; of a long file the rest is read beside it.
const atOnce = 4 << 20

// rows brings a run's rows up to date and holds them for the call of do alone. complete is false while a long file is
// still being read.
func (b *Board) rows(id, dir string, do func(c *curves.Curves, complete bool)) error {
	b.openMu.Lock()
	at := slices.IndexFunc(b.open, func(o *opened) bool { return o.id == id })
	var o *opened
	if at >= 0 {
		o = b.open[at]
		b.open = slices.Delete(b.open, at, at+1)
	} else {
		o = &opened{id: id, curves: curves.New()}
	}
	b.open = append(b.open, o)
	if len(b.open) > maxOpen {
		b.open = slices.Delete(b.open, 0, 1)
	}
	b.openMu.Unlock()

	o.mu.Lock()
	defer o.mu.Unlock()
	more, err := o.curves.Update(dir, atOnce)
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) { // it went since the last look: what a page has of it stays there
		return refusal{404, "no such run"}
	}
	if more && !o.reading {
		o.reading = true
		go o.readOn(dir)
	}
	do(o.curves, !more)
	return nil
}

// readOn reads a long file to its end, and lets others look at what there is in between.
func (o *opened) readOn(dir string) {
	for more := true; more; {
		o.mu.Lock()
		var err error
		more, err = o.curves.Update(dir, atOnce)
		if more = more && err == nil; !more {
			o.reading = false
		}
		o.mu.Unlock()
	}
}
