package sweepreport

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	gonum "gonum.org/v1/gonum/stat"

	"fulcrum/internal/stat"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/runreport"
	"fulcrum/reports/stats"
	"fulcrum/reports/sweeps"
)

// namedSweeps are the sweeps of the golden files.
func namedSweeps(dir string) []sweepCase {
	var cases []sweepCase
	add := func(name, plots string, jobs []sweeps.Job, opt sweeps.Options) {
		cases = append(cases, sweepCase{name, jobs, opt, plots})
	}
	jobs, opt := gridSweep(dir)
	add("grid", "parameters", jobs, opt)
	jobs, opt = tpeSweep(dir, 40)
	add("tpe", "parameters history", jobs, opt)
	jobs, opt = paretoSweep(dir)
	add("pareto", "pareto parameters parameters_2 history", jobs, opt)
	return cases
}

// LOOK=/some/folder go test -run TestSweepReports leaves sweep folders there: look at the PNGs after
// changing a figure.
func TestSweepReports(t *testing.T) {
	for _, c := range namedSweeps("") {
		t.Run(c.name, func(t *testing.T) {
			dir := checkSweep(t, c)
			text := strings.ReplaceAll(reportstest.ReadReport(t, dir), dir, "DIR")
			golden.File(t, "testdata/sweeps/"+c.name+".md", []byte(text))
			golden.File(t, "testdata/sweeps/"+c.name+"_table.txt", []byte(sweeps.Table(c.jobs, c.opt, 0)))
			for _, name := range strings.Fields(c.plots) {
				svg, err := os.ReadFile(filepath.Join(dir, runreport.PlotsFolder, name+".svg"))
				reportstest.Must(t, err)
				golden.File(t, fmt.Sprintf("testdata/sweeps/%s_%s.txt", c.name, name), []byte(reportstest.SvgText(svg)))
			}
		})
	}
}

// Whatever a sweep is like, its report names every job in order, its plots show something, and equal
// jobs give equal bytes.
func TestSweepCases(t *testing.T) {
	cases := sweepCases()
	if len(cases) < 20 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { checkSweep(t, c) })
	}
}

// checkSweep writes the report of c twice and returns its folder.
func checkSweep(t *testing.T, c sweepCase) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.ReplaceAll(c.name, " ", "_"))
	if out := os.Getenv("LOOK"); out != "" {
		dir = filepath.Join(out, filepath.Base(dir))
	}
	reportstest.Must(t, os.MkdirAll(dir, 0o755))
	reportstest.Must(t, WriteReport(dir, c.jobs, c.opt))
	report := reportstest.ReadReport(t, dir)
	shuffled := slices.Clone(c.jobs)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	reportstest.Must(t, WriteReport(dir, shuffled, c.opt))
	if reportstest.ReadReport(t, dir) != report {
		t.Error("the same jobs in another order give another report")
	}
	checkJobRows(t, report, c)
	checkPlots(t, dir, report, c.plots)
	for _, j := range c.jobs {
		if row := fmt.Sprintf("\n%4d  ", j.Number); len(c.jobs) <= sweeps.TableRows &&
			!strings.Contains(strings.ReplaceAll(sweeps.Table(c.jobs, c.opt, 0), "*", " "), row) {
			t.Errorf("no row of job %d in the table:\n%s", j.Number, sweeps.Table(c.jobs, c.opt, 0))
		}
	}
	return dir
}

// checkJobRows reads the table of jobs: every number once, finished jobs by objective.
func checkJobRows(t *testing.T, report string, c sweepCase) {
	t.Helper()
	_, table, _ := strings.Cut(report, "\n## Jobs\n")
	table, _, _ = strings.Cut(table, "\n## ")
	byNumber := map[int]sweeps.Job{}
	for _, j := range c.jobs {
		byNumber[j.Number] = j
	}
	seen := map[int]bool{}
	var last *sweeps.Job
	objectives, view := c.opt.Objectives, newView("", c.jobs, c.opt)
	if len(objectives) == 0 {
		objectives = []sweeps.Objective{{}}
	}
	for _, m := range regexp.MustCompile(`(?m)^\| \[?(\d+)[] ]`).FindAllStringSubmatch(table, -1) {
		n, err := strconv.Atoi(m[1])
		reportstest.Must(t, err)
		if seen[n] {
			t.Errorf("job %d has two rows", n)
		}
		seen[n] = true
		j := byNumber[n]
		if len(objectives) == 1 && j.State == record.StateDone && j.Violation == 0 && view.Measured(j) {
			if last != nil && objectives[0].Compare(last.Objectives[0], j.Objectives[0]) > 0 {
				t.Errorf("job %d with %g stands behind job %d with %g", n, j.Objectives[0], last.Number, last.Objectives[0])
			}
			last = &j
		}
	}
	if len(seen) != len(c.jobs) {
		t.Errorf("%d of %d jobs have a row", len(seen), len(c.jobs))
	}
}

