package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"fulcrum/internal/list"
	"fulcrum/internal/regular"
)

// TensorBoard's event files are TFRecords (length, masked CRC, payload, masked CRC) of protobuf
// messages. Six message types with a dozen fields are all that scalars and histograms need, so they
// are written by hand; field numbers are from its event.proto and summary.proto.

const EventFilesPattern = "events.out.tfevents.*"

// EventWriter appends to one events.out.tfevents file.
type EventWriter struct {
	f   *os.File
	buf []byte
}

// newEventWriter creates an event file in dir. restart > 0 says that the run goes on from that
// global step: TensorBoard then forgets what earlier files say about later steps.
func newEventWriter(dir string, now time.Time, restart int) (*EventWriter, error) {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "host"
	}
	old, err := regular.Glob(dir, EventFilesPattern)
	if err != nil {
		return nil, err
	}
	// TensorBoard reads the files of a folder in the order of their names: a clock that was set back must not change that.
	named := max(now.Unix(), 0)
	for _, path := range old {
		var of int64
		if _, err := fmt.Sscanf(filepath.Base(path), "events.out.tfevents.%d.", &of); err == nil {
			named = max(named, of+1)
		}
	}
	name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d.%d", named, host, os.Getpid(), now.Nanosecond())
	f, err := regular.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot write TensorBoard events: %w", err)
	}
	w := &EventWriter{f: f}
	version := AppendBytesField(nil, 3, []byte("brain.Event:2"))
	if err := w.Write(event(seconds(now), 0, version)); err != nil {
		return nil, err
	}
	if restart > 0 {
		session := AppendBytesField(nil, 7, AppendVarintField(nil, 1, 1)) // SessionLog{status: START}
		if err := w.Write(event(seconds(now), restart, session)); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// EventOf returns the event with a value for each number of r, at its time and global step; nil where it has none. Rows that are read
// back give the bytes that were written.
func EventOf(r Row, order MetricOrder) []byte {
	if r.Kind == KindEvent {
		return nil
	}
	names := slices.Collect(maps.Keys(r.Fields))
	order.Sort(names)
	var summary []byte
	for _, name := range names {
		tag := EventTag(r, name)
		if x, ok := r.Number(name); ok {
			summary = AppendBytesField(summary, 1, scalarValue(tag, x))
		} else if counts := r.Numbers(name); name == "adv_hist" && len(counts) > 0 {
			edges := list.Make(len(counts)+1, func(i int) float64 { return -5 + 10*float64(i)/float64(len(counts)) }) // equal bins over [-5, 5]
			summary = AppendBytesField(summary, 1, histogramValue(tag, counts, edges))
		}
	}
	if summary == nil {
		return nil
	}
	return event(r.Time, r.GlobalStep, AppendBytesField(nil, 5, summary))
}

// EachEvent calls do with the bytes of every event of a file. An error tells what is wrong with the n-th, counted from 1.
func EachEvent(data []byte, do func(payload []byte)) (n int, err error) {
	for n = 1; len(data) > 0; n++ {
		payload, rest, err := wholeRecord(data)
		if err != nil {
			return n, err
		}
		do(payload)
		data = rest
	}
	return n, nil
}

// EventTag names a scalar: grpo/train/loss, grpo/epoch/val_reward, eval/val/similarity/reward.
func EventTag(r Row, name string) string {
	switch r.Kind {
	case KindStep:
		return r.Phase + "/train/" + name
	case KindEpoch:
		return r.Phase + "/epoch/" + name
	case KindEval:
		return "eval/" + r.Text("split") + "/" + r.Text("policy") + "/" + name
	}
	return r.Kind + "/" + name
}

// Frame is a TFRecord: length, masked CRC, payload, masked CRC. It is overwritten by the next one.
func (w *EventWriter) Frame(payload []byte) []byte {
	b := binary.LittleEndian.AppendUint64(w.buf[:0], uint64(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, masked(b))
	b = append(b, payload...)
	w.buf = binary.LittleEndian.AppendUint32(b, masked(payload))
	return w.buf
}

func (w *EventWriter) Write(payload []byte) error {
	if _, err := w.f.Write(w.Frame(payload)); err != nil {
		return fmt.Errorf("cannot write TensorBoard events: %w", err)
	}
	return nil
}

// masked is TFRecord's checksum: CRC-32C, rotated and shifted so that a CRC of data with CRCs in it stays a good one.
func masked(b []byte) uint32 {
	crc := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return (crc>>15 | crc<<17) + 0xa282ead8
}

// event is Event{wall_time, step} with one further field.
func event(wall float64, step int, what []byte) []byte {
	b := appendDoubleField(nil, 1, wall)
	if step != 0 {
		b = AppendVarintField(b, 2, uint64(step))
	}
	return append(b, what...)
}

// scalarValue is Summary.Value{tag, simple_value}.
func scalarValue(tag string, x float64) []byte {
	b := AppendBytesField(nil, 1, []byte(tag))
	b = append(b, 2<<3|5)
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
}

// histogramValue is Summary.Value{tag, histo} of counts in bins; its sums take bin centres.
func histogramValue(tag string, counts, edges []float64) []byte {
	var n, sum, squares float64
	var limits, buckets []byte
	for i, count := range counts {
		centre := (edges[i] + edges[i+1]) / 2
		n += count
		sum += count * centre
		squares += count * centre * centre
		limits = appendDouble(limits, edges[i+1])
		buckets = appendDouble(buckets, count)
	}
	h := appendDoubleField(nil, 1, edges[0])
	h = appendDoubleField(h, 2, edges[len(edges)-1])
	h = appendDoubleField(h, 3, n)
	h = appendDoubleField(h, 4, sum)
	h = appendDoubleField(h, 5, squares)
	h = AppendBytesField(h, 6, limits)
	h = AppendBytesField(h, 7, buckets)
	b := AppendBytesField(nil, 1, []byte(tag))
	return AppendBytesField(b, 5, h)
}

func appendDouble(b []byte, x float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
}

func appendDoubleField(b []byte, field int, x float64) []byte {
	return appendDouble(append(b, byte(field<<3|1)), x)
}

// AppendVarintField appends a protobuf field that holds an integer.
func AppendVarintField(b []byte, field int, x uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(field)<<3), x)
}

// AppendBytesField appends a protobuf field that holds a text or a message.
func AppendBytesField(b []byte, field int, data []byte) []byte {
	b = binary.AppendUvarint(b, uint64(field)<<3|2)
	b = binary.AppendUvarint(b, uint64(len(data)))
	return append(b, data...)
}

// wholeRecord takes one TFRecord off data: length, masked CRC, payload, masked CRC.
func wholeRecord(data []byte) (payload, rest []byte, err error) {
	if len(data) < 12 {
		return nil, nil, ErrTornRecord
	}
	if binary.LittleEndian.Uint32(data[8:]) != masked(data[:8]) {
		return nil, nil, errors.New("the checksum of its length is wrong")
	}
	n := binary.LittleEndian.Uint64(data)
	if n > uint64(len(data)) || uint64(len(data)) < 16+n {
		return nil, nil, ErrTornRecord
	}
	payload = data[12 : 12+n]
	if binary.LittleEndian.Uint32(data[12+n:]) != masked(payload) {
		return nil, nil, errors.New("its checksum is wrong")
	}
	return payload, data[16+n:], nil
}

var ErrTornRecord = errors.New("the file ends in the middle of it")
