package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/account"
	"fulcrum/internal/list"
	"fulcrum/internal/regular"
	"fulcrum/internal/rng"
	"fulcrum/internal/stat"
	"fulcrum/internal/visible"
	"fulcrum/reports/chart"
	"fulcrum/reports/compare"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/runreport"
	"fulcrum/reports/stats"
	"fulcrum/reports/sweepreport"
	"fulcrum/reports/sweeps"
)

// summary writes summary.json again as far as rows and scores decide it.
func (c *runCheck) summary() error {
	s := c.run.Summary
	if s == nil {
		c.note("there is no %s: the run has not ended", record.SummaryFile)
		return nil
	}
	again := *s
	again.Phases, again.Warnings, again.Findings, again.Resumes = []record.PhaseSummary{}, []string{}, slices.Clone(s.Findings)[:0], 0
	again.Best, again.Overrides = c.best(s.Best), c.run.Overrides
	again.AddRecorded(c.run)
	again.Account = c.account(s)
	for i := len(again.Findings); i < len(s.Findings); i++ { // the doctor's words about the machine are in no row
		if f := s.Findings[i]; !slices.ContainsFunc(c.run.Events, func(e record.Row) bool { return e.Text("event") == f.Check }) {
			again.Findings = append(again.Findings, f)
		}
	}
	var err error
	if again.Evaluations, err = results.Stages(c.run.Evaluations, stats.DefaultOptions()); err != nil {
		return err
	}
	if seed, ok := c.run.SettingNumber("seed"); ok {
		again.Seed = int64(seed)
	}
	stated, err := json.MarshalIndent(s, "", "  ") // as it is read: another version may say more, and another task writes its own part
	if c.Other == "" && s.Evaluation == nil {
		stated, err = regular.ReadFile(filepath.Join(c.dir, record.SummaryFile))
	}
	if err != nil {
		return err
	}
	recomputed, err := json.MarshalIndent(again, "", "  ")
	if err != nil {
		return err
	}
	c.compareText(record.SummaryFile, strings.TrimSpace(string(stated)), string(recomputed))
	c.checked("%s", record.SummaryFile)
	c.unfinished(s)
	return nil
}

// account counts again which queries each phase saw: in every epoch as many as it says, each once, in the order that the seed gives them.
// The order is written out here: were it the scheduler's own, a fault in it would pass.
func (c *runCheck) account(s *record.Summary) []account.Of {
	seed, _ := c.run.SettingNumber("seed")
	shuffle, _ := c.run.Setting("data", "shuffle").(bool)
	most := 0 // of any split; a number that was changed may be huge
	for _, n := range s.Data.Counts {
		most = max(most, n)
	}
	return list.Map(s.Account, func(stated account.Of) account.Of {
		again := account.Of{Phase: stated.Phase, Queries: min(max(stated.Queries, 0), most)}
		again.PerEpoch = min(max(stated.PerEpoch, 0), again.Queries)
		for _, p := range s.Phases {
			for epoch := 1; p.Name == stated.Phase && epoch <= p.Epochs; epoch++ {
				order := stat.Indices(again.Queries)
				if shuffle {
					order = rng.New(int64(seed), "shuffle "+p.Name, epoch).Perm(again.Queries)
				}
				again.Add(order[:again.PerEpoch]...)
			}
		}
		return again
	})
}

// readEvents reads the records with values of a run's events.out.tfevents files. It is nil where there are none.
func (c *runCheck) readEvents() (map[string]bool, error) {
	paths, err := regular.Glob(c.dir, record.EventFilesPattern)
	if err != nil || len(paths) == 0 || c.Other != "" {
		return nil, err
	}
	events := map[string]bool{}
	for _, path := range paths {
		data, err := regular.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if n, err := record.EachEvent(data, func(payload []byte) { events[string(payload)] = true }); err != nil {
			c.mismatch(Mismatch{File: filepath.Base(path), What: fmt.Sprintf("record %d", n), Stated: "an event", Recomputed: err.Error()})
		}
	}
	return events, nil
}

