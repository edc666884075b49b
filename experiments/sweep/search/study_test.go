package search_test

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat"
	"gopkg.in/yaml.v3"

	"fulcrum/internal/testkit/golden"
	"fulcrum/reports/record"
)

// The acceptance study: real sweeps of exp=shapes_probe, each job a process of about a second, over four keys with
// three decades each. STUDY_DIR=DIR keeps the sweeps there and goes on with those that it finds; STUDY_RUN=FILE is the
// program to run (default bin/run). It takes about half an hour of one core.

const studyTrials = 40

func studySpace() []string {
	return []string{"rce.lr=tag(log,interval(1e-4,1e-1))", "grpo.lr=tag(log,interval(1e-4,1e-1))",
		"selector.temperature=tag(log,interval(1e-2,1e1))", "optim.weight_decay=tag(log,interval(1e-1,1e2))"}
}

type study struct {
	t       *testing.T
	program string
	dir     string
}

func newStudy(t *testing.T) study {
	t.Helper()
	if testing.Short() {
		t.Skip("about half an hour")
	}
	s := study{t: t, program: os.Getenv("STUDY_RUN"), dir: os.Getenv("STUDY_DIR")}
	if s.program == "" {
		s.program = filepath.Join(golden.RepoRoot(), "bin", "run")
	}
	if _, err := os.Stat(s.program); err != nil {
		t.Fatalf("%v: make build", err)
	}
	if s.dir == "" {
		s.dir = t.TempDir()
	}
	return s
}

