package board

import (
	"bufio"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/regular"
	"fulcrum/reports/curves"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
	"fulcrum/reports/webchart"
)

// refusal is an answer with a status of HTTP and a sentence.
type refusal struct {
	status int
	text   string
}

func (r refusal) Error() string { return r.text }

// detail is what a run's page shows besides its curves.
type detail struct {
	Run         entry               `json:"run"`
	Dir         string              `json:"dir"`
	SweepPath   string              `json:"sweep_path,omitempty"`
	Command     []string            `json:"command,omitempty"`
	Device      string              `json:"device,omitempty"`
	Versions    map[string]string   `json:"versions,omitempty"`
	Data        *record.DataSummary `json:"data,omitempty"`
	Best        *record.BestSummary `json:"best,omitempty"`
	Phases      []curves.Span       `json:"phases"`
	Verdict     string              `json:"verdict,omitempty"` // of the planned comparison, as a sentence of the report
	Results     []shownResult       `json:"results"`
	Notes       []string            `json:"notes,omitempty"` // on the marks of results
	Means       []record.Row        `json:"means,omitempty"` // of a run that has not ended: evaluations without intervals
	Events      []map[string]any    `json:"events"`
	Examples    []record.Example    `json:"examples"`
	Settings    map[string]string   `json:"settings"`
	Metrics     []metric            `json:"metrics"`
	Completions int64               `json:"completions"` // bytes of their file
	Files       []string            `json:"files"`
	Links       map[string]string   `json:"links,omitempty"` // addresses by name, of a server
	Damaged     int                 `json:"damaged,omitempty"`
	Log         string              `json:"log"`
}

// shownResult is a line of a table of results, with its numbers as all pages write them.
type shownResult struct {
	record.StageResult
	Level string                         `json:"level"` // mean ± SE
	Gains map[string]*results.Difference `json:"gains"` // by baseline
}

// show takes results, with the notes that their marks need.
func (d *detail) show(stages []record.StageResult) {
	var words [][]string
	d.Results = list.Map(stages, func(r record.StageResult) shownResult {
		out := shownResult{r, page.MeanSE(r.Mean, r.SE), map[string]*results.Difference{}}
		for _, y := range results.Yardsticks() {
			if p := *y.Gain(&r); p != nil {
				out.Gains[y.Policy] = results.DifferenceOf("", p)
				words = append(words, []string{out.Gains[y.Policy].Words})
			}
		}
		return out
	})
	d.Notes = stats.Notes(words)
}

type metric struct {
	Name  string `json:"name"`
	Unit  string `json:"unit,omitempty"`
	Help  string `json:"help,omitempty"`
	Epoch bool   `json:"epoch,omitempty"` // one value an epoch
}

const (
	logTail      = 16 << 10
	maxFile      = 64 << 20 // of evals.jsonl and examples.json: more is not shown
	intervalTime = 20000    // scores for which intervals are computed while a run goes on
)

// shownFiles are the files of a run that the board hands out.
func shownFiles() []string {
	return []string{"report.html", "report.md", record.RunLogFile, record.SummaryFile, record.MetricsFile, record.EvalsFile,
		record.CompletionsFile,
		configFile}
}

func (b *Board) detail(id string) (*detail, error) {
	e, ok := b.run(id)
	if !ok {
		return nil, refusal{404, "no such run"}
	}
	d := &detail{Run: e, Dir: e.dir, Results: []shownResult{}, Events: []map[string]any{}, Settings: settingsOf(e.dir),
		Examples: []record.Example{}}
	if s, ok := b.sweep(e.Sweep); ok {
		d.SweepPath = s.Path
	}
	if s, err := record.ReadSummary(e.dir); err == nil && s != nil {
		d.Command, d.Device, d.Versions, d.Data, d.Best = s.Command, s.Device, s.Versions, &s.Data, s.Best
		if s.Evaluations != nil && e.State != record.StateRunning {
			d.show(s.Evaluations)
			if planned, over, p := plannedGain(s.Evaluations); p != nil {
				d.Verdict = page.Capital(p.Sentence(planned.Subject(), over.Long, results.MetricName(planned.Metric))) + "."
			}
		}
	}
	err := b.rows(id, e.dir, func(c *curves.Curves, _ bool) {
		d.Phases, d.Metrics, d.Damaged = slices.Clone(c.Phases), metricsOf(c), c.Damaged
		for _, row := range c.EventRows() {
			row.Fields["phase"], row.Fields["epoch"], row.Fields["step"], row.Fields["time"] = row.Phase, row.Epoch, row.GlobalStep, row.Time
			d.Events = append(d.Events, row.Fields)
		}
		if len(d.Results) == 0 {
			d.Means = c.EvalRows()
		}
	})
	if err != nil {
		return nil, err
	}
	if len(d.Results) == 0 && sizeOf(e.dir, record.EvalsFile) < maxFile {
		if evals, err := record.ReadEvals(e.dir); err == nil && scores(evals) < intervalTime {
			if stages, err := results.StagesOf(&record.Run{Evaluations: evals}); err == nil {
				d.show(stages)
			}
		}
	}
	const examplesFile = "examples.json"
	if sizeOf(e.dir, examplesFile) < maxFile {
		_ = record.ReadJSON(filepath.Join(e.dir, examplesFile), &d.Examples) // damaged: none
		for i := range d.Examples {
			x := &d.Examples[i]
			x.Question, x.Pictures = x.Pictures.Asked(x.Question), inlined(e.dir, x.Pictures)
		}
	}
	d.Completions = sizeOf(e.dir, record.CompletionsFile)
	d.Files = list.Filter(shownFiles(), func(name string) bool { return sizeOf(e.dir, name) > 0 })
	d.Log, _ = tailOf(filepath.Join(e.dir, record.RunLogFile), logTail)
	return d, nil
}

