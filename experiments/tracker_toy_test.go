package experiments_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fulcrum/configs"
	"fulcrum/experiments"
	"fulcrum/reports/record"
	"fulcrum/reports/tracker"
)

// toyTracker counts rows: a tracker is such a file, and one line in the table of trackers.
type toyTracker struct {
	run  tracker.Run
	rows map[string]int
	end  tracker.End
}

func (c *toyTracker) Row(r record.Row) { c.rows[r.Phase+" "+r.Kind]++ }

func (c *toyTracker) Close(end tracker.End) error {
	c.end = end
	return errors.New("toy: nobody listens")
}

// A tracker in the table gets what a run is, its rows and its end; what is wrong with one is a warning.
func TestToyTracker(t *testing.T) {
	toy := &toyTracker{rows: map[string]int{}}
	app := experiments.App{Trackers: map[string]tracker.Open{
		"toy": func(run tracker.Run) (tracker.Sink, error) {
			toy.run = run
			return toy, nil
		},
		"deaf":    func(tracker.Run) (tracker.Sink, error) { return nil, errors.New("deaf: no server") },
		"unasked": func(tracker.Run) (tracker.Sink, error) { return nil, nil },
	}}
	schema, err := app.Schema()
	if err != nil {
		t.Fatal(err)
	}
	dir := folder(t)
	c, err := configs.Compose(configs.Request{Library: configs.Library(), Schema: schema, Now: time.Now(), AppName: "run",
		Overrides: tiny("hydra.run.dir="+dir, "report.plots=false", "logging.progress=false", "logging.wandb=true")})
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if toy.rows["rce step"] != 6 || toy.rows["grpo step"] != 6 || toy.rows["grpo epoch"] != 2 {
		t.Errorf("rows %v", toy.rows)
	}
	if toy.end.State != record.StateDone || toy.end.Best == nil || toy.run.Dir != dir || !strings.HasPrefix(toy.run.Name, "beams_v3 ") {
		t.Errorf("told %+v, then %+v", toy.run, toy.end)
	}
	params, err := toy.run.Params()
	if err != nil || params["grpo.epochs"] != "2" {
		t.Errorf("grpo.epochs=%s, %v", params["grpo.epochs"], err)
	}
	log := read(t, filepath.Join(dir, "run.log"))
	for _, want := range []string{"deaf: no server", "this program is built without the tracker wandb"} {
		if strings.Count(log, want) != 1 {
			t.Errorf("run.log does not say %q once:\n%s", want, log)
		}
	}
}
