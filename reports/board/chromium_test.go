package board

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/jpeg"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/curves"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/runreport"
	"fulcrum/reports/stats"
	"fulcrum/reports/sweeps"
	"fulcrum/reports/webchart"
)

// browser is a Chromium that is driven by the DevTools protocol through two pipes: messages end with a zero byte.
type browser struct {
	t       *testing.T
	in      *os.File
	out     *bufio.Reader
	last    int
	session string
	faults  []string // what the page's console says: exceptions, refusals of the policy
}

// openBrowser starts a Chromium without a window, or skips the test where there is none.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium here")
	}
	toRead, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, toWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe",
		"--user-data-dir="+t.TempDir())
	cmd.ExtraFiles = []*os.File{toRead, toWrite} // descriptors 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	toRead.Close()
	toWrite.Close()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		_ = cmd.Wait()
		in.Close()
		out.Close()
	})
	b := &browser{t: t, in: in, out: bufio.NewReader(out)}
	target := b.call("Target.createTarget", map[string]any{"url": "about:blank"})
	b.session = b.call("Target.attachToTarget", map[string]any{"targetId": target["targetId"], "flatten": true})["sessionId"].(string)
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.call(domain+".enable", nil)
	}
	b.size(1280, 900)
	return b
}

// call does one command and returns its result.
func (b *browser) call(method string, params map[string]any) map[string]any {
	b.t.Helper()
	b.last++
	message := map[string]any{"id": b.last, "method": method, "params": params}
	if params == nil {
		message["params"] = map[string]any{}
	}
	if b.session != "" {
		message["sessionId"] = b.session
	}
	data, err := json.Marshal(message)
	if err == nil {
		_, err = b.in.Write(append(data, 0))
	}
	for err == nil {
		var line []byte
		if line, err = b.out.ReadBytes(0); err != nil {
			break
		}
		var answer struct {
			ID     int            `json:"id"`
			Method string         `json:"method"`
			Params map[string]any `json:"params"`
			Result map[string]any `json:"result"`
			Error  *struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		if err = json.Unmarshal(line[:len(line)-1], &answer); err != nil {
			break
		}
		switch answer.Method {
		case "Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening":
			text, _ := json.Marshal(answer.Params)
			b.faults = append(b.faults, answer.Method+" "+string(text))
		}
		if answer.ID == b.last {
			if answer.Error != nil {
				b.t.Fatalf("%s: %s", method, answer.Error.Message)
			}
			return answer.Result
		}
	}
	b.t.Fatalf("%s: %v", method, err)
	return nil
}

// js returns the value of an expression in the page, as JSON would read it.
func (b *browser) js(expression string) any {
	b.t.Helper()
	value, fault := b.try(expression)
	if fault != nil {
		b.t.Fatalf("%s: %v", expression, fault)
	}
	return value
}

// try is js for an expression that may fail: what it looks at need not be in the page yet.
func (b *browser) try(expression string) (value, fault any) {
	b.t.Helper()
	answer := b.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true})
	result, _ := answer["result"].(map[string]any)
	return result["value"], answer["exceptionDetails"]
}

// patience is how long a page may take on a machine that is busy with other tests; what is never so ends a test late, not wrongly.
const patience = 2 * time.Minute

