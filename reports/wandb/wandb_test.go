package wandb

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fulcrum/reports/record"
	"fulcrum/reports/tracker"
)

// chunks takes a file of W&B's client apart: its records, put together from chunks. The format is that of
// wandb/core/pkg/leveldb/record.go; that the client itself reads the same is shown by scripts/peers/test_loggers.py.
func chunks(t *testing.T, data []byte) (records [][]byte) {
	t.Helper()
	if string(data[:7]) != ":W&B\xe1\xbe\x00" {
		t.Fatalf("header %q", data[:7])
	}
	for at := 7; at < len(data); {
		if rest := 1<<15 - at%(1<<15); rest < 7 {
			if !bytes.Equal(data[at:at+rest], make([]byte, rest)) {
				t.Fatalf("byte %d: the rest of the block is not zero", at)
			}
			at += rest
			continue
		}
		n, kind := int(binary.LittleEndian.Uint16(data[at+4:])), data[at+6]
		if (at%(1<<15))+7+n > 1<<15 {
			t.Fatalf("byte %d: a chunk of %d bytes crosses the border of its block", at, n)
		}
		if got, want := binary.LittleEndian.Uint32(data[at:]), crc32.ChecksumIEEE(data[at+6:at+7+n]); got != want {
			t.Fatalf("byte %d: checksum %x, want %x", at, got, want)
		}
		if kind == 1 || kind == 2 {
			records = append(records, nil)
		}
		last := len(records) - 1
		records[last] = append(records[last], data[at+7:at+7+n]...)
		at += 7 + n
	}
	return records
}

// fields are those of a protobuf message that hold texts and messages; integers are written out.
func fields(t *testing.T, message []byte) (numbers []int, values [][]byte) {
	t.Helper()
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		x, m := binary.Uvarint(message[n:])
		message = message[n+m:]
		value := []byte(fmt.Sprint(x))
		if tag&7 == 2 {
			value, message = message[:x], message[x:]
		} else if tag&7 != 0 {
			t.Fatalf("wire type %d", tag&7)
		}
		numbers, values = append(numbers, int(tag>>3)), append(values, value)
	}
	return numbers, values
}

// clock steps by a second a row.
type clock struct{ at time.Time }

func (c *clock) now() time.Time {
	c.at = c.at.Add(time.Second)
	return c.at
}

// write logs steps from..to and an epoch, as a run that starts or goes on from a state.
func write(t *testing.T, dir string, at *record.Position, c *clock, from, to int, long string) {
	t.Helper()
	opt := record.LogOptions{Restored: at, Stderr: io.Discard, Now: c.now}
	opt.LogEverySteps = 1
	log, err := record.OpenLog(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, ".hydra"), 0o755); err != nil {
		t.Fatal(err)
	}
	config := "grpo: {lr: 1e-4}\nschedule: [rce]\nlong: " + long + "\n"
	if err := os.WriteFile(filepath.Join(dir, ".hydra", "config.yaml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	file, err := Open(tracker.Run{Dir: dir, Name: "a run", Logging: record.LoggingOptions{WandB: true}})
	if err != nil {
		t.Fatal(err)
	}
	log.Mirror(file)
	for step := from; step <= to; step++ {
		c.at = time.Unix(1e9+int64(step), 250e6)
		row := map[string]any{"loss": 1 / float64(step), "kl": math.NaN(), "groups": step, "why": "text", "hist": []float64{1, 2}}
		if err := log.Record(record.KindStep, "rce", 1, step, step, row); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Record(record.KindEpoch, "rce", 1, to, to, map[string]any{"val_reward": 0.5}); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(tracker.End{State: record.StateDone}); err != nil {
		t.Fatal(err)
	}
	log.Close()
}

func read(t *testing.T, dir string) []byte {
	t.Helper()
	paths, _ := filepath.Glob(filepath.Join(dir, "wandb", "offline-run-*", "run-*.wandb"))
	if len(paths) != 1 {
		t.Fatalf("files %v, want one", paths)
	}
	data, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestEveryRowOnce(t *testing.T) {
	dir, long := t.TempDir(), strings.Repeat("x", 100_000) // more than three blocks
	write(t, dir, nil, &clock{time.Unix(1e9, 0)}, 1, 300, long)
	whole := read(t, dir)
	kinds := map[int]int{}
	var loss []string
	for i, r := range chunks(t, whole) {
		numbers, values := fields(t, r)
		if numbers[0] != 1 || string(values[0]) != fmt.Sprint(i) {
			t.Fatalf("record %d has the number %s", i, values[0])
		}
		kinds[numbers[1]]++
		if numbers[1] == fieldHistory {
			_, items := fields(t, values[1])
			for _, item := range items {
				if _, pair := fields(t, item); len(pair) == 2 && string(pair[0]) == "rce/train/loss" {
					loss = append(loss, string(pair[1]))
				}
			}
		}
	}
	want := map[int]int{fieldHeader: 1, fieldRun: 1, fieldMetric: 3, fieldHistory: 301, fieldSummary: 1, fieldExit: 1}
	for kind, n := range want {
		if kinds[kind] != n {
			t.Errorf("%d records of field %d, want %d", kinds[kind], kind, n)
		}
	}
	if len(loss) != 300 || loss[0] != "1" || loss[3] != "0.25" {
		t.Errorf("losses %d, %.60v", len(loss), loss)
	}

	// Cut off at step 120 and gone on: the same bytes, and what was uploaded is uploaded anew.
	synced, _ := filepath.Glob(filepath.Join(dir, "wandb", "*", "*.wandb"))
	if err := os.WriteFile(synced[0]+".synced", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	write(t, dir, &record.Position{Rows: 120, GlobalStep: 120, Phase: "rce", Epoch: 1}, &clock{time.Unix(2e9, 0)}, 121, 300, long)
	if again := read(t, dir); !bytes.Equal(again, whole) {
		t.Errorf("resumed: %d bytes, want the %d of a run that was never stopped", len(again), len(whole))
	}
	if _, err := os.Stat(synced[0] + ".synced"); !os.IsNotExist(err) {
		t.Error("wandb sync would leave the rest out")
	}
}