// checkPlots compares the embedded plots with those wanted, and looks for ink in them.
func checkPlots(t *testing.T, dir, report, want string) {
	t.Helper()
	var names []string
	for _, m := range regexp.MustCompile(`\(plots/([a-z_0-9]+)\.png\)`).FindAllStringSubmatch(report, -1) {
		names = append(names, m[1])
	}
	if got := strings.Join(names, " "); got != want {
		t.Errorf("drawn %q, want %q", got, want)
	}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, runreport.PlotsFolder, name+".png"))
		reportstest.Must(t, err)
		img, err := png.Decode(bytes.NewReader(data))
		reportstest.Must(t, err)
		if colours := ink(img); colours < 20 {
			t.Errorf("%s.png has %d colours: nothing is drawn", name, colours)
		}
		svg, err := os.ReadFile(filepath.Join(dir, runreport.PlotsFolder, name+".svg"))
		reportstest.Must(t, err)
		if bytes.Contains(svg, []byte("NaN")) || bytes.Contains(svg, []byte("Inf")) {
			t.Errorf("%s.svg has points nowhere", name)
		}
		reportstest.CheckTextInside(t, rotated.ReplaceAll(svg, []byte(`<text x="0" y="0" style="font-size:1px">rotated</text>`)))
		checkRotatedInside(t, svg)
	}
}

// rotated is a text that does not run to the right.
var rotated = regexp.MustCompile(`(?s)<g transform="rotate\(([-0-9.]+)\)">\s*<text (?:textLength="[^"]*" lengthAdjust="[^"]*" )?x="([-0-9.e]+)" y="([-0-9.e]+)"[^>]*font-size:([0-9.]+)px[^>]*>([^<]+)</text>\s*</g>`)

// checkRotatedInside finds rotated labels that leave the picture at its sides.
func checkRotatedInside(t *testing.T, svg []byte) {
	t.Helper()
	number := func(text []byte) float64 {
		x, err := strconv.ParseFloat(string(text), 64)
		reportstest.Must(t, err)
		return x
	}
	for _, m := range rotated.FindAllSubmatch(svg, -1) {
		sin, cos := math.Sincos(number(m[1]) * math.Pi / 180)
		from := number(m[2])*cos + number(m[3])*sin // its vertical axis points up
		to := from + 0.47*number(m[4])*float64(len([]rune(string(m[5]))))*cos
		if from < 0 || to > 648 {
			t.Errorf("rotated %q reaches from %.0f to about %.0f, the picture from 0 to 648", m[5], from, to)
		}
	}
}

// ink counts the colours of a picture, of every third pixel.
func ink(img image.Image) int {
	seen := map[[3]uint32]bool{}
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y += 3 {
		for x := b.Min.X; x < b.Max.X; x += 3 {
			r, g, bl, _ := img.At(x, y).RGBA()
			seen[[3]uint32{r, g, bl}] = true
		}
	}
	return len(seen)
}

func TestSweepOfManyJobs(t *testing.T) {
	dir := t.TempDir()
	jobs, opt := tpeSweep(dir, 1000)
	opt.Dimensions = opt.Dimensions[:1]
	reportstest.Must(t, WriteReport(dir, jobs, opt))
	report := reportstest.ReadReport(t, dir)
	if n := strings.Count(report, "\n| "); n > 130 || n < 100 {
		t.Errorf("%d rows of tables, want the best 100 jobs and little else", n)
	}
	for _, want := range []string{"These are the best 100 of 1,000 jobs", "and alike jobs"} {
		if !strings.Contains(report, want) {
			t.Errorf("no %q in the report", want)
		}
	}
	if n := strings.Count(sweeps.Table(jobs, opt, 0), "\n"); n > 60 {
		t.Errorf("%d lines of table for a terminal", n)
	}
}

