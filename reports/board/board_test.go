package board

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"fulcrum/internal/testkit/golden"
	"fulcrum/reports/curves"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/sweeps"
)

const config = `task: train
seed: 3
schedule: [rce, grpo]
rce: {epochs: 1, lr: 0.001}
grpo: {epochs: 2, lr: 0.0005}
`

// stepRows are rows of steps from to to, of one phase; the loss of step i is 1/i, and 1000 at a spike.
func stepRows(phase string, from, to, spike int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		loss := 1 / float64(i)
		if i == spike {
			loss = 1000
		}
		fmt.Fprintf(&b, `{"kind":"step","phase":%q,"epoch":1,"step":%d,"global_step":%d,"time":%d.5,"loss":%g,"kl":0.01,"adv_hist":[1,2,3]}`+"\n",
			phase, i, i, 1700000000+i, loss)
	}
	return b.String()
}

func epochRow(phase string, epoch, step int, reward float64) string {
	return fmt.Sprintf(`{"kind":"epoch","phase":%q,"epoch":%d,"step":%d,"global_step":%d,"time":%d,"val_reward":%g}`+"\n", phase, epoch, step,
		step, 1700000000+step, reward)
}

// finishedRun writes a run that has ended, whose policy gains over similarity by about gain on 40 questions.
func finishedRun(t testing.TB, dir string, gain float64) {
	t.Helper()
	golden.Write(t, dir, map[string]string{configFile: config, ".hydra/overrides.yaml": "- grpo.lr=0.0005\n- seed=3\n",
		record.MetricsFile: stepRows("rce", 1, 10, 0) + epochRow("rce", 1, 10, 0.3) + stepRows("grpo", 11, 30, 0) + epochRow("grpo", 1, 20, 0.4) +
			epochRow("grpo", 2, 30, 0.5), record.RunLogFile: "a line\n"})
	similarity := record.Evaluation{Split: "dev", Policy: record.PolicySimilarity, Metric: "reward"}
	best := record.Evaluation{Split: "dev", Policy: record.PolicyBest, Phase: "grpo", Epoch: 2, Metric: "reward"}
	for i := range 40 {
		base := float64(i%7) / 10
		similarity.QueryIDs, similarity.Scores = append(similarity.QueryIDs, int64(i)), append(similarity.Scores, base)
		best.QueryIDs, best.Scores = append(best.QueryIDs, int64(i)), append(best.Scores, base+gain*(1+float64(i%3)/10))
	}
	if err := record.AppendEvals(dir, similarity, best); err != nil {
		t.Fatal(err)
	}
	if err := results.WriteSummary(dir, record.Summary{State: record.StateDone, Title: "okvqa_v3", Task: "train",
		Start:     "2026-01-02T03:04:05Z",
		Overrides: []string{"grpo.lr=0.0005", "seed=3"}, WallSeconds: 12}); err != nil {
		t.Fatal(err)
	}
}

// boardOf opens a board on a folder in which nothing is at work but the runs in locked.
func boardOf(dir string, locked ...string) *Board {
	return Open(Options{Roots: []string{dir}, Locked: func(d string) bool { return slices.Contains(locked, d) },
		Sweep: func(string) (sweeps.Options, []sweeps.Job, error) { return sweeps.Options{}, nil, nil }})
}

func (b *Board) entryAt(t testing.TB, dir string) entry {
	t.Helper()
	e, ok := b.run(idOf(dir))
	if !ok {
		t.Fatalf("the board does not know %s", dir)
	}
	return e
}

