package board

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/sweeps"
)

// at brings an element, given by an expression, into sight and returns a place in it, once it stays there: across and down are
// shares of its size.
func (b *browser) at(element string, across, down float64) (x, y float64) {
	b.t.Helper()
	b.until(element)
	for {
		place := b.js(fmt.Sprintf(`(async () => { const e = () => %s; e().scrollIntoView({ block: "center", behavior: "instant" });
			const box = () => { const r = e().getBoundingClientRect(); return [r.left + r.width * %g, r.top + r.height * %g]; };
			const before = box(); await new Promise((then) => setTimeout(then, 50)); return [...before, ...box()]; })()`, element, across, down)).([]any)
		if x, y = place[2].(float64), place[3].(float64); x == place[0] && y == place[1] {
			return x, y
		}
	}
}

func (b *browser) mouse(kind string, x, y float64, clicks int) {
	params := map[string]any{"type": kind, "x": x, "y": y, "button": "left", "clickCount": clicks}
	if kind != "mouseReleased" && clicks > 0 {
		params["buttons"] = 1
	}
	b.call("Input.dispatchMouseEvent", params)
}

// click clicks an element with the mouse, several times for a double click.
func (b *browser) click(element string, times int) {
	b.t.Helper()
	x, y := b.at(element, 0.5, 0.5)
	b.mouse("mouseMoved", x, y, 0)
	for i := range times {
		b.mouse("mousePressed", x, y, i+1)
		b.mouse("mouseReleased", x, y, i+1)
	}
}

// drag presses the mouse at one place of an element and lets it go at another.
func (b *browser) drag(element string, from, to [2]float64) {
	b.t.Helper()
	x, y := b.at(element, from[0], from[1])
	endX, endY := b.at(element, to[0], to[1])
	b.mouse("mouseMoved", x, y, 0)
	b.mouse("mousePressed", x, y, 1)
	for i := 1.0; i <= 8; i++ {
		b.mouse("mouseMoved", x+(endX-x)*i/8, y+(endY-y)*i/8, 1)
	}
	b.mouse("mouseReleased", endX, endY, 1)
}

// keys presses keys one after the other: characters, or names as Tab; with shift where a name begins with ⇧.
func (b *browser) keys(names ...string) {
	for _, name := range names {
		codes := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, "ArrowUp": 38, "ArrowDown": 40}
		key, shifted := strings.CutPrefix(name, "⇧")
		params := map[string]any{"type": "keyDown", "key": key, "windowsVirtualKeyCode": codes[key]}
		if codes[key] == 0 {
			params["text"] = key
		} else if key == "Enter" {
			params["text"] = "\r"
		}
		if shifted {
			params["modifiers"] = 8
		}
		b.call("Input.dispatchKeyEvent", params)
		params["type"] = "keyUp"
		delete(params, "text")
		b.call("Input.dispatchKeyEvent", params)
	}
}

func (b *browser) write(text string) { b.keys(strings.Split(text, "")...) }