// A folder that cannot hold plots still gets its report.
func TestSweepReportWithoutPlots(t *testing.T) {
	dir := t.TempDir()
	reportstest.Must(t, os.WriteFile(filepath.Join(dir, runreport.PlotsFolder), nil, 0o644))
	jobs, opt := gridSweep(dir)
	if err := WriteReport(dir, jobs, opt); err == nil || !strings.Contains(err.Error(), "plots") {
		t.Errorf("got %v, want an error that names plots", err)
	}
	if report := reportstest.ReadReport(t, dir); !strings.Contains(report, "## Not in this report") ||
		!strings.Contains(report, "## Jobs") {
		t.Errorf("got %s", report)
	}
}

func TestParetoFront(t *testing.T) {
	two := []sweeps.Objective{{Name: "reward"}, {Name: "kl", Minimize: true}}
	for _, tc := range []struct {
		name       string
		objectives [][]float64
		want       []int
	}{
		{"one beats all", [][]float64{{1, 1}, {2, 0}, {0, 2}}, []int{1}},
		{"a trade", [][]float64{{1, 1}, {2, 2}, {1.5, 1.8}, {0.5, 1}}, []int{0, 1, 2}},
		{"equals stay", [][]float64{{1, 1}, {1, 1}, {1, 2}}, []int{0, 1}},
		{"what is no number does not count", [][]float64{{math.NaN(), 0}, {1, 1}, {math.Inf(1), 0}, nil}, []int{1}},
		{"nothing", nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var jobs []sweeps.Job
			for i, o := range tc.objectives {
				jobs = append(jobs, sweeps.Job{Number: i, State: record.StateDone, Objectives: o})
			}
			jobs = append(jobs, sweeps.Job{Number: 10, State: record.StatePruned, Objectives: []float64{9, 0}},
				sweeps.Job{Number: 11, State: record.StateDone, Objectives: []float64{9, 0}, Violation: 1})
			front := newView("", jobs, sweeps.Options{Objectives: two}).Front
			if len(front) != len(tc.want) {
				t.Errorf("front %v, want %v", front, tc.want)
			}
			for _, n := range tc.want {
				if !front[n] {
					t.Errorf("front %v, want %v", front, tc.want)
				}
			}
		})
	}
}

func TestImportance(t *testing.T) {
	// Kruskal and Wallis by hand: ranks 1 2 3 | 4 5 6 have group means 2 and 5 around 3.5, so between is
	// 6·1.5² = 13.5 of 17.5.
	share, means := explained([]float64{1, 2, 3, 4, 5, 6}, []int{0, 0, 0, 1, 1, 1}, 2)
	golden.Close(t, append(means, share), []float64{2, 5, 13.5 / 17.5}, 1e-12)
	golden.Close(t, stat.Ranks([]float64{3, 1, 3, 2, 3}), []float64{4, 1, 4, 2, 4}, 0)
	golden.Close(t, []float64{gonum.Correlation([]float64{1, 2, 3}, []float64{3, 2, 1}, nil),
		gonum.Correlation([]float64{1, 1}, []float64{1, 2}, nil)}, []float64{-1, math.NaN()}, 1e-12)

	jobs, opt := gridSweep("")
	rows := newView("", jobs, opt).importances(0)
	if len(rows) != 2 || rows[0].dim.Key != "grpo.lr" || rows[0].share < 0.7 || rows[1].share > rows[1].chance {
		t.Errorf("grid: %+v, want grpo.lr to explain most and grpo/kl no more than chance", rows)
	}

	// Of two values that do equally well none is the best.
	even := simple([]string{"x"}, nil, nil)
	for i := range 8 {
		even = append(even, sweeps.Job{Number: i, State: record.StateDone, Params: map[string]string{"x": fmt.Sprint(i % 2)},
			Objectives: []float64{float64(i / 2)}})
	}
	rows = newView("", even, sweeps.Options{Dimensions: []sweeps.Dimension{{Key: "x"}}}).importances(0)
	if len(rows) != 1 || rows[0].best != "–" {
		t.Errorf("equal values: %+v, want no best one", rows)
	}

	// An optimum in the middle has no rank correlation, and is found all the same.
	middle := simple([]string{"x"}, nil, nil)
	for i := range 41 {
		x := float64(i-20) / 20
		middle = append(middle, sweeps.Job{Number: i, State: record.StateDone, Params: map[string]string{"x": fmt.Sprint(x)},
			Objectives: []float64{-x * x}})
	}
	rows = newView("", middle, sweeps.Options{Dimensions: []sweeps.Dimension{{Key: "x", Interval: true}}}).importances(0)
	if len(rows) != 1 || rows[0].share < 0.6 || math.Abs(rows[0].rank) > 0.05 {
		t.Errorf("optimum in the middle: %+v", rows)
	}
}