// A run goes from its start to its end while it is watched, with a torn line on the way.
func TestRunIsFollowed(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "2026-01-02", "03-04-05")
	golden.Write(t, dir, map[string]string{configFile: config, ".hydra/overrides.yaml": "- exp=okvqa_v3\n"})
	b := boardOf(root, dir)
	b.Scan(true)
	if e := b.entryAt(t, dir); e.State != record.StateRunning || e.Step != 0 || e.Title != "okvqa_v3" || *e.Seed != 3 {
		t.Errorf("a run that begins: %+v", e)
	}
	rows := stepRows("rce", 1, 10, 0) + epochRow("rce", 1, 10, 0.3) + stepRows("grpo", 11, 20, 0)
	torn := `{"kind":"step","phase":"grpo","epo`
	golden.Write(t, dir, map[string]string{record.MetricsFile: rows + torn})
	b.Scan(true)
	e := b.entryAt(t, dir)
	if e.Step != 20 || e.Phase != "grpo" || *e.Best != 0.3 || e.Progress == nil || *e.Progress < 0.3 || *e.Progress > 0.7 {
		t.Errorf("in the middle: %+v", e)
	}
	a, err := b.curves(e.ID, url.Values{})
	if err != nil || len(a.Steps.Steps) != 20 || a.Steps.Series["loss"].Mean[19] != 1.0/20 || !a.Complete {
		t.Errorf("curves: %+v, %v", a, err)
	}
	golden.Write(t, dir, map[string]string{record.MetricsFile: rows + "not JSON\n" + stepRows("grpo", 21, 21, 0)})
	b.Scan(true)
	d, err := b.detail(e.ID)
	if err != nil || d.Damaged != 1 || d.Run.Step != 21 {
		t.Errorf("with a damaged line: %d damaged, step %d, %v; want 1 and step 21", d.Damaged, d.Run.Step, err)
	}
	// Killed, and resumed from its first epoch: rows are cut off and written anew.
	golden.Write(t, dir, map[string]string{record.MetricsFile: stepRows("rce", 1, 10, 0) + epochRow("rce", 1, 10, 0.3) + strings.ReplaceAll(
		stepRows("grpo", 11, 30, 0), `"kl":0.01`, `"kl":0.02`)})
	b = boardOf(root)
	b.Scan(true)
	if e := b.entryAt(t, dir); e.State != record.StateKilled || e.Step != 30 || e.Left != nil {
		t.Errorf("a killed run: %+v", e)
	}
	golden.Write(t, dir, map[string]string{record.SummaryFile: `{"state":"interrupted","evaluations":[{"split":"val","policy":"rce","metric":"reward","mean":0.3}]}`})
	b.Scan(true)
	if e := b.entryAt(t, dir); e.State != record.StateInterrupted || e.Policy != "rce" || e.Progress == nil || *e.Progress > 0.7 {
		t.Errorf("an interrupted run: %+v", e)
	}
	c := curves.New()
	golden.Write(t, dir, map[string]string{record.MetricsFile: stepRows("rce", 1, 10, 0) + epochRow("rce", 1, 10, 0.3) +
		`{"kind":"event","phase":"rce","epoch":1,"step":0,"global_step":10,"time":1700009010,"event":"resume"}` + "\n" +
		strings.ReplaceAll(epochRow("rce", 2, 20, 0.3), "1700000020", "1700009020")})
	if _, err := c.Update(dir, 1<<20); err != nil {
		t.Fatal(err)
	}
	if _, left, _ := progressOf(c.Phases, []string{"rce"}, map[string]int{"rce": 4}, c.Updated); left == nil || *left > 60 {
		t.Errorf("2 epochs of about 10 s are left, not %v: the pause before the resume counts as work", *left)
	}
	e = entry{}
	if e.follow(c); e.Seconds > 30 {
		t.Errorf("it took 20 s, not %v: the pause counts", e.Seconds)
	}
	finished := filepath.Join(root, "done")
	finishedRun(t, finished, 0.2)
	b.Scan(true)
	if e := b.entryAt(t, finished); e.State != record.StateDone || e.Gain == nil || e.Gain.Verdict != "better" || e.Over != "similarity" ||
		e.Gain.Low > e.Gain.Mean || e.Gain.High < e.Gain.Mean || math.Abs(*e.Best-*e.Baseline-e.Gain.Mean) > 1e-9 {
		t.Errorf("a run that is done: %+v", e)
	}
	golden.Write(t, finished, map[string]string{NotesFile: `{"tags":["later"]}`})
	b.scanned = time.Time{}.Add(1)
	b.Scan(false)
	if e := b.entryAt(t, finished); !slices.Equal(e.Tags, []string{"later"}) {
		t.Errorf("the first look behind another program's note on a run that is done: tags %q", e.Tags)
	}
	before := b.list(0, 0).Version
	if err := os.RemoveAll(finished); err != nil {
		t.Fatal(err)
	}
	b.scanned = time.Time{}.Add(1)
	b.Scan(false)
	if a := b.list(before, 0); len(a.Runs) != 0 || !slices.Equal(a.Gone, []string{idOf(finished)}) {
		t.Errorf("after its folder was removed: %+v", a)
	}
}