// until waits until an expression is true, and returns how long that took.
func (b *browser) until(expression string) time.Duration {
	b.t.Helper()
	begin := time.Now()
	for {
		value, fault := b.try("!!(" + expression + ")")
		if value == true {
			return time.Since(begin)
		}
		if time.Since(begin) > patience {
			b.t.Fatalf("not so after %v: %s (%v)\nthe page: %.600v\n%s", patience, expression, fault, b.js("document.body?.innerText"),
				strings.Join(b.faults, "\n"))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (b *browser) size(width, height int) {
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false})
}

func (b *browser) open(address string) { b.call("Page.navigate", map[string]any{"url": address}) }

// quiet fails the test where the page's console has said something.
func (b *browser) quiet() {
	b.t.Helper()
	b.js("1")
	if len(b.faults) > 0 {
		b.t.Errorf("the console says:\n%s", strings.Join(b.faults, "\n"))
	}
}

const hostileName = `<img src=x onerror=alert(1)>"'&`

// fullFolder holds a run that goes on, finished ones, a hostile one and a sweep of two jobs.
func fullFolder(t *testing.T) (root, live string) {
	root = t.TempDir()
	live = filepath.Join(root, "live")
	golden.Write(t, live, map[string]string{configFile: config, ".hydra/overrides.yaml": "- exp=okvqa_v3\n",
		record.MetricsFile: stepRows("rce", 1, 10, 0)})
	finishedRun(t, filepath.Join(root, "one"), 0.1)
	finishedRun(t, filepath.Join(root, "two"), 0.3)
	golden.Write(t, filepath.Join(root, "two"), map[string]string{configFile: strings.Replace(config, "0.0005", "0.005", 1)})
	var picture bytes.Buffer
	if err := jpeg.Encode(&picture, image.NewGray(image.Rect(0, 0, 8, 8)), nil); err != nil {
		t.Fatal(err)
	}
	name, err := record.KeepPicture(filepath.Join(root, "one"), picture.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	golden.Write(t, filepath.Join(root, "one"), map[string]string{
		"examples.json": fmt.Sprintf(`[{"question":"<image>what?","answer":"a","pictures":[%q],"before":[{"answer":"b"}],"after":[{"answer":"a"}],`+
			`"reward_before":0,"reward_after":1}]`, name),
		record.CompletionsFile: fmt.Sprintf(`{"phase":"grpo","epoch":1,"step":1,"query_id":1,"question":"<image>what?","pictures":[%q],`+
			`"text":"a","reward":1}`+"\n", name)})
	hostile := filepath.Join(root, hostileName)
	finishedRun(t, hostile, 0)
	text, err := json.Marshal("</script><script>alert(2)</script>" + hostileName)
	if err != nil {
		t.Fatal(err)
	}
	golden.Write(t, hostile, map[string]string{
		"examples.json": fmt.Sprintf(`[{"question":%s,"answer":%s,"before":[{"question":%s,"answer":"a"}],"after":null}]`, text, text, text),
		record.CompletionsFile: fmt.Sprintf(`{"phase":%s,"epoch":1,"step":1,"query_id":1,"question":%s,"text":%s,"terms":{%s:1}}`+"\n", text,
			text, text, text), record.RunLogFile: hostileName, NotesFile: fmt.Sprintf(`{"note":%s,"tags":[%s]}`, text, text)})
	for _, job := range []string{"0", "1"} {
		finishedRun(t, filepath.Join(root, "sweep", job), 0.1)
		golden.Write(t, root, map[string]string{filepath.Join("sweep", job, configFile): strings.Replace(config, "seed: 3", "seed: "+job, 1)})
	}
	golden.Write(t, root, map[string]string{"sweep/" + sweepFile: "a ledger"})
	return root, live
}

// recordedRun writes a run that has ended without a reader, and whose recorded order is worse than drawing at random.
func recordedRun(t testing.TB, dir string) {
	t.Helper()
	finishedRun(t, dir, 0.1)
	evals := []record.Evaluation{}
	for at, metric := range []string{"recorded_reward", "pair_accuracy"} {
		for _, policy := range []string{record.PolicyRandom, record.PolicyRecorded, record.PolicyBest} {
			e := record.Evaluation{Split: "val", Policy: policy, Phase: "rce", Metric: metric}
			for i := range 40 {
				level := map[string]float64{record.PolicyRandom: 0.3, record.PolicyRecorded: 0.1, record.PolicyBest: 0.5}[policy]
				e.QueryIDs, e.Scores = append(e.QueryIDs, int64(i)), append(e.Scores, level+float64(at)/4+float64(i%7)/100)
			}
			evals = append(evals, e)
		}
	}
	stages, err := results.Stages(evals, stats.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	if err := results.WriteSummary(dir, record.Summary{State: record.StateDone, Evaluations: stages}); err != nil {
		t.Fatal(err)
	}
}

// sweepOf is a ledger of two seeds of one setting that are done and a job that waits.
func sweepOf(dir string) (sweeps.Options, []sweeps.Job, error) {
	job := func(n int, lr, state string, objective ...float64) sweeps.Job {
		return sweeps.Job{Number: n, Dir: filepath.Join(dir, fmt.Sprint(n)), State: state,
			Params:    map[string]string{"lr": lr, "<b>": fmt.Sprint(n)},
			Overrides: []string{"lr=" + lr, fmt.Sprintf("seed=%d", n)}, Objectives: objective, Seconds: 3}
	}
	return sweeps.Options{Title: "Sweep of 3 jobs", Objectives: []sweeps.Objective{{Name: "val_reward"}}, Sweeper: "basic",
			Dimensions: []sweeps.Dimension{{Key: "lr"}, {Key: "<b>"}}},
		[]sweeps.Job{job(0, "0.1", "done", 0.5), job(1, "0.1", "done", 0.7), job(2, "0.3", "queued")}, nil
}

func rowOf(path string) string {
	return fmt.Sprintf("document.querySelector('.row a[title=%q]')", path)
}

// A reader opens the page, clicks through it, and a run that goes on is killed before their eyes.
func TestInBrowser(t *testing.T) {
	root, live := fullFolder(t)
	var atWork atomic.Bool
	atWork.Store(true)
	var stopped, resumed atomic.Int32
	b := Open(Options{Roots: []string{root}, Sweep: sweepOf, Locked: func(dir string) bool { return dir == live && atWork.Load() },
		Stop:   func(string) error { stopped.Add(1); return nil },
		Resume: func(string) error { resumed.Add(1); return fmt.Errorf("no <b>way</b>") },
		Starts: func(string) []Start { return []Start{{"on_end.command", "rm " + hostileName}} }})
	server := httptest.NewUnstartedServer(nil)
	server.Config.Handler = NewServer(b, "SECRET")
	server.Start()
	defer server.Close()
	w := openBrowser(t)
	w.open(server.URL + "/?token=SECRET")
	w.until("document.querySelectorAll('.row[data-id]').length === 6")
	if at := w.js("location.href"); at != server.URL+"/" {
		t.Errorf("the address is %v: the token stays in it", at)
	}
	names := fmt.Sprint(w.js("[...document.querySelectorAll('.row[data-id] a')].map(a => a.textContent).join('|')"))
	if !strings.Contains(names, hostileName) {
		t.Errorf("the hostile run is not shown by its name: %s", names)
	}
	w.until(rowOf("one") + ".closest('.row').querySelector('.c-gain').textContent === '+0.1098 over similarity[+0.1071, +0.1124] †'")
	w.until(rowOf("one") + ".closest('.row').querySelector('.c-best .under').textContent === 'reward on dev'")
	w.js(`(() => { const f = document.getElementById("filter"); f.value = "state:running"; f.dispatchEvent(new Event("input")); })()`)
	w.until("document.querySelectorAll('.row[data-id]').length === 1")

	w.js(rowOf("live") + ".click()")
	w.until("document.querySelectorAll('.uplot').length >= 2")
	golden.Write(t, live, map[string]string{record.MetricsFile: stepRows("rce", 1, 25, 0) + epochRow("rce", 1, 25, 0.7) + `{"kind":"st`})
	if took := w.until("document.querySelector('dl.facts').innerText.includes('step 25')"); took > promised(5*time.Second/2) {
		t.Errorf("new rows are shown after %v, want 2 s", took)
	}
	w.js(`[...document.querySelectorAll("button")].find(b => b.textContent === "Stop and save").click()`)
	w.until("document.body.innerText.includes('it saves its state')")
	if stopped.Load() != 1 {
		t.Error("the button stops nothing")
	}
	atWork.Store(false) // the run is killed
	golden.Write(t, live, map[string]string{record.MetricsFile: stepRows("rce", 1, 26, 0)})
	w.until("document.querySelector('h1 .state').textContent === 'killed'")
	for _, answer := range []string{"no", "yes"} { // each time the board asks first, and Cancel has the focus
		w.until(`!document.querySelector("button.resume").disabled`)
		w.js(`document.querySelector("button.resume").click()`)
		w.until("document.querySelector('dialog[open]')?.innerText.includes('on_end.command') && document.activeElement.value === 'no'")
		text := fmt.Sprint(w.js("document.querySelector('dialog').innerText"))
		if !strings.Contains(text, "rm "+hostileName) || resumed.Load() != 0 {
			t.Errorf("the board asks %q, and has resumed %d times", text, resumed.Load())
		}
		w.js(fmt.Sprintf("document.querySelector('dialog button[value=%s]').click()", answer))
	}
	w.until("document.body.innerText.includes('no <b>way</b>')")
	w.js(`document.querySelector("textarea").value = "seen"; document.querySelector(".notes").requestSubmit()`)
	w.until("document.body.innerText.includes('Saved in notes.json')")
	if n, _ := readNotes(live); n.Note != "seen" {
		t.Errorf("the note is %q", n.Note)
	}

	w.faults = nil // the refusal above is one of the browser's own
	w.open(server.URL + "/#/run/" + idOf(filepath.Join(root, hostileName)))
	w.until("document.querySelectorAll('.uplot').length > 1 && document.querySelector('.group')")
	w.js("document.querySelectorAll('details').forEach(d => { d.open = true; })")
	if n := w.js("document.querySelectorAll('main img, main script, main b[onclick], main iframe').length"); n != 0.0 {
		t.Errorf("%v elements have come out of texts of a run", n)
	}
	w.open(server.URL + "/#/run/" + idOf(filepath.Join(root, "one")))
	checkPictures(w)
	w.open(server.URL + "/#/sweep/" + idOf(filepath.Join(root, "sweep")))
	w.until("document.querySelectorAll('.parallel .job').length === 2 && document.querySelector('.uplot') && " +
		"document.querySelector('.report strong')")
	if text := fmt.Sprint(w.js("document.body.innerText")); !strings.Contains(text, "2 of 3 jobs ended") ||
		!strings.Contains(text, "What leads. Only setting with a result that counts: lr=0.1, mean val_reward 0.6000 over 2 seeds") {
		t.Errorf("the sweep's page: %s", text)
	}
	checkBands(t, w)
	w.open(server.URL + "/#/compare?ids=" + idOf(filepath.Join(root, "sweep", "0")) + "," + idOf(filepath.Join(root, "sweep", "1")))
	w.until("document.querySelector('.grid .u-legend')?.innerText.includes('lr=0.1: A B (2 seeds)')")
	w.js(`[...document.querySelectorAll("label")].find(l => l.textContent.includes("mean over seeds")).click()`)
	w.until("document.querySelector('.grid .u-legend')?.innerText.includes('seeds)') === false && location.hash.includes('seeds=0')")
	w.open(server.URL + "/#/compare?ids=" + idOf(filepath.Join(root, "one")) + "," + idOf(filepath.Join(root, "two")))
	w.until("document.querySelectorAll('.forest .better circle').length === 1 && document.querySelectorAll('.uplot').length > 1")
	w.until("document.querySelector('#settings td code')?.textContent === 'grpo.lr'")
	w.until("document.querySelector('#pairs details[open]')?.innerText.includes('+0.2195 [+0.2142, +0.2248]\\t< 0.001\\t') && " +
		"document.querySelector('#pairs').innerText.includes('better †')")
	inside := w.js("(l => +l.getAttribute('x1') >= 200 && +l.getAttribute('x2') <= 616)(document.querySelector('.forest .whisker'))")
	if inside != true {
		t.Error("a whisker leaves its axis")
	}
	for _, width := range []int{400, 800, 1280} {
		w.size(width, 800)
		for _, view := range []string{"/#/", "/#/run/" + idOf(filepath.Join(root, "one")), "/#/sweep/" + idOf(filepath.Join(root, "sweep")),
			"/#/compare?ids=" + idOf(filepath.Join(root, "one")) + "," + idOf(filepath.Join(root, "two"))} {
			w.open("about:blank") // what is waited for is of the view that is opened, not of the one before
			w.open(server.URL + view)
			w.until("document.querySelector('.uplot, .row[data-id]')")
			w.legible(view, width)
		}
	}
	w.quiet()
}

// legible fails the test where the page is wider than the screen, where something lies beyond it that no box scrolls to, and where
// text has a contrast below 4.5:1, in light and in dark. A page may take a while to fit a screen that has just become another.
func (b *browser) legible(view string, width int) {
	b.t.Helper()
	begin := time.Now()
	for fits := 0; fits < 3; time.Sleep(100 * time.Millisecond) { // and still fits when the rest of it has come
		beyond := b.beyond(width)
		if fits++; beyond != "" {
			fits = 0
		}
		if time.Since(begin) > patience {
			b.t.Fatalf("%s at %d px: beyond the screen: %v", view, width, beyond)
		}
	}
	for _, theme := range []string{"light", "dark"} {
		b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": theme}}})
		faint := b.js(`(() => {
		const rgb = (c) => c.match(/[\d.]+/g).map(Number);
		const light = (c) => c.slice(0, 3).map((x) => x / 255).map((x) => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4).reduce((a, x, i) => a + x * [0.2126, 0.7152, 0.0722][i], 0);
		const under = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] !== 0) return c; } return [255, 255, 255]; };
		const found = new Set();
		for (const e of document.querySelectorAll("body *")) {
			if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility() || e.closest(".skip, .plot")) continue;
			const style = getComputedStyle(e), [a, b] = [light(rgb(e instanceof SVGElement ? style.fill : style.color)), light(under(e))].sort((x, y) => y - x);
			if ((a + 0.05) / (b + 0.05) < 4.5) found.add(e.tagName + "." + e.getAttribute("class") + " " + e.textContent.slice(0, 20) + " " + ((a + 0.05) / (b + 0.05)).toFixed(2));
		}
		return [...found].slice(0, 5).join("; ");
	})()`)
		if faint != "" {
			b.t.Errorf("%s in %s: text with too little contrast: %v", view, theme, faint)
		}
	}
}

// beyond names what is wider than the screen or lies beyond it; nothing where all fits.
func (b *browser) beyond(width int) any {
	b.t.Helper()
	if wide := b.js("document.documentElement.scrollWidth"); wide.(float64) > float64(width) {
		return fmt.Sprintf("the page is %v px wide", wide)
	}
	beyond := b.js(`[...document.querySelectorAll("main *")].filter((e) => e.getBoundingClientRect().width > 1 && (() => {
		for (let p = e, edge = innerWidth; p; p = p.parentElement) {
			const style = getComputedStyle(p), box = p.getBoundingClientRect();
			if (p !== e && ["auto", "scroll"].includes(style.overflowX)) return box.right > edge + 1;
			if (p !== e && style.textOverflow === "ellipsis") return false;
			if (p === document.body) return e.getBoundingClientRect().right > edge + 1;
		}
	})()).map((e) => e.tagName + "." + e.getAttribute("class") + " " + e.textContent.slice(0, 30)).slice(0, 5).join("; ")`)
	if beyond == "" {
		return b.js(`[...document.querySelectorAll(".scroll")].filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.scrollWidth).join()`)
	}
	return beyond
}

// The page of a report shows at once what fits on five screens, and fits a phone, where its contents are closed: its wide tables scroll
// with the labels in sight. A link of the contents opens what is folded. Without a script its figures are there, and legible.
func TestReportInBrowser(t *testing.T) {
	dir := reportstest.FakeRun(t, 1)
	summary, err := record.ReadSummary(dir)
	reportstest.Must(t, err)
	summary.Evaluations = nil // computed by the report
	reportstest.Must(t, results.WriteSummary(dir, *summary))
	reportstest.Must(t, runreport.RebuildReport(dir))
	w := openBrowser(t)
	for _, width := range []int{400, 800, 1280} {
		w.size(width, 800)
		w.open("file://" + filepath.Join(dir, "report.html"))
		w.until("document.querySelectorAll('.uplot').length > 2 && document.querySelectorAll('.forest circle').length > 2")
		if height := w.js("document.documentElement.scrollHeight").(float64); width == 1280 && height > 5*800 {
			t.Errorf("the page is %v px high, want at most five screens of 800", height)
		}
		if listed := w.js("document.querySelector('nav li').checkVisibility({ contentVisibilityAuto: true })"); listed != (width == 1280) {
			t.Errorf("at %d px the contents are open: %v", width, listed)
		}
		w.legible("report.html", width)
		w.js("document.querySelector('nav a[href=\"#plots\"]').click()")
		w.until("document.querySelector('#plots').closest('details').open && document.querySelectorAll('main > details[open]').length === 1")
		w.js("document.querySelectorAll('main > details').forEach((section) => { section.open = true; })")
		w.legible("report.html, opened,", width)
		if labels := w.js(`[...document.querySelectorAll(".table")].map((box) => { box.scrollLeft = 1000;
			return box.querySelector("tbody td").getBoundingClientRect().left - box.getBoundingClientRect().left; }).filter((left) => left < 0).length`); labels != 0.0 {
			t.Errorf("at %d px the labels of %v tables leave the screen with a scroll to the right", width, labels)
		}
		if least := w.js(leastText + "('.forest text')").(float64); least < 9 {
			t.Errorf("at %d px the text of the forest plot is %v px high", width, least)
		}
	}
	w.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true})
	for _, width := range []int{400, 1280} {
		w.size(width, 800)
		w.open("file://" + filepath.Join(dir, "report.html"))
		w.until("document.readyState === 'complete' && document.querySelectorAll('.plot svg').length > 5")
		w.js("document.querySelectorAll('main > details').forEach((section) => { section.open = true; })")
		if least := w.js(leastText + "('.plot svg text')").(float64); least < 9 {
			t.Errorf("at %d px the text of plots is %v px high", width, least)
		}
	}
	w.quiet()
}

// leastText returns the height of the smallest text among the elements of a selector.
const leastText = "((of) => Math.min(...[...document.querySelectorAll(of)].map((e) => e.getBoundingClientRect().height)))"

// checkPictures looks at a run's example before and after and at its completion, each with a picture of 8 pixels.
func checkPictures(w *browser) {
	w.until("document.querySelector('#examples') && document.querySelector('#completions')")
	w.until("[...document.querySelectorAll('#examples img, #completions img')].filter(i => i.naturalWidth === 8).length === 2")
	w.until("document.querySelector('#examples').innerText.replace(/\\s+/g, ' ')." +
		"includes('what? → a before: reward 0 b after: reward 1.00 (+1.0) a')")
}

// checkBands looks at the curves of a sweep's settings: the mean of two seeds, 0.5 in both, and an interval around the loss, whose
// ends the legend has.
func checkBands(t *testing.T, w *browser) {
	t.Helper()
	w.until("document.querySelectorAll('#curves .uplot').length >= 2")
	text := fmt.Sprint(w.js("document.querySelector('#curves').innerText"))
	if !strings.Contains(text, "lr=0.1 (2 seeds)") || !strings.Contains(text, "95 % interval of the mean over seeds") {
		t.Errorf("the legend of the curves: %s", text)
	}
	w.js(`(() => { const over = document.querySelector("#curves .u-over"), at = over.getBoundingClientRect();
		over.dispatchEvent(new MouseEvent("mousemove", { clientX: at.x + at.width - 2, clientY: at.y + 50, bubbles: true })); })()`)
	w.until("document.querySelector('#curves .u-legend').innerText.includes('0.5000 [0.5000, 0.5000]')")
}

// An area most of which is wider than the axis would fill the chart: it is left out, and the note below says so. One that ends at the axis
// is drawn, and of areas that fit nothing is said.
func TestWideAreasAreLeftOut(t *testing.T) {
	w := openBrowser(t)
	for _, tc := range []struct {
		low, high   webchart.Numbers
		areas, note string
	}{
		{webchart.Numbers{0.4, 0.4, 0.4}, webchart.Numbers{0.5, 0.6, 0.7}, "1 of 1", "over seeds (Student’s t)"},
		{webchart.Numbers{-5, 0.4, 0.4}, webchart.Numbers{5, 0.6, 0.7}, "1 of 1", "it is left out"},
		{webchart.Numbers{-5, -5, 0.4}, webchart.Numbers{5, 5, 0.7}, "0 of 1", "it is left out"},
	} {
		data := map[string]any{"name": "val_reward", "runs": []curves.Shown{{Label: "a", Seeds: 2, Phases: []curves.Span{{Name: "rce", To: 3}},
			Epochs: &webchart.Drawn{Width: 1, Steps: []int64{1, 2, 3}, Series: map[string]*webchart.DrawnColumn{
				"val_reward": {Mean: webchart.Numbers{0.4, 0.5, 0.6}, Low: tc.low, High: tc.high}}}}}}
		more, err := webchart.Lively(data, "curves")
		reportstest.Must(t, err)
		none := func(string) ([]byte, error) { return nil, os.ErrNotExist }
		file := filepath.Join(t.TempDir(), "report.html")
		reportstest.Must(t, os.WriteFile(file, page.LivelyHTML("# A\n\n![c](plots/curves.png)\n", none, more), 0o644))
		w.open("file://" + file)
		w.until("document.querySelector('.uplot') && [...document.querySelectorAll('.chart p')].some((p) => " +
			"p.textContent.endsWith('" + tc.note + "'))")
		got := w.js(`(async () => { let made; URL.createObjectURL = (blob) => (made = blob, "#");
			[...document.querySelectorAll("button")].find((b) => b.textContent === "SVG").click();
			const fills = [...(await made.text()).matchAll(/<polygon [^>]*fill="([^"]*)"/g)].map((m) => m[1]);
			return fills.filter((f) => f !== "transparent").length + " of " + fills.length; })()`)
		if got != tc.areas {
			t.Errorf("from %v to %v: %v areas are drawn, want %s", tc.low, tc.high, got, tc.areas)
		}
	}
}

// The files of an export work without a server, from a disk.
func TestExportInBrowser(t *testing.T) {
	root, live := fullFolder(t)
	weak := filepath.Join(root, "weak")
	recordedRun(t, weak)
	ended := func(dir string) (sweeps.Options, []sweeps.Job, error) {
		opt, jobs, err := sweepOf(dir)
		jobs[2].State = "failed"
		return opt, jobs, err
	}
	b := Open(Options{Roots: []string{root}, Sweep: ended, Locked: func(dir string) bool { return dir == live }})
	out := filepath.Join(t.TempDir(), "site")
	if _, err := b.Export(out); err != nil {
		t.Fatal(err)
	}
	w := openBrowser(t)
	w.open("file://" + out + "/index.html")
	w.until("document.querySelectorAll('.row[data-id]').length === 7")
	w.open("file://" + out + "/index.html#/?columns=path,grpo.epochs,best&group=grpo.lr") // no override sets epochs
	w.until(`[...document.querySelectorAll(".row[data-id] .c-own:not(:nth-child(2))")].map((e) => e.textContent).join() === "2,2,2,2,2,2,2"`)
	if got, want := w.js(`[...document.querySelectorAll(".row[data-id] .c-own:nth-child(2)")].map((e) => e.textContent).join()`),
		"0.00056 runs,0.0005,0.0005,0.0005,0.0005,0.0005,0.0051 run"; got != want {
		t.Errorf("grouped by a key of the configurations: %v, want %s", got, want)
	}
	w.js(rowOf("one") + ".click()")
	w.until("document.querySelectorAll('.uplot').length > 2 && document.querySelector('#results table')")
	checkPictures(w)
	w.open("file://" + out + "/index.html#/run/" + idOf(weak))
	w.until("document.querySelector('#results th:nth-child(3)')?.textContent.startsWith('over random')")
	if text := fmt.Sprint(w.js("document.body.innerText")); strings.Contains(text, "over recorded order") ||
		!strings.Contains(text, "Difference from random") || !strings.Contains(text, "Worse than drawing at random here: recorded order") {
		t.Errorf("random does not take the place of a weaker baseline: %s", text)
	}
	w.open("file://" + out + "/index.html#/sweep/" + idOf(filepath.Join(root, "sweep")))
	w.until("document.querySelectorAll('.parallel .job').length === 2")
	w.until("document.querySelector('.report')?.textContent.startsWith('What leads. Only setting with a result that counts: lr=0.1')")
	checkBands(t, w)
	w.js(`[...document.querySelectorAll("button")].find(b => b.textContent.startsWith("Compare ")).click()`)
	w.until("document.querySelector('#curves .u-legend')?.innerText.includes('lr=0.1: A B (2 seeds)')")
	w.until("document.querySelector('#settings td code')?.textContent === 'seed'")
	w.open("file://" + out + "/index.html#/compare?ids=" + idOf(filepath.Join(root, "one")) + "," + idOf(live))
	w.until("document.body.innerText.includes('run report')")
	w.until(`[...document.querySelectorAll("#curves figcaption > span:first-child")].map(s => s.textContent).join(" ") === "loss kl val_reward"`) // two runs, two, one
	w.quiet()
}
