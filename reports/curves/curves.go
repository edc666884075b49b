// Package curves reads metrics.jsonl into series of bounded size, which keep minima and maxima, while it grows.
//
//	c := curves.New()
//	_, err := c.Update(dir, math.MaxInt64)
//	points := curves.DrawnOf(c.Steps, nil, 600, false)
package curves

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/regular"
	"fulcrum/reports/record"
)

const (
	IndexFolder = ".board"
	indexFile   = "curves.idx"
	// indexVersion changes when an index of before cannot be read any more.
	indexVersion = 4
	// indexEvery is how many bytes of rows are read before the index is written again. Less is read in no time.
	indexEvery = 8 << 20
	tailBytes  = 256
	maxEvents  = 2000
	maxRow     = 1 << 20 // bytes of a line; a longer one is damage
)

// Curves is what metrics.jsonl holds, in bounded memory.
type Curves struct {
	Version int
	Offset  int64  // bytes that were read: whole lines
	Tail    []byte // the last of them: a file that was cut and goes on is another one
	Steps   *Series
	Epochs  *Series
	Phases  []Span
	Evals   [][]byte // rows of kind eval, as written
	Events  [][]byte
	Damaged int // lines that are no rows
	Started float64
	Updated float64 // time of the last row
	Paused  float64 // seconds between its attempts
	Unsaved bool    // no index is written beside the rows
	saved   int64
}

// Span is where a phase lies on the axis of global steps.
type Span struct {
	Name   string `json:"name"`
	From   int64  `json:"from"`
	To     int64  `json:"to"`
	Epochs int    `json:"epochs"`
	Steps  int    `json:"steps"`
	Epoch  int    `json:"-"` // of its last row, as Step: within the phase
	Step   int    `json:"-"`
	// Began and EpochEnd are the times of the phase's first row and of its last epoch's row.
	Began    float64 `json:"-"`
	EpochEnd float64 `json:"-"`
	ToEpoch  int64   `json:"-"` // global step of the last epoch's end
}

// New returns the curves of a file of which nothing is read yet.
func New() *Curves {
	return &Curves{Version: indexVersion, Steps: newSeries(), Epochs: newSeries()}
}

// Update reads what has been added to metrics.jsonl, at most limit bytes of it, and reports whether there is more.
func (c *Curves) Update(dir string, limit int64) (more bool, err error) {
	f, err := regular.Open(filepath.Join(dir, record.MetricsFile))
	if errors.Is(err, os.ErrNotExist) {
		*c = *New()
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false, err
	}
	if c.Offset == 0 {
		c.load(dir)
	}
	if !c.continues(f, info.Size()) {
		*c = *New()
	}
	end := min(info.Size(), c.Offset+limit)
	if err := c.read(f, end); err != nil {
		return false, err
	}
	if c.Offset-c.saved > indexEvery && !c.Unsaved {
		c.save(dir)
	}
	return end < info.Size(), nil
}

// EventRows are the events that were read, but for those that are no rows.
func (c *Curves) EventRows() []record.Row { return rowsOf(c.Events) }

// EvalRows are the evaluations that were read, but for those that are no rows.
func (c *Curves) EvalRows() []record.Row { return rowsOf(c.Evals) }

func rowsOf(lines [][]byte) []record.Row {
	var rows []record.Row
	for _, line := range lines {
		if row, err := record.ParseRow(line); err == nil {
			rows = append(rows, row)
		}
	}
	return rows
}

// continues says whether the file still holds what was read of it: a resume cuts rows off.
func (c *Curves) continues(f *os.File, size int64) bool {
	if c.Offset == 0 {
		return true
	}
	tail := make([]byte, len(c.Tail))
	if size < c.Offset {
		return false
	}
	_, err := f.ReadAt(tail, c.Offset-int64(len(tail)))
	return err == nil && bytes.Equal(tail, c.Tail)
}

// read adds the whole lines up to byte end, and the one that goes beyond it.
func (c *Curves) read(f *os.File, end int64) error {
	if _, err := f.Seek(c.Offset, io.SeekStart); err != nil {
		return err
	}
	in := bufio.NewReaderSize(f, 1<<18)
	var row flatRow
	begin := c.Offset
	for c.Offset < end {
		line, length, whole, err := ReadLine(in)
		if err != nil {
			return err
		}
		if !whole {
			break // a torn end: the rest comes later
		}
		c.add(&row, line, c.Offset)
		c.Offset += length
	}
	if c.Offset > begin {
		c.Tail = make([]byte, min(tailBytes, c.Offset))
		if _, err := f.ReadAt(c.Tail, c.Offset-int64(len(c.Tail))); err != nil {
			return err
		}
	}
	return nil
}

// maxSkipped is how many bytes a line may have that is passed over: what is longer is no file of lines.
const maxSkipped = 4 * regular.Document

// ReadLine returns a line with its length in the file. Of one that is too long it returns nothing but the length.
func ReadLine(in *bufio.Reader) (line []byte, length int64, whole bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		length += int64(len(part))
		switch {
		case err == nil && line == nil:
			return part, length, true, nil
		case err == nil || errors.Is(err, bufio.ErrBufferFull):
			if length <= maxRow {
				line = append(line, part...)
			} else {
				line = []byte{}
			}
			if length > maxSkipped {
				return nil, length, false, fmt.Errorf("a line of more than %d bytes", maxSkipped)
			}
			if err == nil {
				return line, length, true, nil
			}
		case errors.Is(err, io.EOF):
			return nil, length, false, nil
		default:
			return nil, length, false, err
		}
	}
}