// A run is judged by the first measure of its table, as in its report; one without an end by the same.
func TestJudgedAsTheReport(t *testing.T) {
	root := t.TempDir()
	ended, killed := filepath.Join(root, "ended"), filepath.Join(root, "killed")
	recordedRun(t, ended)
	both := strings.Replace(epochRow("rce", 1, 10, 0.4), `"val_reward":0.4`, `"val_accuracy":0.9,"val_recorded_reward":0.4`, 1) +
		`{"kind":"eval","phase":"init","epoch":0,"step":0,"global_step":0,"time":1,"split":"val","policy":"init","recorded_reward":0.2}` + "\n"
	golden.Write(t, killed, map[string]string{configFile: config, record.MetricsFile: stepRows("rce", 1, 10, 0) + both})
	b := boardOf(root)
	b.Scan(true)
	e := b.entryAt(t, ended)
	if e.Metric != "recorded_reward" || e.Split != "val" || *e.Best > 0.6 || e.Over != "random" || e.Gain.Verdict != "better" {
		t.Errorf("ended: %s on %s over %s, score %v, gain %+v", e.Metric, e.Split, e.Over, *e.Best, e.Gain)
	}
	if e := b.entryAt(t, killed); e.Metric != "recorded_reward" || *e.Best != 0.4 || e.Over != "initial policy" {
		t.Errorf("killed: %s %v over %s, want recorded_reward 0.4 over the initial policy", e.Metric, *e.Best, e.Over)
	}
}

// The page writes numbers and verdicts as the report's tables do: scores with the digits of their error, verdicts with what keeps them open
// and their marks, which are explained, and equal scores as such.
func TestWrittenAsTheReport(t *testing.T) {
	root := t.TempDir()
	for name, gain := range map[string]float64{"rough": 0.1, "same": 0} {
		finishedRun(t, filepath.Join(root, name), gain)
	}
	b := boardOf(root)
	b.Scan(true)
	for name, want := range map[string][]string{
		"rough": {"0.397", "better †", "The best policy (grpo epoch 2) is better than similarity: +0.1098 reward per question", "† rough: "},
		"same":  {"0.287", "same scores", "The best policy (grpo epoch 2) and similarity score the same on every one of 40 questions"}} {
		d, err := b.detail(idOf(filepath.Join(root, name)))
		if err != nil {
			t.Fatal(err)
		}
		e := b.entryAt(t, filepath.Join(root, name))
		of := slices.IndexFunc(d.Results, func(r shownResult) bool { return r.Policy == record.PolicyBest })
		got := []string{e.Score, e.Gain.Words, d.Verdict, strings.Join(d.Notes, " ")}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) || i == 1 && d.Results[of].Gains[record.PolicySimilarity].Words != want[i] {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if len(want) > len(d.Notes)+3 || name == "same" && d.Notes != nil {
			t.Errorf("%s: notes %q", name, d.Notes)
		}
	}
}

// A single step among many keeps its minimum and maximum, and a window shows it alone.
func TestDecimationKeepsExtremes(t *testing.T) {
	dir := t.TempDir()
	const rows, spike = 50000, 31234
	golden.Write(t, dir, map[string]string{record.MetricsFile: stepRows("grpo", 1, rows, spike), configFile: config})
	b := boardOf(dir)
	b.Scan(true)
	a, err := b.curves(idOf(dir), url.Values{"points": {"300"}})
	if err != nil {
		t.Fatal(err)
	}
	loss := a.Steps.Series["loss"]
	if n := len(a.Steps.Steps); n > 300 || slices.Max(loss.Max) != 1000 || slices.Min(loss.Min) != 1.0/rows {
		t.Errorf("%d points with losses from %g to %g, want at most 300 from %g to 1000", n, slices.Min(loss.Min), slices.Max(loss.Max), 1.0/rows)
	}
	a, err = b.curves(idOf(dir), url.Values{"points": {"300"}, "from": {"31200"}, "to": {"31260"}})
	if err != nil {
		t.Fatal(err)
	}
	at := slices.Index(a.Steps.Steps, spike)
	if at < 0 || a.Steps.Width != 1 || a.Steps.Series["loss"].Mean[at] != 1000 {
		t.Errorf("a window of 60 steps has %d points of %d rows: want step %d with a loss of 1000", len(a.Steps.Steps), a.Steps.Width, spike)
	}
	var sum float64
	for _, h := range a.Steps.Hist {
		sum += h[0]
	}
	if len(a.Steps.Hist) != 0 {
		t.Errorf("nobody asked for histograms: %g", sum)
	}
}