// A key without effect exceeds the column "by chance" in about 1 of 20 sweeps.
func TestImportanceByChance(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	const sweeps = 2000
	exceeded := 0
	for range sweeps {
		y, group := make([]float64, 30), make([]int, 30)
		for i := range y {
			y[i], group[i] = rng.Float64(), i%3
		}
		share, _ := explained(stat.Ranks(y), group, 3)
		exceeded += stats.BoolInt(share > chanceShare(3, 30))
	}
	// 0.05 ± 2 standard errors, and the χ² approximation errs to the safe side
	if rate := float64(exceeded) / sweeps; rate < 0.035 || rate > 0.06 {
		t.Errorf("exceeded in %.3f of the sweeps, want about 0.05", rate)
	}
}

// Expected maxima of n standard normal values, from tables: n = 10: 1.5388, n = 100: 2.5076.
func TestExpectedLuck(t *testing.T) {
	golden.Close(t, []float64{stats.LuckOf(10), stats.LuckOf(100)}, []float64{1.5388, 2.5076}, 0.02)
}

func TestSweepAxis(t *testing.T) {
	for _, tc := range []struct {
		name string
		dim  sweeps.Dimension
		kind string
		want string
	}{
		{"words keep their order", sweeps.Dimension{Values: []string{"b", "a", "'two words'"}}, "words", "b a two words"},
		{"a number among words", sweeps.Dimension{Values: []string{"1", "null", "2"}}, "words", "1 null 2"},
		{"a grid shows its values as written", sweeps.Dimension{Values: []string{"1e-3", "1e-5", "0.0001"}}, "log", "1e-5 0.0001 1e-3"},
		{"small ratios are linear", sweeps.Dimension{Values: []string{"1", "2", "5"}}, "linear", "1 2 5"},
		{"a tag asks for a logarithm", sweeps.Dimension{Log: true, Values: []string{"1", "2", "5"}}, "log", "1 2 5"},
		{"zero stands beside logarithms", sweeps.Dimension{Values: []string{"1e-3", "0", "1e-5"}}, "words", "0 1e-5 1e-3"},
		{"a logarithm of zero is refused", sweeps.Dimension{Log: true, Interval: true, Values: []string{"0", "1"}}, "linear", "0 1"},
		{"decades of an interval", sweeps.Dimension{Interval: true, Values: []string{"1.3e-6", "0.0084"}}, "log", "1e-6 1e-5 1e-4 1e-3 0.01"},
		{"decades beyond numbers", sweeps.Dimension{Interval: true, Values: []string{"1e-300", "1e300"}}, "log", "1e-200 1 1e200"},
		{"steps within decades", sweeps.Dimension{Interval: true, Log: true, Values: []string{"0.002", "0.02"}}, "log", "2e-3 5e-3 0.01 0.02"},
		{"large numbers", sweeps.Dimension{Interval: true, Values: []string{"0", "5000000"}}, "linear", "0 2e6 4e6"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			axis := newSweepAxis(tc.dim, nil)
			kind := "words"
			if axis.numeric {
				kind = "linear"
			}
			if axis.log {
				kind = "log"
			}
			var labels []string
			for _, tick := range axis.ticks(axis.bounds()) {
				labels = append(labels, tick.Label)
			}
			if got := strings.Join(labels, " "); kind != tc.kind || got != tc.want {
				t.Errorf("%s axis with %s, want %s with %s", kind, got, tc.kind, tc.want)
			}
		})
	}
}