func (c *Curves) add(row *flatRow, line []byte, at int64) {
	if row.parse(line) != nil {
		if len(bytes.TrimSpace(line)) > 0 {
			c.Damaged++
		}
		return
	}
	if n := len(c.Phases); n > 0 && string(row.kind) == record.KindEvent && bytes.Contains(line, []byte(`"event":"resume"`)) {
		c.Phases[n-1].Began += row.time - c.Updated // nothing was computed between the attempts
		c.Paused += row.time - c.Updated
	}
	if row.time > 0 {
		c.Started = cmp.Or(c.Started, row.time)
		c.Updated = row.time
	}
	switch string(row.kind) {
	case record.KindStep:
		c.Steps.add(row, at)
		c.phase(row, true)
	case record.KindEpoch:
		if c.Epochs.Rows == 0 {
			c.start(row, at)
		}
		c.Epochs.add(row, at)
		c.phase(row, false)
	case record.KindEval:
		c.Evals = keep(c.Evals, line)
	case record.KindEvent:
		c.Events = keep(c.Events, line)
	}
}

// start puts what the initial policy scored on validation before the first epoch, of the metrics that this has.
func (c *Curves) start(first *flatRow, at int64) {
	rows := c.EvalRows()
	i := slices.IndexFunc(rows, func(e record.Row) bool { return e.Text("split") == "val" && e.Text("policy") == record.PolicyInit })
	if i < 0 || int64(rows[i].GlobalStep) >= first.step {
		return
	}
	row := flatRow{step: int64(rows[i].GlobalStep), time: rows[i].Time}
	for _, name := range first.names {
		if of, val := strings.CutPrefix(string(name), "val_"); val {
			if x, ok := rows[i].Number(of); ok {
				row.names, row.values = append(row.names, name), append(row.values, x)
			}
		}
	}
	c.Epochs.add(&row, at)
}

// keep adds a line; of too many the oldest go.
func keep(lines [][]byte, line []byte) [][]byte {
	if len(lines) == maxEvents {
		lines = slices.Delete(lines, 0, maxEvents/10)
	}
	return append(lines, bytes.Clone(line))
}

func (c *Curves) phase(row *flatRow, step bool) {
	n := len(c.Phases)
	if n == 0 || c.Phases[n-1].Name != string(row.phase) {
		if n == maxMetrics {
			return
		}
		before := row.time
		if n > 0 {
			before = c.Updated
		}
		c.Phases = append(c.Phases, Span{Name: string(row.phase), From: row.step, Began: before})
		n++
	}
	p := &c.Phases[n-1]
	p.To, p.Epoch, p.Step = max(p.To, row.step), row.epoch, row.own
	if step {
		p.Steps++
	} else {
		p.Epochs++
		p.EpochEnd, p.ToEpoch = row.time, row.step
	}
}

// load takes the index beside the file; without a good one the file is read from its start.
func (c *Curves) load(dir string) {
	data, err := regular.ReadDocument(filepath.Join(dir, IndexFolder, indexFile))
	if err != nil {
		return
	}
	var saved Curves
	if gob.NewDecoder(bytes.NewReader(data)).Decode(&saved) != nil || saved.Version != indexVersion ||
		saved.Steps == nil || saved.Epochs == nil || !saved.Steps.sound() || !saved.Epochs.sound() {
		return
	}
	saved.Steps.restore()
	saved.Epochs.restore()
	saved.saved = saved.Offset
	*c = saved
}

// sound says whether a series that was read from a file is one.
func (s *Series) sound() bool {
	n := len(s.First)
	if s.Width < 1 || s.Rows < 0 || n > Capacity || n != (s.Rows+s.Width-1)/s.Width {
		return false
	}
	if len(s.Last) != n || len(s.Time) != n || len(s.At) != n || len(s.Hist) != n || len(s.Names) != len(s.Cols) {
		return false
	}
	return !slices.ContainsFunc(s.Cols, func(c *Column) bool {
		m := len(c.N)
		return m > n || len(c.Min) != m || len(c.Max) != m || len(c.Sum) != m || len(c.Bad) != m
	})
}

// save writes the index. Where the folder cannot be written there is none.
func (c *Curves) save(dir string) {
	var data bytes.Buffer
	if gob.NewEncoder(&data).Encode(c) == nil && atomicfile.WriteIn(filepath.Join(dir, IndexFolder), indexFile, data.Bytes()) == nil {
		c.saved = c.Offset
	}
}

// Window reads the rows of global steps from to to again, in finer buckets than the index has.
func (c *Curves) Window(dir string, from, to int64) (*Series, error) {
	low, high := c.Steps.Between(from, to)
	if low == high {
		return c.Steps.Cut(low, high), nil
	}
	end := c.Offset
	if high < len(c.Steps.At) {
		end = c.Steps.At[high]
	}
	f, err := regular.Open(filepath.Join(dir, record.MetricsFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fine := New()
	fine.Offset = c.Steps.At[low]
	if err := fine.read(f, end); err != nil {
		return nil, err
	}
	low, high = fine.Steps.Between(from, to)
	return fine.Steps.Cut(low, high), nil
}
