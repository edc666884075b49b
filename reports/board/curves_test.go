package board

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/record"
	"fulcrum/reports/webchart"
)

// Distances of two phases have references of their own: no line joins them, over steps or over time. Losses of steps differ too, but
// validation is the same in all.
func TestCurvesEndWithTheirPhase(t *testing.T) {
	w := openBrowser(t)
	file := filepath.Join(t.TempDir(), "page.html")
	script := webchart.Script([]byte("window.curvesOf = curvesOf;"))
	reportstest.Must(t, os.WriteFile(file, fmt.Appendf(nil, "<!doctype html><script>%s</script>", script), 0o644))
	w.open("file://" + file)
	w.until("window.curvesOf")
	const answer = `{ started: 0, phases: [{ name: "rce", from: 1 }, { name: "grpo", from: 13 }],
		steps: { steps: [6, 12, 18], times: [6, 12, 20], series: { kl: { mean: [1, 2, 0] } } },
		epochs: { steps: [6, 12, 18], times: [6, 12, 20], series: { val_kl: { mean: [1, 2, 0] }, val_loss: { mean: [1, 2, 3] } } } }`
	for _, tc := range []struct{ name, time, want string }{
		{"kl", "false", "6:1 12:2 12.5:null 18:0"}, {"val_kl", "false", "6:1 12:2 12.5:null 18:0"},
		{"val_kl", "true", "6:1 12:2 16:null 20:0"}, {"val_loss", "false", "6:1 12:2 18:3"},
	} {
		if got := w.js(`curvesOf(` + answer + `, ["` + tc.name + `"], { time: ` + tc.time + ` }).map((c) =>
			c.x.map((x, k) => x + ":" + c.y[k]).join(" ")).join()`); got != tc.want {
			t.Errorf("%s, over time %s: %v, want %s", tc.name, tc.time, got, tc.want)
		}
	}
}

// What a run has in use is drawn over its steps and time, in GB and no more points than are asked for; a machine without a GPU has no
// chart of one.
func TestSystemIsDrawn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	lines := ""
	for i := range 100 {
		lines += fmt.Sprintf(`{"time": %d, "phase": "grpo", "global_step": %d, "memory_bytes": %d, "memory_peak_bytes": 5e9}`+"\n", 1000+10*i, i, 1e9+i*1e7)
	}
	golden.Write(t, dir, map[string]string{configFile: config, record.MetricsFile: stepRows("grpo", 1, 100, 0), record.SystemFile: lines})
	b := boardOf(dir)
	b.Scan(true)
	a, err := b.curves(idOf(dir), url.Values{"points": {"30"}})
	if err != nil || a.System == nil {
		t.Fatalf("%+v, %v", a, err)
	}
	n := len(a.System.Steps)
	if memory := a.System.Series["memory"].Mean; n < 15 || n > 30 || memory[0] != 1 || a.System.Times[1] <= 1000 || memory[n-1] < 1.9 ||
		len(a.System.Series["memory_peak"].Mean) != n || len(a.System.Series) != 2 {
		t.Errorf("%d points: %v %+v", n, memory, a.System)
	}
}

