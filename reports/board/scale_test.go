package board

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"fulcrum/internal/testkit/golden"
	"fulcrum/reports/curves"
	"fulcrum/reports/record"
)

// size returns what make test takes, or the size that the board promises.
func size(short, full int) int {
	if testing.Short() {
		return short
	}
	return full
}

// promised is a time that the board promises. make test, on a machine that may be slow and busy, only sees that there is an end.
func promised(d time.Duration) time.Duration {
	if testing.Short() {
		return patience
	}
	return d
}

// heap returns the memory in use, in MB.
func heap() float64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse+m.StackInuse) / 1e6
}

func TestScaleOfRuns(t *testing.T) {
	root, n := t.TempDir(), size(1000, 10000)
	finishedRun(t, filepath.Join(root, "first"), 0.1)
	whole, err := record.ReadSummary(filepath.Join(root, "first"))
	if err != nil {
		t.Fatal(err)
	}
	whole.Evaluations = slices.Repeat(whole.Evaluations, 20) // 30 kB, as a run of two phases has
	summary, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	rows := stepRows("rce", 1, 10, 0)
	for i := range n - 1 {
		golden.Write(t, filepath.Join(root, fmt.Sprintf("day%02d", i%50), fmt.Sprint(i)), map[string]string{configFile: config,
			record.MetricsFile: rows, record.SummaryFile: string(summary)})
	}
	before := heap()
	b := boardOf(root)
	begin := time.Now()
	b.Scan(false)
	first := time.Since(begin)
	if n := len(b.list(0, 0).Runs); n < 2 {
		t.Errorf("the first look shows %d runs", n)
	}
	begin = time.Now()
	b.Scan(true)
	read := time.Since(begin)
	begin = time.Now()
	b.Scan(true)
	again := time.Since(begin)
	if got := len(b.list(0, 0).Runs); got != n || b.reading != 0 {
		t.Errorf("%d runs, %d not read; want %d and 0", got, b.reading, n)
	}
	used := heap()
	runtime.KeepAlive(b)
	b = boardOf(root)
	begin = time.Now()
	b.Scan(false)
	list := b.list(0, 0)
	indexed := time.Since(begin)
	if len(list.Runs) != n || list.Reading != 0 {
		t.Errorf("with the index: %d runs, %d not read; want all %d at once", len(list.Runs), list.Reading, n)
	}
	t.Logf("%d runs: first answer %v, all read %v, nothing new %v, with the index %v; %.0f MB", n, first, read, again, indexed, used)
	if limit := promised(time.Second); first > limit || indexed > limit || used > 300 {
		t.Errorf("first answer %v, with the index %v, %.0f MB: want less than a second and 300 MB", first, indexed, used)
	}
	if each := (used - before) * 1e3 / float64(n); each > 5 {
		t.Errorf("%.1f kB a run, want at most 5: something of its summary is kept", each)
	}
}

func TestScaleOfSteps(t *testing.T) {
	dir, n := t.TempDir(), size(60000, 1000000)
	f, err := os.Create(filepath.Join(dir, record.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	for i := 1; i <= n; i++ {
		fmt.Fprintf(w, `{"kind":"step","phase":"grpo","epoch":1,"step":%d,"global_step":%d,"time":%d.123,"loss":0.123456789`,
			i, i, i)
		for k := range 25 {
			fmt.Fprintf(w, `,"metric_%d":0.%d`, k, 1234567+i*k%977)
		}
		fmt.Fprintln(w, "}")
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	golden.Write(t, dir, map[string]string{configFile: config})
	b := boardOf(dir, dir)
	begin := time.Now()
	b.Scan(false)
	first := time.Since(begin)
	id := idOf(dir)
	begin = time.Now()
	answers, longest := 0, time.Duration(0)
	for complete := false; !complete; answers++ {
		at := time.Now()
		a, err := b.curves(id, url.Values{})
		if err != nil {
			t.Fatal(err)
		}
		complete, longest = a.Complete, max(longest, time.Since(at))
	}
	whole := time.Since(begin)
	used := heap()
	row := fmt.Sprintf(`{"kind":"step","phase":"grpo","epoch":1,"step":1,"global_step":%d,"time":1,"loss":99}`+"\n", n+1)
	if f, err = os.OpenFile(filepath.Join(dir, record.MetricsFile), os.O_APPEND|os.O_WRONLY, 0); err == nil {
		_, err = f.WriteString(row)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	begin = time.Now()
	a, err := b.curves(id, url.Values{"points": {"600"}})
	update := time.Since(begin)
	if err != nil || a.Steps.Steps[len(a.Steps.Steps)-1] != int64(n+1) {
		t.Errorf("the new row is not shown (%v)", err)
	}
	_, err = os.Stat(filepath.Join(dir, curves.IndexFolder, "curves.idx"))
	if (err == nil) != (n*300 > 8<<20) {
		t.Errorf("the index beside the file: %v", err)
	}
	t.Logf("%d steps: first look %v, all read in %d answers and %v (the longest %v), a new row %v; %.0f MB", n, first, answers,
		whole,
		longest, update, used)
	if limit := promised(time.Second); first > limit || longest > 2*limit || update > limit || used > 300 {
		t.Error("want a first look within 1 s, answers within 2 s, a new row within 1 s, and 300 MB")
	}
}