// What stands in runs is hostile: names, texts, links. Nothing of it is markup, leads out of its folder or breaks the list.
func TestHostileRuns(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	const script = `<script>alert(1)</script>"'&`
	name := "<img src=x onerror=alert(1)>"
	dir := filepath.Join(root, name)
	golden.Write(t, outside, map[string]string{"secret": "SECRET FILE", "report.html": "OUTSIDE"})
	golden.Write(t, dir, map[string]string{
		configFile: "a: '" + strings.ReplaceAll(script, "'", "''") + "'\n", ".hydra/overrides.yaml": "- x\n",
		record.MetricsFile: `{"kind":"event","phase":"x","epoch":0,"step":0,"global_step":0,"time":1,"event":"e","severity":"warning",` +
			`"message":"` +
			`<script>alert(2)<\/script>"}` + "\n", record.SummaryFile: `{"state":"<b>done</b>","title":"</script>"}`,
		"report.md": "# x", "pictures/00000000000000aa.jpg": "A PICTURE", record.CompletionsFile: `{"phase":"a","text":"<i>","pictures":[` +
			`"pictures/00000000000000aa.jpg","pictures/00000000000000bb.jpg","pictures/../report.md","/etc/passwd","javascript:alert(1)"]}` +
			"\n{torn"})
	if err := os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "pictures/00000000000000bb.jpg")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "report.html"), filepath.Join(dir, "report.html")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(root, filepath.Join(root, "loop")); err != nil {
		t.Fatal(err)
	}
	for i, damage := range []string{"{", "[]", `{"state":5}`, "\xff\xfe", strings.Repeat("[", 100000)} {
		golden.Write(t, filepath.Join(root, fmt.Sprint("damaged", i)), map[string]string{configFile: damage, ".hydra/overrides.yaml": damage,
			record.MetricsFile: damage + "\n",
			record.SummaryFile: damage, NotesFile: damage, record.EvalsFile: damage + "\n", "examples.json": damage,
			record.CompletionsFile: damage + "\n"})
	}
	b := boardOf(root)
	s := serverOf(b)
	w := call(s, "GET", "/api/runs", "", nil)
	var list listAnswer
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list.Runs) != 6 {
		t.Fatalf("%d runs (%v), want 6: %s", len(list.Runs), err, w.Body)
	}
	if strings.Contains(w.Body.String(), "<") || w.Header().Get("Content-Type") != "application/json; charset=utf-8" {
		t.Error("the list has characters of HTML: they must be escapes")
	}
	for _, e := range list.Runs {
		for _, path := range []string{"", "/curves", "/completions"} {
			if w := call(s, "GET", "/api/run/"+e.ID+path, "", nil); w.Code != 200 || strings.Contains(w.Body.String(), "<") {
				t.Errorf("%s%s: %d %.200s", e.Path, path, w.Code, w.Body)
			}
		}
	}
	id := idOf(dir)
	a, err := b.completions(id, nil)
	if picture := "data:image/jpeg;base64," + base64.StdEncoding.EncodeToString([]byte("A PICTURE")); err != nil || len(a.Rows) != 1 ||
		!slices.Equal(a.Rows[0].Pictures, record.Pictures{picture}) {
		t.Errorf("pictures: %v, %+v, want the run's own alone", err, a)
	}
	for path, want := range map[string]int{"report.md": 200, "report.html": 404, "secret": 404, "..%2fsecret": 404,
		".lock": 404, "checkpoints/x": 404} {
		w := call(s, "GET", "/run/"+id+"/file/"+path, "", nil)
		if w.Code != want || w.Code == 200 && !strings.HasPrefix(w.Header().Get("Content-Security-Policy"), "sandbox;") {
			t.Errorf("file %s: %d with policy %q, want %d in a sandbox", path, w.Code, w.Header().Get("Content-Security-Policy"), want)
		}
	}
	w = call(s, "GET", "/api/compare?ids="+id+","+list.Runs[0].ID+","+list.Runs[1].ID, "", nil)
	if w.Code != 200 || strings.Contains(w.Body.String(), "<script") {
		t.Errorf("comparison: %d %.300s", w.Code, w.Body)
	}
}