// A reader zooms, brushes, tags and writes with mouse and keyboard while the run and the sweep go on.
func TestByHand(t *testing.T) {
	root, live := fullFolder(t)
	more := filepath.Join(root, "sweep", "2")
	var jobs atomic.Int32
	no := func(string) error { return nil }
	b := Open(Options{Roots: []string{root}, Locked: func(dir string) bool { return dir == live && isRun(dir) }, Stop: no, Resume: no,
		Sweep: func(dir string) (sweeps.Options, []sweeps.Job, error) {
			opt, all, err := sweepOf(dir)
			if jobs.Load() > 0 {
				all[2].State, all[2].Objectives = []string{"done", "lost"}[jobs.Load()-1], []float64{0.6}
			}
			return opt, all, err
		}})
	server := httptest.NewServer(NewServer(b, "SECRET"))
	defer server.Close()
	w := openBrowser(t)
	w.open(server.URL + "/?token=SECRET")
	x, y := w.at(rowOf("live"), 0.5, 0.5)
	w.mouse("mousePressed", x, y, 1)
	golden.Write(t, live, map[string]string{record.MetricsFile: stepRows("rce", 1, 11, 0)})
	time.Sleep(2 * time.Second) // the row is not drawn anew under the mouse
	w.mouse("mouseReleased", x, y, 1)
	w.until("document.querySelectorAll('.uplot').length >= 2")
	handsOnCharts(w)
	handsOnNotes(t, w, live)
	handsOnList(w)

	w.open(server.URL + "/#/sweep/" + idOf(filepath.Join(root, "sweep")))
	grip := func(i int) string { return fmt.Sprintf("document.querySelectorAll('.parallel .grip')[%d]", i) }
	shown := func(n int) string { return fmt.Sprintf("document.querySelectorAll('#jobs tbody tr').length === %d", n) }
	w.until(shown(3))
	w.drag(grip(1), [2]float64{0.5, 0.4}, [2]float64{0.5, 0}) // the upper part of val_reward
	w.until(shown(1) + " && document.querySelectorAll('.parallel .job.out').length === 1 && location.hash.includes('keep=val_reward')")
	jobs.Store(1)
	golden.Write(t, root, map[string]string{"sweep/" + sweepFile: "a longer ledger"})
	finishedRun(t, more, 0.2)
	w.until("document.querySelectorAll('.parallel .job').length === 3 && document.querySelectorAll('.parallel .job.out').length === 2")
	w.until(shown(1) + " && +document.querySelectorAll('.parallel .range')[2].getAttribute('height') > 50") // behind lr, which differs now
	link := w.js("location.href")
	w.open("about:blank")
	w.open(link.(string))
	w.until(shown(1) + " && document.querySelectorAll('.parallel .job.out').length === 2")
	w.click(grip(2), 1)
	w.until(shown(3) + " && !location.hash.includes('keep')")
	w.js(grip(2) + ".focus()")
	w.keys("ArrowUp", "ArrowUp", "⇧ArrowDown")
	w.until(shown(1) + " && document.activeElement.getAttribute('aria-valuetext') === '0.52 to 0.69'")
	w.keys("Escape")
	w.until(shown(3))
	jobs.Store(2) // the last job's process is gone: it has not ended, and a resume makes it again
	golden.Write(t, root, map[string]string{"sweep/" + sweepFile: "a still longer ledger"})
	w.until("document.querySelector('.tools').innerText.includes('2 of 3 jobs ended') && document.querySelector('button.resume')")
	w.quiet()

	w.open(server.URL + "/#/run/" + idOf(live))
	w.until("document.querySelector('h1')?.textContent.startsWith('live') && document.querySelectorAll('.uplot').length >= 2")
	if err := os.Rename(live, filepath.Join(root, "renamed")); err != nil {
		t.Fatal(err)
	}
	w.until("document.querySelector('h1 .state')?.textContent === 'gone' && document.body.innerText.includes('renamed')")
	w.until("document.querySelectorAll('.uplot').length >= 2") // what was read stays
	w.keys("g")
	w.until(rowOf("renamed") + " && !" + rowOf("live"))
}

// handsOnCharts zooms by dragging, by double click and by the keyboard; a curve that was switched off stays off.
func handsOnCharts(w *browser) {
	over, zoomed := "document.querySelector('.u-over')", "location.hash.includes('zoom=')"
	w.drag(over, [2]float64{0.2, 0.5}, [2]float64{0.6, 0.5})
	w.until(zoomed)
	w.click(over, 2)
	w.until("!" + zoomed)
	w.js("document.querySelector('.curve').focus()")
	w.keys("+")
	w.until(zoomed)
	w.keys("0")
	w.until("!" + zoomed)
	w.click("document.querySelector('.u-legend .u-series:nth-child(2) th')", 1)
	w.click(`document.querySelector("input[type=checkbox]")`, 1) // a log axis
	w.until("location.hash.includes('log=1') && document.querySelectorAll('.u-series.u-off').length === 1")
	w.click(`document.querySelector("input[type=checkbox]")`, 1)
	w.until("!location.hash.includes('log=1')")
}

