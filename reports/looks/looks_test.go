package looks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"fulcrum/internal/digest"
	"fulcrum/internal/filelock"
	"fulcrum/reports/record"
	"fulcrum/reports/stats"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// at takes a look of a run and returns what its folder says.
func at(t *testing.T, ledger, owner, dir, metric, digest string) record.Look {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	must(t, Take(ledger, owner, dir, record.Look{Split: "dev", Metric: metric, Digest: digest}, ""))
	l, err := record.ReadLooks(dir)
	must(t, err)
	return *l.At("dev", metric)
}

func TestPath(t *testing.T) {
	mine := "mine.jsonl"
	for _, tc := range []struct {
		name, dir string
		set       *string
		want      string
	}{
		{"the default folder", "/w/outputs/2026-01-02/10-11-12", nil, "/w/outputs/looks.jsonl"},
		{"a folder of one's own", "/w/outputs/mine", nil, "/w/outputs/looks.jsonl"},
		{"a sweep shares the ledger of the runs", "/w/multirun/2026-01-02/10-11-12", nil, "/w/outputs/looks.jsonl"},
		{"evidence.ledger wins", "/w/outputs/mine", &mine, "mine.jsonl"},
	} {
		if got := Path(tc.set, tc.dir); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestLooksAreCountedByQuestions(t *testing.T) {
	root := t.TempDir()
	ledger := filepath.Join(root, "looks.jsonl")
	dir := func(name string) string { return filepath.Join(root, name) }
	for _, tc := range []struct {
		name, owner, dir, metric, digest string
		want                             int
	}{
		{"the first run", "a", "a", "reward", "x", 1},
		{"another metric is another look", "a", "a", "accuracy", "x", 2},
		{"another run", "b", "b", "reward", "x", 3},
		{"other questions", "c", "c", "reward", "y", 1},
		{"what a folder says stays", "a", "a", "reward", "x", 1},
		{"a sweep", "s", "s/0", "reward", "x", 4},
		{"its second job has the same look", "s", "s/1", "reward", "x", 4},
		{"a run after the sweep", "d", "d", "reward", "x", 5},
	} {
		got := at(t, ledger, dir(tc.owner), dir(tc.dir), tc.metric, tc.digest)
		if got.Look != stats.LookAt(tc.want) || got.Missing != "" {
			t.Errorf("%s: %+v, want look %d", tc.name, got, tc.want)
		}
	}
	// Killed behind the line in the ledger: the run that goes on finds it.
	l, err := record.ReadLooks(dir("b"))
	must(t, err)
	l.Looks = nil
	must(t, write(dir("b"), l))
	if got := at(t, ledger, dir("b"), dir("b"), "reward", "x"); got.N != 3 {
		t.Errorf("resumed: look %d, want 3", got.N)
	}
}

// Sets with questions in common are one set that is looked at, also through a third; others, and old lines, are told by their digest.
// A run that repeats another, score by score, has its look; the jobs of sweeps, which say nothing of what they are, have not.
func TestARepeatedRunIsNoLook(t *testing.T) {
	root := t.TempDir()
	for i, tc := range []struct {
		run, same string
		want      int
	}{{"a", "x", 1}, {"b", "y", 2}, {"c", "x", 1}, {"d", "", 3}, {"e", "", 4}, {"f", "y", 2}} {
		dir := filepath.Join(root, tc.run)
		must(t, os.MkdirAll(dir, 0o755))
		must(t, Take(filepath.Join(root, "looks.jsonl"), dir, dir, record.Look{Split: "dev", Metric: "reward", Digest: "q", Same: tc.same}, ""))
		l, err := record.ReadLooks(dir)
		must(t, err)
		if got := l.Looks[0].Look; got != stats.LookAt(tc.want) {
			t.Errorf("run %d: %+v, want look %d", i, got, tc.want)
		}
	}
}

func TestLooksAreSharedByOverlap(t *testing.T) {
	root := t.TempDir()
	ledger := filepath.Join(root, "looks.jsonl")
	must(t, os.WriteFile(ledger, []byte("{\"id\":\"old\",\"metric\":\"reward\",\"digest\":\"0-1000\"}\n"), 0o644))
	for i, tc := range []struct {
		name     string
		from, to int // of the questions
		want     int
	}{
		{"the set of an old line", 0, 1000, 2},
		{"less one question", 0, 999, 3},
		{"a fifth of it", 400, 600, 4},
		{"questions of its own", 1000, 1500, 1},
		{"neighbours", 1500, 2000, 1},
		{"a tenth of each of the two", 1450, 1550, 3},
		{"the one again: the other belongs to it now", 1000, 1500, 4},
		{"the first set again", 0, 1000, 5},
	} {
		dir := filepath.Join(root, string(rune('a'+i)))
		must(t, os.MkdirAll(dir, 0o755))
		var questions []string
		for q := tc.from; q < tc.to; q++ {
			questions = append(questions, "question "+strconv.Itoa(q))
		}
		look := record.Look{Split: "dev", Metric: "reward", Digest: fmt.Sprintf("%d-%d", tc.from, tc.to), Sketch: digest.Sketch(questions)}
		for range 2 { // killed behind the line in the ledger, it finds its number again
			must(t, Take(ledger, dir, dir, look, ""))
			l, err := record.ReadLooks(dir)
			must(t, err)
			if l.Looks[0].N != tc.want {
				t.Errorf("%s: look %d, want %d", tc.name, l.Looks[0].N, tc.want)
			}
			l.Looks = nil
			must(t, write(dir, l))
		}
	}
}

func TestRunsAtOnceHaveLooksOfTheirOwn(t *testing.T) {
	root := t.TempDir()
	ledger := filepath.Join(root, "looks.jsonl")
	const runs = 20
	another, err := os.OpenFile(ledger, os.O_RDWR|os.O_CREATE, 0o644) // a run that writes while all others begin
	must(t, errors.Join(err, filelock.Take(another)))
	var wait sync.WaitGroup
	for i := range runs {
		wait.Go(func() {
			dir := filepath.Join(root, string(rune('a'+i)))
			if err := errors.Join(os.Mkdir(dir, 0o755), Take(ledger, dir, dir, record.Look{Split: "dev", Metric: "reward"}, "")); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	_, err = another.WriteString("{\"digest\": \"\"}\n")
	must(t, errors.Join(err, another.Close()))
	wait.Wait()
	seen := map[int]bool{}
	for i := range runs {
		l, err := record.ReadLooks(filepath.Join(root, string(rune('a'+i))))
		must(t, err)
		seen[l.At("dev", "reward").N] = true
	}
	for n := 2; n <= runs+1; n++ {
		if !seen[n] {
			t.Errorf("no run has look %d: %v", n, seen)
		}
	}
}

func TestNoLedgerIsNoError(t *testing.T) {
	root := t.TempDir()
	ledger := filepath.Join(root, "looks.jsonl")
	must(t, os.WriteFile(ledger, []byte("{\"digest\":\"x\"}\nnonsense\n"), 0o644))
	if got := at(t, ledger, filepath.Join(root, "a"), filepath.Join(root, "a"), "reward", "x"); got.N != 0 ||
		!strings.Contains(got.Missing, "looks.jsonl") {
		t.Errorf("a damaged ledger: %+v", got)
	}
	must(t, os.Remove(ledger))
	must(t, os.Mkdir(ledger, 0o755))
	if got := at(t, ledger, filepath.Join(root, "b"), filepath.Join(root, "b"), "reward", "x"); got.N != 0 ||
		!strings.Contains(got.Missing, "regular file") {
		t.Errorf("no file: %+v", got)
	}
	if got := at(t, filepath.Join(ledger, "x"), filepath.Join(root, "a"), filepath.Join(root, "a"), "reward", "x"); got.N != 0 {
		t.Errorf("what a folder says changed: %+v", got)
	}
}

// The end of a process, or a full disk, may cut a line off: the next goes on behind the whole ones.
func TestATornLineIsNoLook(t *testing.T) {
	root := t.TempDir()
	ledger := filepath.Join(root, "looks.jsonl")
	must(t, os.WriteFile(ledger, []byte("{\"digest\":\"x\"}\n{\"digest\":\"x"), 0o644))
	for i, name := range []string{"a", "b"} {
		dir := filepath.Join(root, name)
		if got := at(t, ledger, dir, dir, "reward", "x"); got.N != i+2 || got.Missing != "" {
			t.Errorf("run %s: %+v, want look %d", name, got, i+2)
		}
	}
}

func TestSealedQuestionsOpenOnce(t *testing.T) {
	root := t.TempDir()
	ledger := filepath.Join(root, "looks.jsonl")
	dir := func(name string) string { return filepath.Join(root, name) }
	must(t, errors.Join(os.Mkdir(dir("a"), 0o755), os.Mkdir(dir("b"), 0o755), os.Mkdir(dir("c"), 0o755),
		os.WriteFile(dir("file"), nil, 0o644)))
	const claim, refused = "GRPO beats similarity", "with the claim \"GRPO beats similarity\""
	for _, tc := range []struct{ name, ledger, dir, metric, claim, want string }{
		{"without a ledger nothing is opened", filepath.Join(dir("file"), "looks.jsonl"), "a", "reward", claim, "not a directory"},
		{"the first", ledger, "a", "reward", claim, ""},
		{"its other metric", ledger, "a", "accuracy", claim, ""},
		{"killed before it had scored", ledger, "a", "reward", claim, ""},
		{"with another claim", ledger, "a", "reward", "SFT does", refused},
		{"another run", ledger, "b", "reward", claim, refused},
		{"a copy of the folder", ledger, "copy", "reward", claim, refused},
		{"other questions and one of these", ledger, "c", "reward", claim, refused},
	} {
		if tc.dir == "copy" {
			must(t, os.CopyFS(dir("copy"), os.DirFS(dir("a"))))
		}
		look := record.Look{Split: "sealed", Metric: tc.metric, Digest: "x", Sketch: []string{"1", "2"}}
		if tc.dir == "c" {
			look.Digest, look.Sketch = "y", []string{"0", "2"}
		}
		err := Take(tc.ledger, dir(tc.dir), dir(tc.dir), look, tc.claim)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}
