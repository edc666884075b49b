// Package wandb writes the rows of a run to a file that W&B's client uploads later. It needs neither network nor account.
//
//	file, err := wandb.Open(tracker.Run{Dir: dir, Name: "okvqa_v3", Logging: record.LoggingOptions{WandB: true}})
//	log.Mirror(file)
//	err = file.Close(tracker.End{State: record.StateDone}) // afterwards: wandb sync DIR/wandb/offline-run-*
//
// The file holds W&B's records (protobuf messages, wandb/proto/wandb_internal.proto) in the framing of LevelDB's log
// (wandb/core/pkg/leveldb). It is a function of metrics.jsonl: a resumed run writes it anew from the rows that were kept and
// goes on, so that every row is in it once.
package wandb

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/regular"
	"fulcrum/reports/record"
	"fulcrum/reports/tracker"
)

// Numbers of Record's fields, and of what several messages share.
const (
	fieldHistory, fieldSummary, fieldMetric, fieldRun, fieldExit, fieldHeader = 2, 3, 12, 17, 18, 21
	fieldKey, fieldNestedKey, fieldJSON                                       = 1, 2, 16
)

// globalStep is what all metrics are drawn over. W&B's own step counts rows.
const globalStep = "global_step"

// File is a run's .wandb file.
type File struct {
	run    tracker.Run
	config map[string]string
	file   *os.File
	size   int // bytes so far
	num    int // records so far
	rows   int // history rows so far
	start  float64
	last   map[string]float64 // of every metric and of globalStep
	at     float64            // time of the last row
	err    error
}

// Open writes the rows that metrics.jsonl of the run has to its file, where logging.wandb asks for one. A folder that has a file
// already keeps its id.
func Open(run tracker.Run) (tracker.Sink, error) {
	if !run.Logging.WandB {
		return nil, nil
	}
	f := &File{run: run, last: map[string]float64{}}
	if err := f.open(); err != nil {
		return nil, fmt.Errorf("W&B: %w; this run is not logged for it", err)
	}
	return f, nil
}

func (f *File) open() error {
	path, err := pathOf(f.run.Dir)
	if err != nil {
		return err
	}
	if f.config, err = f.run.Params(); err != nil {
		return err
	}
	if f.file, err = os.Create(path); err != nil {
		return err
	}
	os.Remove(path + ".synced") // wandb sync leaves out what it believes to have sent
	err = record.EachRow(f.run.Dir, func(row record.Row) error {
		f.Row(row)
		return nil
	})
	return cmp.Or(err, f.err, atomicfile.SyncDir(filepath.Dir(path)))
}

// pathOf returns the run's file: the one that is there, else a new one with an id of 8 letters and digits.
func pathOf(dir string) (string, error) {
	there, err := regular.Glob(dir, "wandb/offline-run-*/run-*.wandb")
	if err != nil || len(there) > 0 {
		return strings.Join(there[:min(1, len(there))], ""), err
	}
	id := strings.ToLower(rand.Text()[:8])
	folder := filepath.Join(dir, "wandb", "offline-run-"+time.Now().Format("20060102_150405")+"-"+id)
	return filepath.Join(folder, "run-"+id+".wandb"), atomicfile.MkdirAll(folder)
}

// begin writes what the first row follows.
func (f *File) begin(at float64) {
	f.start, f.at = at, at
	id := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f.file.Name()), "run-"), ".wandb")
	header := append([]byte(":W&B"), 0xe1, 0xbe, 0) // magic, version
	f.write(header)
	version := record.AppendBytesField(nil, 1, []byte("0.31.0"))    // the client whose files these are like
	version = record.AppendBytesField(version, 2, []byte("0.70.0")) // the oldest server that reads them
	f.record(fieldHeader, record.AppendBytesField(nil, 1, version))

	var config []byte
	for _, key := range slices.Sorted(maps.Keys(f.config)) {
		var item []byte
		for _, part := range strings.Split(key, ".") {
			item = record.AppendBytesField(item, fieldNestedKey, []byte(part))
		}
		value := []byte(f.config[key])
		if !json.Valid(value) {
			value, _ = json.Marshal(f.config[key])
		}
		config = record.AppendBytesField(config, 1, record.AppendBytesField(item, fieldJSON, value))
	}
	var run []byte
	for _, text := range []struct {
		field int
		value string
	}{{1, id}, {2, os.Getenv("WANDB_ENTITY")}, {3, cmp.Or(os.Getenv("WANDB_PROJECT"), "fulcrum")}, {6, f.run.Sweep}, {8, f.run.Name}} {
		if text.value != "" {
			run = record.AppendBytesField(run, text.field, []byte(text.value))
		}
	}
	run = record.AppendBytesField(run, 4, config)
	seconds, part := math.Modf(f.start)
	begun := record.AppendVarintField(nil, 1, uint64(seconds))
	begun = record.AppendVarintField(begun, 2, uint64(math.Round(part*1e3))*1e6)
	f.record(fieldRun, record.AppendBytesField(run, 17, begun))
}