// plots draws every plot that the folder holds again.
func (c *runCheck) plots() error {
	n := 0
	for _, maker := range runreport.Figures() {
		before := len(c.drawn)
		if err := c.plot(c.dir, maker.Name, maker.Make(c.run), false); err != nil {
			return err
		}
		n += min(1, len(c.drawn)-before)
	}
	if n > 0 {
		c.checked("%s drawn again", page.Plural(n, "plot"))
	}
	return nil
}

// plot compares the files of one figure, which is nil when the records have nothing to show in it. Whether there must be files a run's
// report says itself: it lists them.
func (v *Verification) plot(dir, name string, f *chart.Figure, must bool) error {
	for _, ending := range []string{".svg", ".png"} {
		file := runreport.PlotsFolder + "/" + name + ending
		if _, err := os.Stat(filepath.Join(dir, file)); os.IsNotExist(err) {
			if must && v.Other == "" {
				v.mismatch(Mismatch{File: file, Stated: "no file", Recomputed: "a plot"})
			}
			continue
		}
		if f == nil {
			v.mismatch(Mismatch{File: file, Stated: "a plot", Recomputed: "nothing to draw"})
			continue
		}
		draw := f.Png
		if ending == ".svg" {
			draw = f.Svg
		}
		data, err := draw()
		if err != nil {
			return fmt.Errorf("plot %s: %w", name, err)
		}
		v.drawn[file] = data
		if _, err := v.compareFile(dir, file, data); err != nil {
			return err
		}
	}
	return nil
}

// report writes report.md and report.html again.
func (c *runCheck) report() error {
	if c.run.Setting("task") != "train" && c.run.Summary != nil && c.run.Summary.Task != "train" {
		return nil // other tasks write theirs themselves
	}
	text, err := runreport.ReportOf(c.run)
	if err != nil {
		return err
	}
	more, err := runreport.Explore(c.run)
	if err != nil {
		return err
	}
	return c.CompareReport(c.dir, text, more)
}

// CompareReport compares report.md and report.html of a folder with the text, and the page's script, that the records give. The plots
// of the page are those drawn again. A folder may have no page.
func (v *Verification) CompareReport(dir, text string, more page.Lively) error {
	there, err := v.compareFile(dir, page.ReportFile, []byte(visible.Text(text)))
	if err != nil || !there {
		if !there {
			v.mismatch(Mismatch{File: page.ReportFile, Stated: "no file", Recomputed: "a report (`run report FOLDER` writes it)"})
		}
		return err
	}
	v.checked("%s of %s", page.Plural(strings.Count(text, "\n"), "line"), page.ReportFile)
	read := func(name string) ([]byte, error) {
		if drawn, ok := v.drawn[name]; ok {
			return drawn, nil
		}
		return regular.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	}
	if there, err = v.compareFile(dir, page.HtmlFile, page.LivelyHTML(text, read, more)); there {
		v.checked("%s", page.HtmlFile)
	}
	return err
}

// markup is what stands in a page or an SVG besides its words.
var markup = regexp.MustCompile(`(?s)<(script|style)\b.*?</(script|style)>|<[^>]*>`)

// compareFile compares a file with its bytes, if it is there. Where another version wrote it, these are the words of a page or an SVG, and
// no bytes of a PNG: places of curves and the data of scripts are that version's.
func (v *Verification) compareFile(dir, file string, recomputed []byte) (there bool, err error) {
	stated, err := regular.ReadFile(filepath.Join(dir, filepath.FromSlash(file)))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return false, err
	}
	words := func(text []byte) []byte { // in the lines that they stand in
		return markup.ReplaceAllFunc(text, func(tag []byte) []byte {
			return append(bytes.Repeat([]byte("\n"), bytes.Count(tag, []byte("\n"))), ' ')
		})
	}
	switch ending := filepath.Ext(file); {
	case ending == ".png" && v.Other == "" && !bytes.Equal(stated, recomputed):
		v.mismatch(Mismatch{File: file, Stated: fmt.Sprintf("a picture of %d bytes", len(stated)),
			Recomputed: fmt.Sprintf("another one, of %d", len(recomputed))})
	case ending == ".png":
	case ending != ".md" && v.Other != "":
		v.compareText(file, string(words(stated)), string(words(recomputed)))
	default:
		v.compareText(file, string(stated), string(recomputed))
	}
	return true, nil
}

