package verify

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/regular"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// eventFiles are the scalars that a run wrote for TensorBoard, all sittings in order.
type eventFiles struct {
	all     []*scalarEvent
	byTime  map[eventKey][]*scalarEvent
	matched int
}

// eventKey finds the event of a row.
type eventKey struct {
	milliseconds int64 // since 1970
	step         int64
}

// scalarEvent is one record with values: those of a row.
type scalarEvent struct {
	file   string
	number int // of the record in its file, from 1
	step   int64
	values map[string]float32
	lists  map[string][]float64 // counts of histograms
	used   bool
	forgot bool // a later sitting starts before it
}

// readEventFiles reads every events.out.tfevents file of a run folder, nil when there is none.
func readEventFiles(dir string) (*eventFiles, error) {
	paths, err := regular.Glob(dir, record.EventFilesPattern)
	if err != nil || len(paths) == 0 {
		return nil, err
	}
	slices.Sort(paths) // as TensorBoard does
	f := &eventFiles{byTime: map[eventKey][]*scalarEvent{}}
	for i, path := range paths {
		if err := f.read(path, i < len(paths)-1); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// read adds the records of a file. The last one of a file that a later sitting follows may be torn.
func (f *eventFiles) read(path string, mayBeTorn bool) error {
	data, err := regular.ReadFile(path)
	if err != nil {
		return err
	}
	w := record.EventWriter{Crc: record.Castagnoli()}
	for n := 1; len(data) > 0; n++ {
		payload, rest, err := w.Record(data)
		if err != nil {
			if mayBeTorn && errors.Is(err, record.ErrTornRecord) {
				return nil
			}
			return fmt.Errorf("%s: record %d: %w", path, n, err)
		}
		data = rest
		if err := f.add(filepath.Base(path), n, payload); err != nil {
			return fmt.Errorf("%s: record %d: %w", path, n, err)
		}
	}
	return nil
}

// add reads Event{wall_time = 1, step = 2, summary = 5, session_log = 7}.
func (f *eventFiles) add(file string, number int, payload []byte) error {
	e := &scalarEvent{file: file, number: number, values: map[string]float32{}, lists: map[string][]float64{}}
	var wall float64
	var summary []byte
	starts := false
	err := eachField(payload, func(field int, number uint64, data []byte) error {
		switch field {
		case 1:
			wall = math.Float64frombits(number)
		case 2:
			e.step = int64(number)
		case 5:
			summary = data
		case 7:
			starts = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	if starts { // SessionLog START: what was written for this step and later ones is forgotten
		for _, old := range f.all {
			old.forgot = old.forgot || old.step >= e.step-1 // a state is saved after a step, and its evaluations follow at it
		}
		return nil
	}
	if summary == nil {
		return nil
	}
	if err := eachField(summary, func(_ int, _ uint64, value []byte) error { return e.value(value) }); err != nil {
		return err
	}
	f.all = append(f.all, e)
	key := eventKey{int64(math.Round(wall * 1000)), e.step}
	f.byTime[key] = append(f.byTime[key], e)
	return nil
}

// value reads Summary.Value{tag = 1, simple_value = 2, histo = 5}.
func (e *scalarEvent) value(data []byte) error {
	tag := ""
	return eachField(data, func(field int, number uint64, data []byte) error {
		switch field {
		case 1:
			tag = string(data)
		case 2:
			e.values[tag] = math.Float32frombits(uint32(number))
		case 5:
			return eachField(data, func(field int, _ uint64, data []byte) error {
				if field == 7 { // counts, packed
					for ; len(data) >= 8; data = data[8:] {
						e.lists[tag] = append(e.lists[tag], math.Float64frombits(binary.LittleEndian.Uint64(data)))
					}
				}
				return nil
			})
		}
		return nil
	})
}

// eachField calls do with every field of a protobuf message: a number, or bytes.
func eachField(b []byte, do func(field int, number uint64, data []byte) error) error {
	damaged := errors.New("not a protobuf message")
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			return damaged
		}
		b = b[n:]
		var number uint64
		var data []byte
		switch key & 7 {
		case 0:
			if number, n = binary.Uvarint(b); n <= 0 {
				return damaged
			}
		case 1:
			if n = 8; len(b) < n {
				return damaged
			}
			number = binary.LittleEndian.Uint64(b)
		case 2:
			length, m := binary.Uvarint(b)
			if m <= 0 || length > uint64(len(b)-m) {
				return damaged
			}
			data, n = b[m:m+int(length)], m+int(length)
		case 5:
			if n = 4; len(b) < n {
				return damaged
			}
			number = uint64(binary.LittleEndian.Uint32(b))
		default:
			return damaged
		}
		if err := do(int(key>>3), number, data); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// events compares a row with the scalars that were written beside it.
func (c *runCheck) events(f *eventFiles, row numberedRow, order record.MetricOrder) {
	names := sortedKeys(row.Fields)
	order.Sort(names)
	var tags []string
	for _, name := range names {
		_, number := row.Number(name)
		if number || name == "adv_hist" {
			tags = append(tags, name)
		}
	}
	if len(tags) == 0 {
		return
	}
	e := f.find(row, record.EventTag(row.Row, tags[0]))
	if e == nil {
		c.wrong(row, row.at(), page.Plural(len(tags), "number"), "no event of this time and step in events.out.tfevents.*")
		return
	}
	e.used = true
	f.matched++
	for _, name := range tags {
		tag := record.EventTag(row.Row, name)
		wrong := func(stated, recomputed string) {
			c.wrong(row, name+" of "+row.at(), stated, fmt.Sprintf("%s in %s, record %d", recomputed, e.file, e.number))
		}
		if x, ok := row.Number(name); ok {
			y, has := e.values[tag]
			if !has {
				wrong(exact(x), "nothing")
			} else if float32(x) != y && !(math.IsNaN(x) && y != y) {
				wrong(exact(x), exact(float64(y)))
			}
			delete(e.values, tag)
			continue
		}
		if list := row.Numbers(name); !slices.Equal(list, e.lists[tag]) {
			wrong(fmt.Sprint(list), fmt.Sprint(e.lists[tag]))
		}
	}
	for _, tag := range sortedKeys(e.values) { // what is left
		c.wrong(row, row.at(), "no "+tag, fmt.Sprintf("%s in %s, record %d", exact(float64(e.values[tag])), e.file, e.number))
	}
}

// find returns the event that was written with a row: its time and step, and its first tag.
func (f *eventFiles) find(row numberedRow, tag string) *scalarEvent {
	candidates := f.byTime[eventKey{int64(math.Round(row.Time * 1000)), int64(row.GlobalStep)}]
	for _, e := range candidates {
		_, scalar := e.values[tag]
		_, list := e.lists[tag]
		if !e.used && (scalar || list) {
			return e
		}
	}
	for _, e := range candidates { // the first field was removed or added
		if !e.used && strings.HasPrefix(tag, e.prefix()) {
			return e
		}
	}
	return nil
}

// prefix is what the tags of an event have in common: grpo/train/, eval/val/best/.
func (e *scalarEvent) prefix() string {
	for tag := range e.values {
		return tag[:strings.LastIndex(tag, "/")+1]
	}
	return "no tags"
}

// leftEvents finds events that no row has, where no resume explains them.
func (c *runCheck) leftEvents(f *eventFiles) {
	for _, e := range f.all {
		if !e.used && !e.forgot {
			c.mismatch(Mismatch{File: e.file, What: fmt.Sprintf("record %d", e.number), Stated: fmt.Sprintf("%s at step %d", e.prefix(), e.step),
				Recomputed: "no such row in " + record.MetricsFile})
		}
	}
}