// Row appends a row's finite numbers under their TensorBoard names. A metric is drawn over global steps, which is said when
// it comes first.
func (f *File) Row(r record.Row) {
	if f.err != nil || r.Kind == record.KindEvent {
		return
	}
	if f.num == 0 {
		f.begin(r.Time)
	}
	values := map[string]float64{}
	for name := range r.Fields {
		if x, ok := r.Number(name); ok && !math.IsNaN(x) && !math.IsInf(x, 0) {
			values[record.EventTag(r, name)] = x
		}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if _, known := f.last[key]; !known {
			metric := record.AppendBytesField(nil, 1, []byte(key))
			metric = record.AppendBytesField(metric, 4, []byte(globalStep))
			f.record(fieldMetric, record.AppendBytesField(metric, 6, record.AppendVarintField(nil, 3, 1))) // options: defined
		}
	}
	values[globalStep] = float64(r.GlobalStep)
	maps.Copy(f.last, values)
	f.at = r.Time
	values["_step"], values["_timestamp"], values["_runtime"] = float64(f.rows), r.Time, r.Time-f.start
	history := items(values)
	f.record(fieldHistory, record.AppendBytesField(history, 2, record.AppendVarintField(nil, 1, uint64(f.rows))))
	f.rows++
}

// items are fields 1 of a history or a summary: keys with values as JSON.
func items(values map[string]float64) []byte {
	var b []byte
	for _, key := range slices.Sorted(maps.Keys(values)) {
		item := record.AppendBytesField(nil, fieldKey, []byte(key))
		b = record.AppendBytesField(b, 1, record.AppendBytesField(item, fieldJSON, record.AppendNumber(nil, values[key])))
	}
	return b
}

// Close writes the last value of every metric and how the run ended. It returns the first error of all writing: the run
// went on without this file.
func (f *File) Close(end tracker.End) error {
	if f.num == 0 {
		f.begin(float64(time.Now().UnixMilli()) / 1000)
	}
	code, known := map[string]uint64{record.StateDone: 0, record.StatePruned: 0, record.StateInterrupted: 130}[end.State]
	if !known {
		code = 1
	}
	runtime := f.at - f.start
	f.last["_runtime"], f.last["_timestamp"], f.last["_step"] = runtime, f.at, float64(max(f.rows-1, 0))
	f.record(fieldSummary, items(f.last))
	exit := record.AppendVarintField(nil, 1, code)
	f.record(fieldExit, record.AppendVarintField(exit, 2, uint64(runtime)))
	err := cmp.Or(f.err, f.file.Sync(), f.file.Close())
	if err != nil {
		err = fmt.Errorf("W&B: %w; metrics.jsonl has all rows", err)
	}
	return err
}

// record appends a Record with its number and one message. LevelDB's log is blocks of 32 KiB, W&B's header in the first. A
// record is one chunk or more, none across a border; a rest of a block too short for a chunk's header is zeros.
func (f *File) record(field int, message []byte) {
	const block, head = 1 << 15, 7
	payload := record.AppendBytesField(record.AppendVarintField(nil, 1, uint64(f.num)), field, message)
	f.num++
	var out []byte
	for first := true; first || len(payload) > 0; first = false {
		room := block - (f.size+len(out))%block
		if room < head {
			out = append(out, make([]byte, room)...)
			room = block
		}
		part := payload[:min(len(payload), room-head)]
		payload = payload[len(part):]
		kind := byte(1) // whole
		switch {
		case first && len(payload) > 0:
			kind = 2 // its first part
		case !first && len(payload) > 0:
			kind = 3
		case !first:
			kind = 4 // its last
		}
		crc := crc32.Update(crc32.ChecksumIEEE([]byte{kind}), crc32.IEEETable, part)
		out = binary.LittleEndian.AppendUint32(out, crc)
		out = binary.LittleEndian.AppendUint16(out, uint16(len(part)))
		out = append(append(out, kind), part...)
	}
	f.write(out)
}

func (f *File) write(b []byte) {
	if f.err == nil {
		_, f.err = f.file.Write(b)
		f.size += len(b)
	}
}