// compareText makes one mismatch of every line that differs; of a file of another version, of every line with a number that the records
// do not give: the words around it are that version's.
func (v *Verification) compareText(file, stated, recomputed string) {
	if stated == recomputed {
		return
	}
	const most = 20
	n, lines := 0, strings.Split(recomputed, "\n") // that version may have them in another order
	for _, d := range compare.DiffLines(strings.Split(stated, "\n"), lines) {
		known := numbers(strings.Join(d.Recomputed, "\n"))
		if v.Other != "" && len(d.Recomputed) == 0 {
			known = numbers(recomputed)
		}
		for i := range max(len(d.Stated), len(d.Recomputed)) {
			if v.Other != "" && (i >= len(d.Stated) || allIn(numbers(d.Stated[i]), known) || slices.Contains(lines, d.Stated[i])) {
				continue
			}
			if n++; n > most {
				continue
			}
			m := Mismatch{File: file, Line: d.At + min(i, max(len(d.Stated)-1, 0))}
			m.Stated, m.Recomputed = d.Quoted(i, "no such line", 160)
			v.mismatch(m)
		}
	}
	if n > most {
		v.mismatch(Mismatch{File: file, Stated: page.Plural(n-most, "more line"), Recomputed: "other ones"})
	}
}

// rounded is a number as a file shows it.
type rounded struct {
	x, step float64 // step: one in its last digit
}

var numeral = regexp.MustCompile(`\d+(\.\d+)?([eE][-+]?\d+)?`)

// numbers are the numerals of a text, without their signs.
func numbers(text string) []rounded {
	var out []rounded
	for _, s := range numeral.FindAllString(strings.ReplaceAll(text, ",", ""), -1) { // 1,024 is one number
		x, err := strconv.ParseFloat(s, 64)
		if err != nil {
			continue // too large
		}
		mantissa, exponent, _ := strings.Cut(strings.ToLower(s), "e")
		_, fraction, _ := strings.Cut(mantissa, ".")
		e, _ := strconv.Atoi(exponent) // none: 0
		out = append(out, rounded{x, math.Pow10(e - len(fraction))})
	}
	return out
}

// allIn reports whether every number is among the known ones, up to what the rounding of either or the order of a sum makes of it.
func allIn(numbers, known []rounded) bool {
	return !slices.ContainsFunc(numbers, func(a rounded) bool {
		return !slices.ContainsFunc(known, func(b rounded) bool {
			return a == b || sameNumber(a.x, b.x) || a.step != b.step && math.Abs(a.x-b.x) <= 0.51*max(a.step, b.step)
		})
	})
}

// Sweep writes a sweep's report again from its ledger's jobs and their summaries, draws its plots again, and adds what differs in its
// folder to v, what VerifyRun found in its jobs.
func (v *Verification) Sweep(dir string, jobs []sweeps.Job, opt sweeps.Options) error {
	sweep := sweepreport.PageOf(dir, jobs, opt)
	figures := sweep.Figures()
	for _, f := range figures {
		if err := v.plot(dir, f.Figure.Name, f.Figure, true); err != nil {
			return err
		}
	}
	if len(figures) > 0 {
		v.checked("%s drawn again", page.Plural(len(figures), "plot"))
	}
	more, err := sweep.Explore()
	if err != nil {
		return err
	}
	return v.CompareReport(dir, sweep.Report(figures), more)
}
