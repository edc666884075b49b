package record

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// tfEvent is what a reader of event files sees: enough of tensorboard's event.proto.
type tfEvent struct {
	wall    float64
	step    int64
	version string
	start   bool
	scalars map[string]float32
	histos  map[string]map[int][]byte
}

// readEvents follows the TFRecord format and checks both checksums of every record.
func readEvents(t *testing.T, path string) []tfEvent {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	masked := func(b []byte) uint32 {
		c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
		return (c>>15 | c<<17) + 0xa282ead8
	}
	var events []tfEvent
	for len(data) > 0 {
		n := binary.LittleEndian.Uint64(data)
		if got := binary.LittleEndian.Uint32(data[8:]); got != masked(data[:8]) {
			t.Fatalf("record %d: bad checksum of the length", len(events))
		}
		body := data[12 : 12+n]
		if got := binary.LittleEndian.Uint32(data[12+n:]); got != masked(body) {
			t.Fatalf("record %d: bad checksum of the data", len(events))
		}
		data = data[16+n:]
		e := tfEvent{scalars: map[string]float32{}, histos: map[string]map[int][]byte{}}
		for field, value := range fieldsOf(t, body) {
			switch field {
			case 1:
				e.wall = math.Float64frombits(binary.LittleEndian.Uint64(value[0]))
			case 2:
				e.step = int64(binary.LittleEndian.Uint64(value[0]))
			case 3:
				e.version = string(value[0])
			case 7:
				e.start = bytes.Equal(value[0], []byte{1 << 3, 1})
			case 5:
				for _, v := range fieldsOf(t, value[0])[1] {
					f := fieldsOf(t, v)
					if x, ok := f[2]; ok {
						e.scalars[string(f[1][0])] = math.Float32frombits(binary.LittleEndian.Uint32(x[0]))
					} else {
						h := map[int][]byte{}
						for k, x := range fieldsOf(t, f[5][0]) {
							h[k] = x[0]
						}
						e.histos[string(f[1][0])] = h
					}
				}
			default:
				t.Fatalf("unknown event field %d", field)
			}
		}
		events = append(events, e)
	}
	return events
}

// fieldsOf splits a protobuf message; varints come as eight bytes.
func fieldsOf(t *testing.T, b []byte) map[int][][]byte {
	t.Helper()
	out := map[int][][]byte{}
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		b = b[n:]
		field := int(key >> 3)
		switch key & 7 {
		case 0:
			v, n := binary.Uvarint(b)
			out[field] = append(out[field], binary.LittleEndian.AppendUint64(nil, v))
			b = b[n:]
		case 1:
			out[field] = append(out[field], b[:8])
			b = b[8:]
		case 2:
			size, n := binary.Uvarint(b)
			out[field] = append(out[field], b[n:n+int(size)])
			b = b[n+int(size):]
		case 5:
			out[field] = append(out[field], b[:4])
			b = b[4:]
		default:
			t.Fatalf("wire type %d", key&7)
		}
	}
	return out
}