// A chart as a file has what it shows: title, axes, curves with their gaps and intervals, the phases, and the whole legend but for
// hidden curves.
// As a picture it has twice the pixels, on the clipboard too.
func TestChartsAsFiles(t *testing.T) {
	w := openBrowser(t)
	file := filepath.Join(t.TempDir(), "page.html")
	script := webchart.Script([]byte("window.Chart = Chart;"))
	reportstest.Must(t, os.WriteFile(file, fmt.Appendf(nil,
		"<!doctype html><meta charset=utf-8><style>%s :root { --page: #fff; --quiet: #555; --line: #ddd; --text: #111; }</style>"+
			"<body><script>%s</script>",
		webchart.Style(), script), 0o644))
	w.open("file://" + file)
	w.until("window.Chart")
	w.js(`window.saved = []; const make = URL.createObjectURL; URL.createObjectURL = (blob) => { saved.push(blob); return make(blob); };
		Object.defineProperty(navigator, "clipboard", { value: { write: async ([item]) => window.copied = await item.getType("image/png") } });
		const x = [...Array(40).keys()], y = x.map((v) => v === 20 ? null : v * v), name = "a name of many words and letters & one <b> ";
		window.chart = new Chart(document.body, "Loss & co", { unit: "nats" });
		const curves = [0, 1, 2, 3, 4, 5].map((i) => ({ label: name + i, colour: "#0068a6", x, y: y.map((v) => v == null ? null : v + 9 * i) }));
		Object.assign(curves[0], { interval: true, low: y.map((v) => v == null ? null : v - 5), high: y.map((v) => v == null ? null : v + 5) });
		chart.show(curves, { smooth: 0.5, phases: [{ name: "sft", from: 0 }, { name: "grpo", from: 10 }], levels: [{ label: "level", value: 300 }] })`)
	w.js(`new Promise((done) => setTimeout(done, 100)).then(() => chart.plot.setSeries(chart.plot.series.length - 1, { show: false }))`)
	w.js(`new Promise((done) => setTimeout(done, 100)).then(() => { for (const b of document.querySelectorAll(".buttons button")) if (b.textContent !== "CSV") b.click(); })`)
	w.until(`saved.length === 2 && window.copied`)
	w.js(`saved[0].text().then((text) => window.drawing = new DOMParser().parseFromString(text, "image/svg+xml").documentElement)`)
	got := fmt.Sprint(w.js(`[drawing.querySelectorAll("polyline").length, drawing.querySelectorAll("polygon").length, drawing.querySelector("text").textContent,
		[...drawing.querySelectorAll("text")].filter((t) => t.textContent.startsWith("●")).map((t) => t.textContent.slice(-1)).join(""),
		[...drawing.querySelectorAll("text")].filter((t) => +t.getAttribute("y") > +drawing.getAttribute("height")).length, ["level", "500"].filter((l) => drawing.textContent.includes(l)).join(),
		drawing.querySelectorAll("[stroke-dasharray='2 3']").length, saved[0].type, saved[1].type, copied.type].join(" ")`))
	if want := "22 2 Loss & co (nats) 01234 0 level,500 1 image/svg+xml image/png image/png"; got != want {
		t.Errorf("%s, want %s\n%v", got, want, w.js("saved[0].text()"))
	}
	size := w.js(`createImageBitmap(saved[1]).then((b) => [b.width === 2 * drawing.getAttribute("width"), b.height === 2 * drawing.getAttribute("height")].join())`)
	if size != "true,true" {
		t.Errorf("the picture is %v as large as twice the drawing", size)
	}
}

// The ticks of parallel coordinates are round and apart: of a measure never the values that jobs happen to have, of a key over decades
// powers of ten.
func TestTicksOfParallelCoordinates(t *testing.T) {
	w := openBrowser(t)
	file := filepath.Join(t.TempDir(), "page.html")
	script := webchart.Script(read("parallel.js"), []byte("window.Parallel = Parallel;"))
	reportstest.Must(t, os.WriteFile(file, fmt.Appendf(nil,
		"<!doctype html><meta charset=utf-8><style>%s</style><body><script>%s</script>", read("board.css"), script), 0o644))
	w.open("file://" + file)
	w.until("window.Parallel")
	w.js(`const lr = [1.3e-5, 2.2e-5, 1e-4, 3e-4, 7e-4, 1e-3, 3.3e-3, 9e-3], jobs = lr.map((v, i) => ({ number: i, params: { lr: String(v), few: String(i % 3) }, objectives: [0.5 + 0.0011 * i * i] }));
		document.body.append(new Parallel({ jobs: jobs, objectives: [{ name: "val_reward" }], dimensions: [{ key: "lr", log: true }, { key: "few" }] }, new Map(), () => {}, () => {}).element);
		document.body.append(new Parallel({ jobs: jobs.slice(0, 4), objectives: [{ name: "val_reward" }], dimensions: [{ key: "few" }] }, new Map(), () => {}, () => {}).element)`)
	got := w.js(`[...document.querySelectorAll(".axis")].map((a) => [...a.querySelectorAll("text:not(.name)")].map((t) => t.textContent).join(" ")).join("|")`)
	if want := "0.0001 0.001|0 1 2|0.5 0.52 0.54|0 1 2|0.5 0.502 0.504 0.506 0.508"; got != want {
		t.Errorf("%v, want %s", got, want)
	}
	if over := w.js(`[...document.querySelectorAll(".axis")].flatMap((a) => [...a.querySelectorAll("text")].map((t) => t.getBoundingClientRect()).filter((p, i, all) => all.some((q, k) => k < i && p.top < q.bottom - 1 && q.top < p.bottom - 1))).length`); over != 0. {
		t.Errorf("%v ticks lie over others", over)
	}
}
