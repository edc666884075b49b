package looks

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

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
	must(t, errors.Join(os.Mkdir(dir("a"), 0o755), os.Mkdir(dir("b"), 0o755), os.WriteFile(dir("file"), nil, 0o644)))
	const claim, refused = "GRPO beats similarity", "with the claim \"GRPO beats similarity\""
	for _, tc := range []struct{ name, ledger, dir, metric, claim, want string }{
		{"without a ledger nothing is opened", filepath.Join(dir("file"), "looks.jsonl"), "a", "reward", claim, "not a directory"},
		{"the first", ledger, "a", "reward", claim, ""},
		{"its other metric", ledger, "a", "accuracy", claim, ""},
		{"killed before it had scored", ledger, "a", "reward", claim, ""},
		{"with another claim", ledger, "a", "reward", "SFT does", refused},
		{"another run", ledger, "b", "reward", claim, refused},
		{"a copy of the folder", ledger, "copy", "reward", claim, refused},
	} {
		if tc.dir == "copy" {
			must(t, os.CopyFS(dir("copy"), os.DirFS(dir("a"))))
		}
		err := Take(tc.ledger, dir(tc.dir), dir(tc.dir), record.Look{Split: "sealed", Metric: tc.metric, Digest: "x"}, tc.claim)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}