func (s study) run(args ...string) {
	s.t.Helper()
	out, err := exec.Command(s.program, args...).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 && strings.Contains(string(out), "jobs failed") { // a learning rate may be too large
		return
	}
	if err != nil {
		s.t.Fatalf("run %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// sweep runs one sweep, unless it is there, and returns its best value and the epochs of all its jobs.
func (s study) sweep(name string, seed int, more ...string) (best float64, epochs int) {
	s.t.Helper()
	dir := filepath.Join(s.dir, name+"-"+strconv.Itoa(seed))
	results := filepath.Join(dir, "optimization_results.yaml")
	if _, err := os.Stat(results); err != nil {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
			s.run("resume", dir)
		} else {
			s.run(slices.Concat([]string{"-m", "exp=shapes_probe", "hydra.sweep.dir=" + dir, "hydra.sweeper.seed=" +
				strconv.Itoa(seed), "hydra.sweeper.n_trials=" + strconv.Itoa(studyTrials)}, studySpace(), more)...)
		}
	}
	text, err := os.ReadFile(results)
	if err != nil {
		s.t.Fatal(err)
	}
	var found struct {
		BestValue float64 `yaml:"best_value"`
	}
	if err := yaml.Unmarshal(text, &found); err != nil || found.BestValue == 0 {
		s.t.Fatalf("%s: best_value %g, %v", results, found.BestValue, err)
	}
	for job := range studyTrials {
		run, err := record.ReadRun(filepath.Join(dir, strconv.Itoa(job)))
		if err != nil {
			s.t.Fatal(err)
		}
		if len(run.Epochs) == 0 {
			s.t.Fatalf("%s: job %d has no epoch", dir, job)
		}
		epochs += len(run.Epochs)
	}
	return found.BestValue, epochs
}

// signedRank is the one-sided exact p-value of Wilcoxon's signed-rank test that the paired differences are below 0.
func signedRank(differences []float64) float64 {
	var d []float64
	for _, x := range differences {
		if x != 0 {
			d = append(d, x)
		}
	}
	slices.SortFunc(d, func(a, b float64) int { return int(math.Copysign(1, math.Abs(a)-math.Abs(b))) })
	sum := 0 // of the ranks of positive differences; ties in size are too rare to matter here
	for i, x := range d {
		if x > 0 {
			sum += i + 1
		}
	}
	atMost := 0
	for signs := range 1 << len(d) {
		total := 0
		for i := range d {
			if signs>>i&1 == 1 {
				total += i + 1
			}
		}
		if total <= sum {
			atMost++
		}
	}
	return float64(atMost) / float64(int(1)<<len(d))
}

// Of 10 differences, all negative: 1/1024; with the smallest positive 2/1024; with the largest positive 43/1024.
func TestSignedRank(t *testing.T) {
	d := []float64{-1, -2, -3, -4, -5, -6, -7, -8, -9, -10}
	for flip, want := range map[int]float64{-1: 1. / 1024, 0: 2. / 1024, 9: 43. / 1024} {
		x := slices.Clone(d)
		if flip >= 0 {
			x[flip] = -x[flip]
		}
		if got := signedRank(x); got != want {
			t.Errorf("with difference %d positive p = %g, want %g", flip, got, want)
		}
	}
}

// TPE ends better than random search after 40 trials, over ten seeds.
func TestStudyTPE(t *testing.T) {
	s := newStudy(t)
	var differences, random, tpe []float64
	for seed := range 10 {
		r, _ := s.sweep("random", seed, "hydra/sweeper=random")
		b, _ := s.sweep("tpe", seed, "hydra/sweeper=tpe")
		random, tpe, differences = append(random, r), append(tpe, b), append(differences, b-r)
		t.Logf("seed %d: random %.4f, tpe %.4f", seed, r, b)
	}
	p := signedRank(differences)
	t.Logf("best val_loss of %d trials, mean ± SD over 10 seeds: random %.4f ± %.4f, tpe %.4f ± %.4f; p = %.4f", studyTrials,
		stat.Mean(random, nil), stat.StdDev(random, nil), stat.Mean(tpe, nil), stat.StdDev(tpe, nil), p)
	if p >= 0.05 {
		t.Errorf("p = %.4f, want below 0.05", p)
	}
}

// Asynchronous successive halving over the same random trials finds as good a value, within the standard deviation
// that a change of the run's seed makes, at half the epochs or fewer.
func TestStudyASHA(t *testing.T) {
	s := newStudy(t)
	var values []float64
	best, bestDir := math.Inf(1), ""
	for seed := range 5 {
		if v, _ := s.sweep("random", seed, "hydra/sweeper=random"); v < best {
			best, bestDir = v, filepath.Join(s.dir, "random-"+strconv.Itoa(seed))
		}
	}
	text, err := os.ReadFile(filepath.Join(bestDir, "optimization_results.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var found struct {
		BestParams map[string]any `yaml:"best_params"`
	}
	if err := yaml.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	for seed := range 8 {
		dir := filepath.Join(s.dir, "seed-"+strconv.Itoa(seed))
		if _, err := os.Stat(filepath.Join(dir, "summary.json")); err != nil {
			args := []string{"exp=shapes_probe", "seed=" + strconv.Itoa(seed), "hydra.run.dir=" + dir}
			for key, v := range found.BestParams {
				args = append(args, key+"="+strconv.FormatFloat(v.(float64), 'g', -1, 64))
			}
			s.run(args...)
		}
		summary, err := record.ReadSummary(dir)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, float64(summary.Best.Value))
	}
	sd := stat.StdDev(values, nil)
	worse, all, spent := 0.0, 0, 0
	for seed := range 5 {
		full, epochs := s.sweep("random", seed, "hydra/sweeper=random")
		pruned, fewer := s.sweep("asha", seed, "hydra/sweeper=random", "hydra.sweeper.pruner.name=asha")
		t.Logf("seed %d: %.4f in %d epochs, with asha %.4f in %d", seed, full, epochs, pruned, fewer)
		worse, all, spent = worse+(pruned-full)/5, all+epochs, spent+fewer
	}
	t.Logf("with asha %.4f worse in the mean at %.0f %% of the epochs; one seed's standard deviation is %.4f", worse,
		100*float64(spent)/float64(all), sd)
	if worse > sd || 2*spent > all {
		t.Errorf("with asha %.4f worse at %d of %d epochs: want at most %.4f worse at half", worse, spent, all, sd)
	}
}