// handsOnNotes types a note and tags: rows that come in between and a note of another program take nothing away.
func handsOnNotes(t *testing.T, w *browser, live string) {
	w.click(`document.querySelector(".notes textarea")`, 1)
	w.write("a note")
	w.keys("Tab")
	w.write("good, y z")
	w.keys("Tab")
	golden.Write(t, live, map[string]string{record.MetricsFile: stepRows("rce", 1, 12, 0)})
	w.until("document.querySelector('dl.facts').innerText.includes('step 12')")
	w.until("document.querySelector('textarea').value === 'a note' && document.activeElement.textContent === 'Save'")
	golden.Write(t, live, map[string]string{NotesFile: `{"note":"another","tags":[]}`})
	w.until("document.querySelector('.notes [role=status]').innerText.includes('another')")
	w.keys("Enter")
	w.until("document.querySelector('.notes [role=status]').innerText.includes('Saved')")
	if n, _ := readNotes(live); n.Note != "a note" || strings.Join(n.Tags, "|") != "good|y z" {
		t.Errorf("saved %+v", n)
	}
	golden.Write(t, live, map[string]string{NotesFile: `{"note":"a third","tags":["good"]}`})
	if took := w.until("document.querySelector('textarea').value === 'a third'"); took > promised(2*time.Second) {
		t.Errorf("a note of another program is shown after %v, want 2 s", took)
	}
}

// handsOnList sorts, moves and chooses with the keyboard alone, and finds by tag with the mouse.
func handsOnList(w *browser) {
	w.js("document.activeElement.blur()")
	w.keys("g")
	w.until(rowOf("one"))
	w.js("document.querySelector('.head .c-path button').focus()")
	w.keys("Enter")
	w.until("location.hash.includes('sort=path') && document.activeElement.textContent.startsWith('run')")
	w.keys("j", "j", "x")
	w.until("document.querySelector('#chosen').textContent === '(1)'")
	w.until("document.activeElement === document.querySelectorAll('.row[data-id] a')[1]")
	w.keys("x")
	w.click("[...document.querySelectorAll('.tag')].find((e) => e.textContent === 'good')", 1)
	w.until("document.querySelectorAll('.row[data-id]').length === 1 && location.hash.includes('tag%3Agood')")
	w.keys("j", "Enter")
	w.until("location.hash.startsWith('#/run/')")
	w.keys("g")
	w.until("document.querySelectorAll('.row[data-id]').length === 1 && location.hash.includes('tag%3Agood')")
}