func scores(evals []record.Evaluation) int {
	n := 0
	for _, e := range evals {
		n += len(e.Scores)
	}
	return n
}

func sizeOf(dir, name string) int64 {
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return info.Size()
}

// settingsOf returns a run's configuration as dotted keys, none where it cannot be read.
func settingsOf(dir string) map[string]string {
	flat, err := record.Settings(dir)
	if err != nil {
		return map[string]string{}
	}
	return flat
}

// metricsOf lists what a run has curves of, in the order of docs/metrics.md.
func metricsOf(c *curves.Curves) []metric {
	known := map[string]record.Metric{}
	for _, m := range record.Metrics() {
		known[m.Name] = m
	}
	names := list.Unique(slices.Concat(c.Steps.Names, c.Epochs.Names))
	record.NewMetricOrder().Sort(names)
	list := []metric{}
	for _, name := range names {
		steps := c.Steps.Of(name) != nil
		list = append(list, metric{name, known[name].Unit, known[name].Help, !steps})
	}
	return list
}

// tailOf returns the end of a text file, from a line's beginning.
func tailOf(path string, n int64) (string, error) {
	f, err := regular.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	from := max(info.Size()-n, 0)
	data, err := io.ReadAll(io.NewSectionReader(f, from, n))
	text := strings.ToValidUTF8(string(data), "\uFFFD")
	if _, after, ok := strings.Cut(text, "\n"); ok && from > 0 {
		text = after
	}
	return text, err
}

// curvesAnswer is what a run's charts show.
type curvesAnswer struct {
	Version  string          `json:"version"`
	Same     bool            `json:"same,omitempty"` // nothing has changed since the version that was asked about
	Complete bool            `json:"complete"`
	Read     float64         `json:"read"` // share of the file
	Started  float64         `json:"started"`
	Phases   []curves.Span   `json:"phases"`
	Steps    *webchart.Drawn `json:"steps"`
	Epochs   *webchart.Drawn `json:"epochs"`
	System   *webchart.Drawn `json:"system,omitempty"` // GB in use
}

// systemOf is what a run has in use, at no more than points of its lines; nil where it tells nothing.
func systemOf(dir string, points int) *webchart.Drawn {
	lines, err := record.ReadSystem(dir)
	if err != nil || len(lines) == 0 {
		return nil // charts of a damaged file would be no help either
	}
	d := &webchart.Drawn{Series: map[string]*webchart.DrawnColumn{}}
	for i := 0; i < len(lines); i += 1 + len(lines)/points {
		l := lines[i]
		d.Steps, d.Times = append(d.Steps, int64(l.GlobalStep)), append(d.Times, l.Time)
		for name, bytes := range map[string]float64{"memory": l.Memory, "memory_peak": l.MemoryPeak, "gpu": l.GPU, "gpu_peak": l.GPUPeak,
			"gpu_free": l.GPUFree} {
			d.Series[name] = cmp.Or(d.Series[name], &webchart.DrawnColumn{})
			d.Series[name].Mean = append(d.Series[name].Mean, bytes/1e9)
		}
	}
	maps.DeleteFunc(d.Series, func(_ string, c *webchart.DrawnColumn) bool { return slices.Max(c.Mean) == 0 }) // there is no GPU
	return d
}