// A run whose folder went since the last look has no empty curves, by which a page would replace what it shows.
func TestCurvesOfARunThatWent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	finishedRun(t, dir, 0.1)
	s := serverOf(boardOf(filepath.Dir(dir)))
	call(s, "GET", "/api/runs", "", nil)
	path := "/api/run/" + idOf(dir) + "/curves"
	if w := call(s, "GET", path, "", nil); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if err := os.Rename(dir, dir+"2"); err != nil {
		t.Fatal(err)
	}
	if w := call(s, "GET", path, "", nil); w.Code != 404 {
		t.Errorf("%d %.200s", w.Code, w.Body)
	}
}

func TestNotes(t *testing.T) {
	dir := t.TempDir()
	finishedRun(t, dir, 0.1)
	before, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	b := boardOf(dir)
	s := serverOf(b)
	call(s, "GET", "/api/runs", "", nil)
	path := "/api/run/" + idOf(dir) + "/notes"
	if w := call(s, "PUT", path, `{"note":"good <b>","tags":["a b"," a  b ","x",""]}`, nil); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if n, _ := readNotes(dir); n.Note != "good <b>" || !slices.Equal(n.Tags, []string{"a b", "x"}) {
		t.Errorf("saved %+v", n)
	}
	for _, bad := range []string{"", "[]", `{"note":5}`, `{"note":"` + strings.Repeat("x", maxNote+1) + `"}`,
		`{"tags":["` + strings.Repeat("x", maxTag+1) + `"]}`} {
		if w := call(s, "PUT", path, bad, nil); w.Code != 400 {
			t.Errorf("%.40q: %d %s, want 400", bad, w.Code, w.Body)
		}
	}
	b.Scan(true)
	if e := b.entryAt(t, dir); e.Note != "good <b>" {
		t.Errorf("the list shows %q", e.Note)
	}
	after, err := os.ReadDir(dir)
	if err != nil || len(after) != len(before)+1 {
		t.Errorf("%d files before, %d after: the board writes notes.json alone", len(before), len(after))
	}
	notes := filepath.Join(dir, NotesFile)
	if err := os.Remove(notes); err != nil {
		t.Fatal(err)
	}
	golden.Write(t, notes, map[string]string{"in its place": "a folder"})
	w := call(s, "PUT", path, `{"note":"x"}`, nil)
	if text := w.Body.String(); w.Code != 400 || !strings.Contains(text, "not saved: "+notes) || strings.Contains(text, ".tmp") {
		t.Errorf("a note that cannot be written: %d %s", w.Code, text)
	}
}

// A disk that does not answer holds up no answer of the board, and a slow one keeps no run from being read.
func TestSlowDisk(t *testing.T) {
	root := t.TempDir()
	for i := range 3 {
		golden.Write(t, root, map[string]string{fmt.Sprintf("run%d/%s", i, configFile): config})
	}
	slow := make(chan bool)
	b := Open(Options{Roots: []string{root}, Locked: func(string) bool {
		select {
		case <-slow:
		case <-time.After(readAtOnce / 2):
		}
		return false
	}})
	b.Scan(true)
	golden.Write(t, root, map[string]string{"new/" + configFile: config})
	for range 4 {
		b.scanned = time.Now().Add(-time.Hour)
		b.Scan(false)
	}
	if e := b.entryAt(t, filepath.Join(root, "new")); e.State == stateUnread || b.reading != 0 {
		t.Errorf("after four looks at a slow disk a new run is %s", e.State)
	}
	b.opt.Locked = func(string) bool { return <-slow }
	b.scanned = time.Now().Add(-time.Hour)
	answered := make(chan error)
	go func() {
		_, err := b.answer("runs", nil)
		answered <- err
	}()
	select {
	case err := <-answered:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("no answer while the disk does not answer")
	}
	close(slow)
	b.Scan(true) // behind the look that was held up
}

