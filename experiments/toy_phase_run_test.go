package experiments_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fulcrum/configs"
	"fulcrum/experiments"
	"fulcrum/experiments/job"
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/tasks"
	"fulcrum/phases"
	"fulcrum/reports/record"
	"fulcrum/reports/tracker"
)

// withToy is a program with the toy among its kinds of phases: one line.
func withToy() experiments.App {
	return experiments.App{Bring: []tasks.Bring{func(e *job.Entries) { e.Phases = append(e.Phases, toyKind()) }}}
}

// toyRun composes a run of the toy in dir.
func toyRun(dir string, overrides ...string) (*configs.Composed, *configs.Schema, error) {
	schema, err := withToy().Schema()
	if err != nil {
		return nil, nil, err
	}
	c, err := configs.Compose(configs.Request{Library: configs.Library(), Schema: schema, Now: time.Now(), AppName: "run",
		Overrides: append([]string{"hydra.run.dir=" + dir, "exp=beams_v3", "threads=1", "seed=3", "data.batch_size=16",
			"selector.hidden_dim=32", "data.shapes.train_queries=48", "data.shapes.reader_questions=30", "data.shapes.val_queries=16",
			"data.shapes.dev_queries=16", "report.plots=false", "logging.progress=false", "schedule=[toy]"}, overrides...)})
	return c, schema, err
}

// stopper is a tracker that ends a run after some steps.
type stopper struct {
	steps int
	stop  context.CancelFunc
}

func (s *stopper) Row(r record.Row) {
	if r.Kind == record.KindStep {
		if s.steps--; s.steps == 0 {
			s.stop()
		}
	}
}

func (s *stopper) Close(tracker.End) error { return nil }

// A kind of phase is one file, toy_phase_test.go, and one line, in withToy: elsewhere it is in job.PhaseKinds. It is documented, validated,
// looked at by the preflight and the audit; it trains, resumes and is reported.
func TestToyPhase(t *testing.T) {
	for _, tc := range []struct{ name, override, want string }{
		{"range", "toy.lr=2", "toy.lr=2: want a number in (0, 1)"},
		{"Validate", "toy.lr=0.7 toy.epochs=2", "want less than 0.5 with two epochs, got 0.7"},
		{"unknown key", "toy.lrs=0.1", "did you mean toy.lr?"},
		{"unknown phase", "schedule=[toi]", "toy"},
		{"no epochs", "toy.epochs=0", ""},
		{"a section of its kind", "schedule=[mine] +mine={kind:toy,lr:0.02}", ""},
		{"another kind", "schedule=[mine] +mine={kind:toi}", "toy"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, _, err := toyRun("unused", strings.Fields(tc.override)...); (err == nil) != (tc.want == "") || err != nil &&
				!strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %s", tc.override, err, tc.want)
			}
		})
	}
	trains := func(app experiments.App, ctx context.Context) (*configs.Composed, string, error) {
		dir := folder(t)
		c, schema, err := toyRun(dir, "toy.epochs=2")
		if err != nil {
			t.Fatal(err)
		}
		if keys := strings.Join(schema.Keys(), " "); !strings.Contains(keys, "toy.lr") {
			t.Errorf("the table of keys lacks toy.lr: %s", keys)
		}
		return c, dir, app.Run(ctx, c)
	}
	app := withToy()
	composed, whole, err := trains(app, t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := job.Decode(composed)
	if err != nil {
		t.Fatal(err)
	}
	if c.Learns(phases.FromGroups) || !c.Learns(phases.FromRewards) {
		t.Error("the audit does not know what the toy learns from")
	}
	rows, err := record.ReadRun(whole)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows.Epochs) != 2 || rows.Epochs[1].Phase != "toy" {
		t.Errorf("got epochs %v, want two of toy", rows.Epochs)
	}
	if report := read(t, filepath.Join(whole, "report.md")); !strings.Contains(report, "toy epoch 2") {
		t.Errorf("the report does not name the toy:\n%s", report)
	}
	ctx, stop := context.WithCancel(t.Context())
	cut := app
	cut.Trackers = map[string]tracker.Open{"stopper": func(tracker.Run) (tracker.Sink, error) { return &stopper{4, stop}, nil }}
	_, dir, err := trains(cut, ctx)
	if _, ok := errors.AsType[*runfolder.InterruptedError](err); !ok {
		t.Fatalf("a stopped run ends with %v", err)
	}
	if err := app.Resume(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	outcomeOf(t, whole).Same(t, outcomeOf(t, dir), 1)
}