// curves answers what charts ask: names (a list with commas; none means all), points, from and to (global steps), since
// (the version that is known), hist.
func (b *Board) curves(id string, q url.Values) (*curvesAnswer, error) {
	e, ok := b.run(id)
	if !ok {
		return nil, refusal{404, "no such run"}
	}
	var names []string
	if q.Get("names") != "" {
		names = strings.Split(q.Get("names"), ",")
	}
	points := within(q.Get("points"), 600, 10, curves.Capacity)
	from, to := within(q.Get("from"), 0, 0, math.MaxInt), within(q.Get("to"), 0, 0, math.MaxInt)
	a := &curvesAnswer{}
	var fault error
	err := b.rows(id, e.dir, func(c *curves.Curves, complete bool) {
		a.Version = strconv.FormatInt(c.Offset, 36) + "." + strconv.Itoa(c.Steps.Rows)
		a.Complete, a.Started = complete, c.Started
		if size := sizeOf(e.dir, record.MetricsFile); size > 0 {
			a.Read = float64(c.Offset) / float64(size)
		}
		if a.Version == q.Get("since") {
			a.Same = true
			return
		}
		a.Phases = slices.Clone(c.Phases)
		steps := c.Steps
		if to > 0 {
			low, high := steps.Between(int64(from), int64(to))
			if steps.Width > 1 && high-low < curves.Capacity/4 { // a part of a long run: finer than the index
				if steps, fault = c.Window(e.dir, int64(from), int64(to)); fault != nil {
					return
				}
			} else {
				steps = steps.Cut(low, high)
			}
		}
		a.Steps = curves.DrawnOf(steps, names, points, q.Get("hist") != "")
		a.Epochs = curves.DrawnOf(c.Epochs, names, points, false)
		a.System = systemOf(e.dir, points)
	})
	return a, errors.Join(err, fault)
}

// within reads a whole number between low and high.
func within(text string, otherwise, low, high int) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return otherwise
	}
	return min(max(n, low), high)
}

// completionsAnswer is a piece of completions.jsonl, and where the piece before it ends.
type completionsAnswer struct {
	Rows   []record.SampledCompletion `json:"rows"`
	Before int64                      `json:"before"` // 0: there is nothing before
	Size   int64                      `json:"size"`
}

const completionsPiece = 192 << 10

// completions returns the completions that stand before a byte of the file; 0 means its end.
func (b *Board) completions(id string, q url.Values) (*completionsAnswer, error) {
	e, ok := b.run(id)
	if !ok {
		return nil, refusal{404, "no such run"}
	}
	a := &completionsAnswer{Rows: []record.SampledCompletion{}, Size: sizeOf(e.dir, record.CompletionsFile)}
	end := a.Size
	if at, err := strconv.ParseInt(q.Get("before"), 10, 64); err == nil && at > 0 && at < end {
		end = at
	}
	f, err := regular.Open(filepath.Join(e.dir, record.CompletionsFile))
	if errors.Is(err, os.ErrNotExist) {
		return a, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	from := max(end-completionsPiece, 0)
	shown := ""
	in := bufio.NewReaderSize(io.NewSectionReader(f, from, end-from), 1<<16)
	if from > 0 { // the middle of a line
		_, length, _, err := curves.ReadLine(in)
		if err != nil {
			return nil, err
		}
		from += length
		a.Before = from
	}
	for {
		line, _, whole, err := curves.ReadLine(in)
		if err != nil || !whole {
			return a, err
		}
		var c record.SampledCompletion
		if jsonwords.Unmarshal(line, &c) == nil {
			c.Tokens, c.Question = nil, c.Pictures.Asked(c.Question)
			if group := fmt.Sprint(c.Phase, c.Epoch, c.Step, c.QueryID); group != shown { // once a group
				shown, c.Pictures = group, inlined(e.dir, c.Pictures)
			} else {
				c.Pictures = nil
			}
			a.Rows = append(a.Rows, c)
		}
	}
}

// inlined returns small pictures of a run as data, for the page. What is no picture of the run, or a link out of its folder, is
// left out.
func inlined(dir string, pictures record.Pictures) record.Pictures {
	const largest = 256 << 10
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil
	}
	defer root.Close()
	var out record.Pictures
	for _, name := range pictures.Shown() {
		if info, err := root.Stat(name); err != nil || !info.Mode().IsRegular() || info.Size() > largest {
			continue
		}
		if data, err := regular.ReadIn(root, name); err == nil {
			out = append(out, "data:image/jpeg;base64,"+base64.StdEncoding.EncodeToString(data))
		}
	}
	return out
}