func TestComparisonAndExport(t *testing.T) {
	root := t.TempDir()
	one, two := filepath.Join(root, "one"), filepath.Join(root, "two")
	finishedRun(t, one, 0.1)
	finishedRun(t, two, 0.3)
	golden.Write(t, two, map[string]string{configFile: strings.Replace(config, "0.0005", "0.005", 1)})
	b := boardOf(root)
	b.Scan(true)
	c, err := b.comparison(idOf(one) + "," + idOf(two))
	if err != nil || len(c.Settings) != 1 || c.Settings[0].Key != "grpo.lr" || *c.Settings[0].Values[1] != "0.005" {
		t.Fatalf("settings that differ: %+v, %v", c.Settings, err)
	}
	if len(c.Pairs) != 1 || c.Pairs[0].Verdict != "better" || c.Pairs[0].Low > c.Pairs[0].Mean || !strings.Contains(c.Report, "<table>") {
		t.Errorf("differences: %+v (%s)", c.Pairs, c.Note)
	}
	golden.Write(t, root, map[string]string{sweeps.AnswerFile: "# Question\n",
		page.ReportFile: "# S\n\n## Answers\n\n- **1. X?** `b` wins.\n"})
	if c, err := b.comparison(idOf(one) + "," + idOf(two)); err != nil || c.Note != "b wins." {
		t.Errorf("runs of a question: %v, %q", err, c.Note)
	}
	out := filepath.Join(t.TempDir(), "site")
	if n, err := b.Export(out); err != nil || n != 2 {
		t.Fatalf("%d runs, %v", n, err)
	}
	for name, want := range map[string]string{"index.html": "data-static", "board.js": "uPlot", "data/runs.js": `boardData("runs"`,
		"data/run-" + idOf(one) + "-curves.js": `"loss"`, "data/compare.js": `"better"`} {
		if data, err := os.ReadFile(filepath.Join(out, name)); err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s: no %s in it (%v)", name, want, err)
		}
	}
	if _, err := b.Export(out); err != nil {
		t.Errorf("again to the same folder: %v", err)
	}
	if _, err := b.Export(root); err == nil {
		t.Error("an export goes over a folder of runs")
	}
}

// A pipe or a device in place of a run's files keeps the board from nothing: the run says what could not be read, and the
// others are listed.
func TestNoFilesInRuns(t *testing.T) {
	root := t.TempDir()
	whole := filepath.Join(root, "whole")
	finishedRun(t, whole, 0.2)
	want := map[string]string{record.SummaryFile: "summary.json: want a regular file, it is a pipe",
		NotesFile: "notes.json: want a regular file, it is a pipe", record.MetricsFile: "metrics.jsonl cannot be read: want a regular file"}
	for name := range want {
		dir := filepath.Join(root, "with-"+name)
		finishedRun(t, dir, 0.2)
		path := filepath.Join(dir, name)
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(path, 0o644); err != nil {
			t.Fatal(err)
		}
		if name == record.MetricsFile { // rows are read of a run that has not ended
			if err := os.Remove(filepath.Join(dir, record.SummaryFile)); err != nil {
				t.Fatal(err)
			}
		}
	}
	index := filepath.Join(root, curves.IndexFolder)
	if err := os.Mkdir(index, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", filepath.Join(index, runsIndex)); err != nil {
		t.Fatal(err)
	}
	b := boardOf(root)
	b.Scan(true)
	if e := b.entryAt(t, whole); e.Error != "" || e.State != record.StateDone {
		t.Errorf("the run that is whole: %+v", e)
	}
	for name, words := range want {
		if e := b.entryAt(t, filepath.Join(root, "with-"+name)); !strings.Contains(e.Error, words) {
			t.Errorf("a pipe as %s: the board says %q, want %q", name, e.Error, words)
		}
	}
}