// A click on score puts the runs that can be compared by it together, the best first: rewards fall, losses rise, and of each kind
// one line says that it leads. Intervals can be read whole, and every column stands below its head.
func TestListTellsMeasuresApart(t *testing.T) {
	root := t.TempDir()
	data := record.DataSummary{Name: "shapes", Fingerprint: "f00d"}
	for name, score := range map[string]float64{"least loss": 1.5, "loss": 2.5} {
		reportstest.Must(t, os.Mkdir(filepath.Join(root, name), 0o755))
		reportstest.Must(t, results.WriteSummary(filepath.Join(root, name), record.Summary{State: record.StateDone, Data: data,
			Best: &record.BestSummary{Metric: "val_loss", Value: record.Number(score), Phase: record.PolicyInit}}))
	}
	for name, gain := range map[string]float64{"low": -0.000123456, "middle": 0.1, "high": 0.2, "equal": 0.2, "seed 0": 0.3, "seed 1": 0} {
		finishedRun(t, filepath.Join(root, name), gain)
		setting, seed, _ := strings.Cut(name, " ") // of two seeds, the better one is not the best: their mean is 0.15
		edit(t, filepath.Join(root, name, record.SummaryFile), `"overrides": [^\]]*\]`, fmt.Sprintf(`"overrides": ["a=%s", "seed=%s"]`, setting, seed))
		edit(t, filepath.Join(root, name, record.SummaryFile), `"name": "",\s*"synthetic"`, `"name": "shapes", "synthetic"`)
	}
	for name, gain := range map[string]float64{"other data": 0.3, "most 0": 0.4, "most 1": 0.5} { // of the highest setting no seed is crowned
		finishedRun(t, filepath.Join(root, name), gain)
		setting, seed, _ := strings.Cut(name, " ")
		edit(t, filepath.Join(root, name, record.SummaryFile), `"overrides": [^\]]*\]`, fmt.Sprintf(`"overrides": ["a=%s", "seed=%s"]`, setting, seed))
		edit(t, filepath.Join(root, name, record.SummaryFile), `"name": "",\s*"synthetic"`, `"name": "others", "synthetic"`)
	}
	server := httptest.NewServer(NewServer(boardOf(root), "SECRET"))
	defer server.Close()
	w := openBrowser(t)
	w.open(server.URL + "/?token=SECRET")
	w.until("document.querySelectorAll('.row[data-id]').length === 11")
	w.click("document.querySelector('.head .c-best button')", 1)
	order := `[...document.querySelectorAll(".row[data-id]")].map((r) => (r.classList.contains("first") ? "|" : "") + r.querySelector("a").textContent +
		(r.querySelector(".lead")?.textContent.replace(" of", "") ?? "") + (r.querySelector(".c-best .warn")?.textContent ?? "")).join()`
	w.until("location.hash.includes('sort')")
	if got, want := w.js(order), "seed 0,equal2 highest 5 ,high2 highest 5 ,middle,seed 1,low,|most 1,most 0,other data,|"+
		"least losslowest 2 untrained, ,lossuntrained, "; got != want {
		t.Errorf("by score: %s, want %s", got, want)
	}
	for filter, want := range map[string]string{"score>=0.3": "equal,high,least loss,loss,middle,most 0,most 1,other data,seed 0",
		"score<0.3": "low,seed 1", "took>1e9": "", "nokey>0": "", "state:done score>0.5 other": "other data"} { // numbers: not "0.3" in some text
		w.js(fmt.Sprintf(`(() => { const f = document.getElementById("filter"); f.value = %q; f.dispatchEvent(new Event("input")); })()`, filter))
		if got := w.js(`[...document.querySelectorAll(".row[data-id] a")].map((a) => a.textContent).sort().join()`); got != want {
			t.Errorf("filter %s shows %s, want %s", filter, got, want)
		}
	}
	w.open(server.URL + "/#/?columns=path,grpo.epochs,best&group=grpo.lr")
	w.until(`[...document.querySelectorAll(".row[data-id]")].every((r) => r.querySelectorAll(".c-own").length === 2 && r.querySelectorAll("[role=cell]").length === 5)`)
	w.until(`document.querySelector(".row[data-id] .c-own").textContent === "0.00059 runs"`)
	w.js(`const put = [...document.querySelectorAll(".choose input[type=text]")]; put[0].value = "schedule"; put[0].dispatchEvent(new Event("change"));
		put[1].value = ""; put[1].dispatchEvent(new Event("change"))`)
	w.until(`location.hash === "#/?columns=grpo.lr%2Cpath%2Cgrpo.epochs%2Cbest%2Cschedule"`)
	w.open(server.URL + "/#/?sort=-best")
	w.until("document.querySelectorAll('.row[data-id] .c-gain').length === 11")
	w.until("document.querySelectorAll('.spark polyline').length === 9")
	for _, width := range []int{760, 1000, 1280, 1600} {
		w.size(width, 900)
		w.until("document.querySelector('.row[data-id]').clientWidth > 0")
		if cut := w.js(`[...document.querySelectorAll(".row[data-id] .c-gain, .row[data-id] .c-gain *, .row[data-id] .c-best")]
			.filter((e) => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline").map((e) => e.textContent).join()`); cut != "" {
			t.Errorf("cut at %d px: %v", width, cut)
		}
		if aside := w.js(`["c-path", "c-best", "c-gain", "c-start"].filter((c) => { const [head, cell] = [...document.querySelectorAll("." + c)].map((e) => e.getBoundingClientRect());
			return Math.abs(head.right - cell.right) > 1; }).join()`); aside != "" {
			t.Errorf("at %d px beside their heads: %v", width, aside)
		}
	}
	w.size(400, 900) // the heads stand as the parts of a card do
	w.until("document.querySelector('.row[data-id]').clientHeight > 80")
	if aside := w.js(`[["c-path", "left"], ["c-best", "left"], ["c-progress", "left"], ["c-state", "right"], ["c-gain", "right"], ["c-start", "right"]].filter(([c, side]) => {
		const [head, cell] = [...document.querySelectorAll("." + c)].map((e) => e.getBoundingClientRect());
		return Math.abs(head[side] - cell[side]) > 2 || head.right > 400; }).join()`); aside != "" {
		t.Errorf("on a phone beside their heads: %v", aside)
	}
	w.quiet()
}