func TestObjectiveScale(t *testing.T) {
	good := []float64{0.3, 0.31, 0.32, 0.33, 0.34, 0.35}
	for _, tc := range []struct {
		name   string
		o      sweeps.Objective
		values []float64
		want   objectiveScale
	}{
		{"all near", sweeps.Objective{}, good, objectiveScale{low: 0.3, high: 0.35}},
		{"diverged ones are cut", sweeps.Objective{}, append([]float64{-1e9, -4}, good...), objectiveScale{low: 0.3, high: 0.35, clipped: 2}},
		{"a lucky one is not", sweeps.Objective{}, append([]float64{7}, good...),
			objectiveScale{low: 0.3, high: 7}},
		{"the other way round", sweeps.Objective{Minimize: true}, append([]float64{7}, good...),
			objectiveScale{low: 0.3, high: 0.35, clipped: 1}},
		{"losses over decades", sweeps.Objective{Minimize: true}, append([]float64{70}, good...), objectiveScale{low: 0.3, high: 70, log: true}},
		{"few jobs", sweeps.Objective{}, []float64{-9, 1, 1.1}, objectiveScale{low: -9, high: 1.1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := scaleOf(tc.o, tc.values, slices.Clone(tc.values)); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestOptimizationResults(t *testing.T) {
	dir := t.TempDir()
	jobs, opt := tpeSweep(dir, 40)
	jobs[3].Params = map[string]string{"grpo.lr": "1e-05", "grpo.epochs": "7", "name": "'a b'", "+flag": "true", "list": "[1,x]",
		"none": "null", "word": "cosine", "text": "'12'"}
	jobs[3].Objectives = []float64{0.25}
	opt.Dimensions = nil
	for _, key := range []string{"grpo.lr", "grpo.epochs", "name", "+flag", "list", "none", "word", "text", "not swept here"} {
		opt.Dimensions = append(opt.Dimensions, sweeps.Dimension{Key: key})
	}
	reportstest.Must(t, WriteOptimizationResults(dir, jobs, opt))
	// As OmegaConf.save writes {"name": "tpe", "best_params": {...}, "best_value": 0.25}.
	want := `name: tpe
best_params:
  grpo.lr: 1.0e-05
  grpo.epochs: 7
  name: a b
  +flag: true
  list:
  - 1
  - x
  none: null
  word: cosine
  text: '12'
best_value: 0.25
`
	if got := readResults(t, dir); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	jobs, opt = paretoSweep(dir)
	for i := range jobs {
		jobs[i].Violation = 1
	}
	reportstest.Must(t, os.Remove(filepath.Join(dir, resultsFile)))
	reportstest.Must(t, WriteOptimizationResults(dir, jobs, opt))
	if _, err := os.Stat(filepath.Join(dir, resultsFile)); err == nil {
		t.Error("no job is feasible, and there are results")
	}
	jobs[2].Violation, jobs[2].Objectives = 0, []float64{0.5, 1}
	jobs[4].Violation, jobs[4].Objectives = 0, []float64{0.4, 0.5}
	reportstest.Must(t, WriteOptimizationResults(dir, jobs, opt))
	want = fmt.Sprintf(`name: random
solutions:
- params:
    grpo.lr: %s
    grpo.kl.beta: %s
    grpo.epochs: %s
  values:
  - 0.5
  - 1.0
`, jobs[2].Params["grpo.lr"], jobs[2].Params["grpo.kl.beta"], jobs[2].Params["grpo.epochs"])
	if got := readResults(t, dir); !strings.HasPrefix(got, want) || strings.Count(got, "- params:") != 2 {
		t.Errorf("got\n%s\nwant it to begin with\n%s", got, want)
	}
}

func readResults(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, resultsFile))
	reportstest.Must(t, err)
	return string(text)
}

func TestFailuresAreGrouped(t *testing.T) {
	jobs := simple([]string{"lr"}, column("1", "10", "10", "10", "3"), func(i int) float64 {
		if i == 0 {
			return 1
		}
		return math.NaN()
	})
	for i, cause := range []string{"", "grpo epoch 1 step 2: loss is nan", "grpo epoch 3 step 40: loss is nan",
		"grpo epoch 3 step 1.5e-3: loss is nan", "no space left"} {
		jobs[i].Cause = cause
	}
	jobs[1].Tail = []string{"\x1b[31mred\x1b[0m", "10%\r20%\rdone", "```", strings.Repeat("x", 300), "bell\a"}
	v := newView("DIR", jobs, sweeps.Options{})
	groups := v.Failures()
	if len(groups) != 2 || len(groups[0]) != 3 || len(groups[1]) != 1 {
		t.Fatalf("got %d groups", len(groups))
	}
	if got := strings.Join(v.sharedByFailures(groups[0]), " "); got != "lr=10" {
		t.Errorf("shared by the failed jobs: %q, want lr=10", got)
	}
	var d page.Document
	v.writeFailures(&d)
	for _, want := range []string{"### grpo epoch 1 step 2: loss is nan\n", "All of them have `lr=10`, and no finished job has.",
		"\n````\nred\ndone\n```\n" + strings.Repeat("x", 200) + " …\nbell\n````\n",
		"### no space left\n"} {
		if !strings.Contains(d.B.String(), want) {
			t.Errorf("no %q in\n%s", want, d.B.String())
		}
	}
}

func BenchmarkSweepReport(b *testing.B) {
	dir := b.TempDir()
	jobs, opt := tpeSweep(dir, 1000)
	for b.Loop() {
		reportstest.Must(b, WriteReport(dir, jobs, opt))
	}
}
