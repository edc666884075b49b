package board

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"fulcrum/reports/webchart"
)

// What was chosen while an answer was on its way is asked for behind it: other columns, whose values the answer's version says nothing
// of, and the lines of runs that have come into sight. Jobs that violate a constraint or were pruned count in no mean.
func TestWhatIsAskedMeanwhile(t *testing.T) {
	page := fmt.Sprintf("<!doctype html><script>%s</script>", webchart.Script(read("store.js"), read("columns.js"), read("sparks.js"),
		[]byte("Object.assign(window, { Columns, Sparks, store, topsOf, groupWords, short });")))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, page) }))
	defer server.Close()
	w := openBrowser(t)
	w.open(server.URL)
	w.until("window.Columns")
	w.js(`window.asked = []; window.fetch = (path) => new Promise((done) => asked.push({ path: decodeURIComponent(path), reply: (x) => done({ json: async () => x }) }));
		window.columns = new Columns(new URLSearchParams("columns=a.b"), () => {}); columns.ask();
		columns.keys.push("c.d"); columns.ask();
		asked[0].reply({ version: 7, values: { run: ["old"] } })`)
	w.until("asked.length === 2")
	if got, want := w.js("asked[1].path"), "api/values?keys=a.b,c.d"; got != want {
		t.Errorf("asked for %v, want %s: of the version that the other columns have", got, want)
	}
	w.js(`asked[1].reply({ version: 8, values: { run: ["x", "y"] } })`)
	w.until(`columns.value({ id: "run" }, "c.d") === "y"`)

	w.js(`asked.length = 0; const sight = [{ id: "r", version: 1 }]; window.sparks = new Sparks(() => sparks.ask(sight)); sparks.ask(sight);
		sight.push({ id: "s", version: 1 }); sparks.ask(sight); asked[0].reply({ r: { val_reward: [1, 2] } })`)
	w.until("asked.length === 2")
	if got, want := w.js("asked[1].path"), "api/sparks?ids=s"; got != want {
		t.Errorf("asked for %v, want %s", got, want)
	}

	if got, want := w.js(`["grpo.kl.beta=0.05", "lr=0.1", "grpo.lr", "a.b.c=x.y"].map(short).join()`), "kl.beta=0.05,lr=0.1,grpo.lr,b.c=x.y"; got != want {
		t.Errorf("in short %v, want %s", got, want)
	}
	got := w.js(`store.sweeps.set("w", { settings: { 0: 0, 1: 0, 2: 1, 3: 1 }, infeasible: [2] });
		const runs = [0.1, 0.3, 0.9, 0.2, 0.8].map((best, job) => ({ id: String(job), sweep: "w", job: String(job), best, metric: "reward", data: "d", state: job === 4 ? "pruned" : "done" }));
		const first = [...topsOf(runs).values()][0]; [groupWords(runs), first.of, first.tied, first.first.size].join(); `)
	if want := "5 runs, mean 0.2000,2,2,1"; got != want {
		t.Errorf("settings, those tied and of one seed: %v, want %s", got, want)
	}
}