func TestTensorBoardEvents(t *testing.T) {
	dir := t.TempDir()
	log := OpenTestLog(t, dir, &bytes.Buffer{}, nil)
	Record(t, log, KindStep, "grpo", 1, 3, 300, map[string]any{"loss": 0.5, "kl": math.NaN(), "top_k": 3, "note": "no scalar",
		"adv_hist": []float64{2, 1}})
	Record(t, log, KindEpoch, "grpo", 1, 3, 300, map[string]any{"val_reward": 0.25})
	Record(t, log, KindEval, "", 0, 0, 0, map[string]any{"split": "dev", "policy": "similarity", "reward": 0.0841})
	Record(t, log, KindEvent, "grpo", 1, 3, 300, map[string]any{"message": "not for TensorBoard"})
	log.Close()
	files, _ := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	if len(files) != 1 {
		t.Fatalf("event files %v", files)
	}
	events := readEvents(t, files[0])
	if len(events) != 4 || events[0].version != "brain.Event:2" {
		t.Fatalf("got %d events, first version %q; want 4 and brain.Event:2", len(events), events[0].version)
	}
	step := events[1]
	if step.step != 300 || step.wall < 1740830400 || step.scalars["grpo/train/loss"] != 0.5 || step.scalars["grpo/train/top_k"] != 3 ||
		!math.IsNaN(float64(step.scalars["grpo/train/kl"])) || len(step.scalars) != 3 {
		t.Errorf("step event %+v", step)
	}
	h := step.histos["grpo/train/adv_hist"]
	if math.Float64frombits(binary.LittleEndian.Uint64(h[3])) != 3 || math.Float64frombits(binary.LittleEndian.Uint64(h[4])) != -2.5 ||
		len(h[6]) != 16 || len(h[7]) != 16 {
		t.Errorf("histogram %v: want 3 values that add up to -2.5 in two buckets", h)
	}
	if events[2].scalars["grpo/epoch/val_reward"] != 0.25 || events[3].scalars["eval/dev/similarity/reward"] != 0.0841 {
		t.Errorf("epoch %+v, eval %+v", events[2], events[3])
	}
}

// TestEventFilesInOrderWhateverTheClock: a resume with a clock that was set back writes behind the earlier file, by name.
func TestEventFilesInOrderWhateverTheClock(t *testing.T) {
	dir := t.TempDir()
	var last string
	for i, year := range []int{2025, 1969, 2024, 2031, 2026} {
		log, err := OpenLog(dir, LogOptions{LoggingOptions: DefaultLoggingOptions(),
			Restored: &Position{Phase: "rce", Epoch: 1, GlobalStep: 40, Rows: 0},
			Stderr:   &bytes.Buffer{}, Now: func() time.Time { return time.Date(year, 3, 2, 0, 0, 0, 0, time.UTC) }})
		if err != nil {
			t.Fatal(err)
		}
		log.Close()
		files, _ := filepath.Glob(filepath.Join(dir, EventFilesPattern)) // sorted by name
		if len(files) != i+1 || last != "" && files[i-1] != last {
			t.Fatalf("year %d: %v, want the new file behind %s", year, files, last)
		}
		last = files[i]
	}
}

// TestSteadyClock: it goes on from the time of now and never back.
func TestSteadyClock(t *testing.T) {
	now := steadyClock()
	before := time.Now()
	first := now()
	if d := first.Sub(before); d < -time.Minute || d > time.Minute {
		t.Errorf("it says %v at %v", first, before)
	}
	for range 1000 {
		next := now()
		if next.Round(0).Before(first.Round(0)) { // the times without their monotonic part
			t.Fatalf("%v after %v", next, first)
		}
		first = next
	}
}

func TestResumedEventsTellTensorBoardWhatToForget(t *testing.T) {
	dir := t.TempDir()
	OpenTestLog(t, dir, &bytes.Buffer{}, nil).Close()
	log, err := OpenLog(dir, LogOptions{LoggingOptions: DefaultLoggingOptions(),
		Restored: &Position{Phase: "rce", Epoch: 1, Step: 30, GlobalStep: 40, Rows: 0},
		Stderr:   &bytes.Buffer{}, Now: func() time.Time { return time.Date(2025, 3, 2, 0, 0, 0, 0, time.UTC) }})
	if err != nil {
		t.Fatal(err)
	}
	log.Close()
	if rows, _ := os.ReadFile(filepath.Join(dir, MetricsFile)); !strings.Contains(string(rows), `"epoch":1,"step":30,"global_step":40`) {
		t.Errorf("the event of the resume is not at the phase's step: %s", rows)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	if len(files) != 2 {
		t.Fatalf("event files %v, want the old and the new", files)
	}
	events := readEvents(t, files[1])
	if len(events) != 2 || !events[1].start || events[1].step != 41 {
		t.Errorf("got %+v, want a session start at step 41", events)
	}
}
