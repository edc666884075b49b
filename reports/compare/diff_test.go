package compare

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"fulcrum/reports/record"
	"fulcrum/reports/results"
)

// diffRun writes a run folder with a config and, unless it has not ended, a summary.
func diffRun(t *testing.T, config, hydra string, summary *record.Summary) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"config.yaml": config, "hydra.yaml": hydra} {
		path := filepath.Join(dir, ".hydra", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if summary != nil {
		summary.Evaluations = []record.StageResult{}
		if err := results.WriteSummary(dir, *summary); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func endedAs(fingerprint, hash, commit string, counts map[string]int) *record.Summary {
	return &record.Summary{State: record.StateDone, Device: "cpu", Threads: 1, Versions: map[string]string{"fulcrum": "0.1.0",
		"commit": commit, "config": hash},
		Data: record.DataSummary{Fingerprint: fingerprint, Counts: counts}}
}

// summed writes differences in one line: key A→B.
func summed(list []Difference) string {
	text := func(s *string) string {
		if s == nil {
			return "-"
		}
		return *s
	}
	var parts []string
	for _, d := range list {
		parts = append(parts, d.Key+" "+text(d.A)+"→"+text(d.B))
	}
	return strings.Join(parts, "; ")
}

func TestDiffOfRuns(t *testing.T) {
	const config = "seed: 1\ngrpo: {lr: 1.0e-4, freeze: []}\ndata: {name: beams, beams: /a/x.json, root: null}\n"
	for _, tc := range []struct {
		name                            string
		configB, hydraB                 string
		b                               *record.Summary
		settings, data, code, elsewhere string
		unknown                         string // in one of the notes
		same                            bool
	}{
		{name: "a run equals itself, however its numbers are written",
			configB: "data: {name: beams, beams: /a/x.json, root: null}\ngrpo: {lr: 0.0001, freeze: []}\nseed: 1\n",
			b:       endedAs("f", "h", "c", nil), same: true},
		{name: "a setting", configB: strings.Replace(config, "lr: 1.0e-4", "lr: 0.5", 1), b: endedAs("f", "g", "c", nil),
			settings: "grpo.lr 0.0001→0.5"},
		{name: "a key that one side lacks", configB: config + "extra: 3\n", b: endedAs("f", "g", "c", nil), settings: "extra -→3"},
		{name: "an item of a list", configB: strings.Replace(config, "[]", "[encoder]", 1), b: endedAs("f", "g", "c", nil),
			settings: "grpo.freeze []→[encoder]"},
		{name: "logging, outputs and hydra change no result", configB: config +
			"logging: {tensorboard: false}\npredict: {out: p.jsonl}\nchecks: {doctor: false}\n",
			hydraB: "hydra: {run: {dir: /b}, overrides: {task: [x]}, job: {num: 7}}",
			b:      endedAs("f", "h", "c", nil), elsewhere: "checks.doctor -→false; hydra.run.dir /a→/b; logging.tensorboard -→false; " +
				"predict.out -→p.jsonl", same: true},
		{name: "other data in the same file", configB: config, b: endedAs("f2", "h", "c", map[string]int{"val_queries": 3}),
			data: "counts.val_queries -→3; fingerprint f→f2"},
		{name: "the same data in another file", configB: strings.Replace(config, "/a/x", "/b/y", 1), b: endedAs("f", "g", "c", nil),
			elsewhere: "data.beams /a/x.json→/b/y.json", same: true},
		{name: "other data in another file", configB: strings.Replace(config, "/a/x", "/b/y", 1), b: endedAs("f2", "g", "c", nil),
			data: "data.beams /a/x.json→/b/y.json; fingerprint f→f2"},
		{name: "code and machine", configB: config,
			b:    func() *record.Summary { s := endedAs("f", "h", "d", nil); s.Device = "cuda:0"; return s }(),
			code: "commit c→d; device cpu→cuda:0"},
		{name: "an interpolation that resolves to something else", configB: config, b: endedAs("f", "other", "c", nil),
			settings: "(resolved values) h→other", unknown: "environment variable"},
		{name: "a run that has not ended", configB: config, unknown: "a run records them when it ends", same: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.hydraB == "" {
				tc.hydraB = "hydra: {run: {dir: /a}, overrides: {task: []}, job: {num: 1}, sweeper: {seed: 0}}"
			}
			a, err := ReadDiffRun(diffRun(t, config, "hydra: {run: {dir: /a}, overrides: {task: []}, job: {num: 1}}",
				endedAs("f", "h", "c", nil)))
			if err != nil {
				t.Fatal(err)
			}
			b, err := ReadDiffRun(diffRun(t, tc.configB, tc.hydraB, tc.b))
			if err != nil {
				t.Fatal(err)
			}
			d, err := DiffOf(a, b)
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range []struct {
				name      string
				got, want string
			}{
				{"settings", summed(d.Settings), tc.settings}, {"data", summed(d.Data), tc.data},
				{"code", summed(d.Code), tc.code}, {"elsewhere", summed(d.Elsewhere), tc.elsewhere},
			} {
				if part.got != part.want {
					t.Errorf("%s: got %q, want %q", part.name, part.got, part.want)
				}
			}
			if d.Same != tc.same {
				t.Errorf("same is %v, want %v", d.Same, tc.same)
			}
			if notes := strings.Join(d.Unknown, "\n"); !strings.Contains(notes, tc.unknown) || tc.unknown == "" && notes != "" {
				t.Errorf("notes %q, want %q", notes, tc.unknown)
			}
		})
	}
}

// Jobs of two sweeps are compared in pairs of equal parameters; what all pairs share is told once.
func TestDiffOfSweeps(t *testing.T) {
	job := func(seed, lr, commit string) string {
		return diffRun(t, "seed: "+seed+"\nlr: "+lr+"\n", "{}", endedAs("f", "", commit, nil))
	}
	config := func(lr string) string {
		path := filepath.Join(t.TempDir(), "multirun.yaml")
		if err := os.WriteFile(path, []byte("seed: 0\nlr: "+lr+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	sweep := func(lr, commit, seeds string, more ...string) DiffSide {
		var jobs []DiffJob
		for _, seed := range strings.Split(seeds, ",") {
			jobs = append(jobs, DiffJob{"seed=" + seed, job(seed, lr, commit)})
		}
		side, err := ReadDiffSweep("sweep", config(lr), "ended", map[string]string{"sweep.seed": seeds,
			"hydra.launcher": strings.Join(more, "")}, jobs)
		if err != nil {
			t.Fatal(err)
		}
		return side
	}
	d, err := DiffOf(sweep("1", "c", "0,1,2"), sweep("2", "d", "1,2,3", "slurm"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := summed(d.Settings), "lr 1→2; sweep.seed 0,1,2→1,2,3"; got != want {
		t.Errorf("settings: got %q, want %q (the jobs' lr is the sweep's)", got, want)
	}
	if got, want := summed(d.Code), "commit c→d"; got != want || d.Code[0].Jobs != 2 {
		t.Errorf("code: got %q in %+v, want %q in 2 pairs", got, d.Code, want)
	}
	if got := strings.Join(d.OnlyA, ",") + " " + strings.Join(d.OnlyB, ","); got != "seed=0 seed=3" {
		t.Errorf("jobs without a counterpart: %q", got)
	}
	if got := summed(d.Elsewhere); got != "hydra.launcher →slurm" {
		t.Errorf("elsewhere: %q", got)
	}
	if want := "what differs: 2 settings, 1 fact of code and machine, 2 jobs without a counterpart"; d.Verdict() != want {
		t.Errorf("verdict %q, want %q", d.Verdict(), want)
	}
	one, err := ReadDiffRun(diffRun(t, "seed: 0\n", "{}", endedAs("f", "", "c", nil)))
	if err != nil {
		t.Fatal(err)
	}
	if d, err = DiffOf(sweep("1", "c", "0,1"), one); err != nil || summed(d.Settings) != "seed 0,1 (one a job)→0" {
		t.Errorf("a job that does not read lr: %q, %v", summed(d.Settings), err)
	}
	if d, err = DiffOf(sweep("1", "c", "0,1"), sweep("1", "c", "0,1")); err != nil || !d.Same {
		t.Errorf("two equal sweeps: %+v, %v", d, err)
	}
}

// Columns are aligned by characters, and of long values the part in which they differ is shown.
func TestDiffText(t *testing.T) {
	long := strings.Repeat("a", 200)
	a, b, tau := long+"x", long+"y", "τ"
	d := Diff{A: DiffPath{"p", DiffRun, "done"}, B: DiffPath{"q", diffConfig, ""},
		Settings: []Difference{{Key: "k", A: &tau, B: nil}, {Key: "system", A: &a, B: &b, Jobs: 2}}}
	var text strings.Builder
	if err := d.WriteText(&text, 0); err != nil {
		t.Fatal(err)
	}
	const want = `A  p (run, done)
B  q (config file)

settings: 2 differ
  key     A               B
  k       τ               (absent)
  system  …aaaaaaaaaaaax  …aaaaaaaaaaaay   in 2 pairs of jobs
`
	if text.String() != want {
		t.Errorf("got\n%s\nwant\n%s", text.String(), want)
	}
	x, y := strings.Repeat("x", 90), strings.Repeat("y", 90)
	d.Settings = []Difference{{Key: "data.fingerprint", A: &x, B: &y}}
	text.Reset()
	if err := d.WriteText(&text, 80); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 || strings.Contains(line, "x") && n < 75 {
			t.Errorf("%d columns of 80: %s", n, line)
		}
	}
}
