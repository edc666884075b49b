package board

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/curves"
)

// writerRoot names in its environment the root whose index a process of TestIndexSurvivesKills writes until it is killed.
const writerRoot = "BOARD_TEST_WRITER_ROOT"

func TestIndexWriter(t *testing.T) {
	root := os.Getenv(writerRoot)
	if root == "" {
		t.Skip("the process of another test")
	}
	b := boardOf(root)
	b.Scan(true)
	for i := 0; ; i++ {
		for _, e := range b.runs {
			e.Overrides = make([]string, i%50) // now longer, now shorter: what is left of one would show in the next
		}
		b.saveIndex()
	}
}

// A board that is killed while it writes its index leaves a whole one, of before or of after, or none; the next board takes it, and it
// shows what a board without it shows.
func TestIndexSurvivesKills(t *testing.T) {
	root := t.TempDir()
	const runs = 40
	for i := range runs {
		finishedRun(t, filepath.Join(root, "day", strconv.Itoa(i)), float64(i)/100)
	}
	index := filepath.Join(root, curves.IndexFolder, runsIndex)
	whole, wait := 0, 20*time.Millisecond
	for range size(15, 150) {
		reportstest.Must(t, os.RemoveAll(filepath.Dir(index)))
		cmd := exec.Command(os.Args[0], "-test.run=^TestIndexWriter$")
		cmd.Env = append(os.Environ(), writerRoot+"="+root)
		reportstest.Must(t, cmd.Start())
		for begin := time.Now(); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(filepath.Dir(index)); err == nil || time.Since(begin) > patience {
				break
			}
		}
		time.Sleep(time.Duration(rand.Int64N(int64(wait))))
		reportstest.Must(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
		data, err := os.ReadFile(index)
		if os.IsNotExist(err) {
			if whole == 0 { // a slow disk
				wait = min(2*wait, 5*time.Second)
			}
			continue
		}
		var saved savedIndex
		if err := json.Unmarshal(data, &saved); err != nil || len(saved.Runs) != runs || saved.Version != indexVersion {
			t.Fatalf("an index of %d bytes with %d of %d runs: %v", len(data), len(saved.Runs), runs, err)
		}
		whole++
	}
	if whole == 0 {
		t.Fatal("no index was written before a kill")
	}
	want := shownBy(t, root)
	// What is not whole is as if it were not there.
	data, err := os.ReadFile(index)
	if os.IsNotExist(err) {
		b := boardOf(root)
		b.Scan(true)
		b.saveIndex()
		data, err = os.ReadFile(index)
	}
	reportstest.Must(t, err)
	for range size(20, 200) {
		reportstest.Must(t, os.WriteFile(index, data[:rand.IntN(len(data))], 0o644))
		if got := shownBy(t, root); got != want {
			t.Fatalf("with a cut index the board shows\n%s\nwant\n%s", got, want)
		}
	}
}

// shownBy is what a new board shows of each run, its overrides apart, of which the writer makes others.
func shownBy(t *testing.T, root string) string {
	t.Helper()
	b := boardOf(root)
	b.Scan(true)
	shown := map[string]entry{}
	for _, e := range b.list(0, 0).Runs {
		e.Version, e.Overrides = 0, nil
		shown[e.Path] = e
	}
	text, err := json.Marshal(shown)
	reportstest.Must(t, err)
	return string(text)
}