// The list says of every run what tells it from the others, not the beginning that they share, and a run and its sweep name their
// warnings where the verdict stands.
func TestDifferencesAndWarnings(t *testing.T) {
	root := t.TempDir()
	common := []string{"exp=beams_v3", "data=beams", "data.beams=/a/long/folder/of/records/train.json"}
	for name, own := range map[string][]string{"a": {"grpo.epochs=9", "grpo.lr=1e-5"}, "b": {"grpo.epochs=9", "grpo.lr=1e-4"}, "c": nil,
		"sweep/0": nil, "sweep/1": nil} {
		finishedRun(t, filepath.Join(root, name), 0.1)
		summary, err := record.ReadSummary(filepath.Join(root, name))
		reportstest.Must(t, err)
		summary.Overrides = append(common[:len(common):len(common)], own...)
		if name == "b" || name == "sweep/1" {
			summary.Findings = []record.Finding{{Check: "kl_high", Severity: "warning", Message: "KL"}, {Check: "slow", Severity: "note"}}
			summary.Warnings = []string{"KL", "more"}
		}
		reportstest.Must(t, results.WriteSummary(filepath.Join(root, name), *summary))
	}
	golden.Write(t, root, map[string]string{"sweep/" + sweepFile: "a ledger"})
	b := Open(Options{Roots: []string{root}, Locked: func(string) bool { return false }, Sweep: sweepOf})
	server := httptest.NewServer(NewServer(b, "SECRET"))
	defer server.Close()
	w := openBrowser(t)
	w.open(server.URL + "/?token=SECRET")
	w.until("document.querySelectorAll('.row[data-id]').length === 5")
	under := `["a", "b", "c", "sweep/1"].map((path) => document.querySelector('.row a[title="' + path + '"]').closest(".row").querySelector(".under").textContent).join("|")`
	if got, want := w.js(under), "grpo.lr=1e-5 grpo.epochs=9|grpo.lr=1e-4 grpo.epochs=9|okvqa_v3|okvqa_v3"; got != want {
		t.Errorf("below the names: %v, want %s", got, want)
	}
	w.until("document.querySelector('.sweeps').innerText.includes('Sweep of 3 jobs over lr, <b>, basic')")
	w.open(server.URL + "/#/run/" + idOf(filepath.Join(root, "b")))
	w.until("document.querySelector('.verdict.better') && " +
		"document.querySelector('.callout + .callout').innerText === 'It has warnings: kl high, more. Read them first.'")
	w.open(server.URL + "/#/run/" + idOf(filepath.Join(root, "a")))
	w.until("document.querySelector('h1').textContent.startsWith('a') && document.querySelectorAll('.callout').length === 1")
	w.open(server.URL + "/#/sweep/" + idOf(filepath.Join(root, "sweep")))
	w.until("document.querySelector('#main').innerText.includes('1 of 3 jobs has warnings: job 1 kl high, more')")
	w.quiet()
}
