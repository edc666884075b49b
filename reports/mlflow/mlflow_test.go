package mlflow

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"fulcrum/reports/record"
	"fulcrum/reports/tracker"
)

// fakeMLflow is a tracking server with the limits and the answers of the real one.
type fakeMLflow struct {
	*httptest.Server
	mu          sync.Mutex
	experiments map[string]string // name → id
	runs        map[string]*mlflowFakeRun
	artifacts   map[string]string
	calls       []string                                                    // "POST runs/create"
	auth        map[string]bool                                             // Authorization headers seen
	fault       func(w http.ResponseWriter, call string, n int) (stop bool) // before the answer to the n-th call of a kind
	counts      map[string]int
}

type mlflowFakeRun struct {
	experiment, name, status string
	tags, params             map[string]string
	metrics                  map[string][]metric
	stage                    string
}

func newFakeMLflow(t *testing.T) *fakeMLflow {
	s := &fakeMLflow{experiments: map[string]string{}, runs: map[string]*mlflowFakeRun{}, artifacts: map[string]string{},
		auth: map[string]bool{}, counts: map[string]int{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *fakeMLflow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call := strings.TrimPrefix(r.URL.Path, "/api/2.0/mlflow/")
	s.mu.Lock()
	s.calls = append(s.calls, r.Method+" "+call)
	s.counts[call]++
	n, fault := s.counts[call], s.fault
	s.auth[r.Header.Get("Authorization")] = true
	s.mu.Unlock()
	if fault != nil && fault(w, call, n) {
		return
	}
	text, _ := io.ReadAll(r.Body)
	var body struct {
		Name         string `json:"name"`
		ExperimentID string `json:"experiment_id"`
		RunName      string `json:"run_name"`
		RunID        string `json:"run_id"`
		Status       string `json:"status"`
		Tags, Params []pair
		Metrics      []metric
	}
	if r.Method == http.MethodPost {
		if err := json.Unmarshal(text, &body); err != nil {
			s.refuse(w, 400, "BAD_REQUEST", err.Error())
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	run := s.runs[body.RunID]
	switch path := r.URL.Path; {
	case strings.HasPrefix(path, "/api/2.0/mlflow-artifacts/artifacts/") && r.Method == http.MethodPut:
		s.artifacts[strings.TrimPrefix(path, "/api/2.0/mlflow-artifacts/artifacts/")] = string(text)
	case call == "experiments/get-by-name" && r.Method == http.MethodGet:
		id, ok := s.experiments[r.URL.Query().Get("experiment_name")]
		if !ok {
			s.refuse(w, 404, "RESOURCE_DOES_NOT_EXIST", "no such experiment")
			return
		}
		fmt.Fprintf(w, `{"experiment": {"experiment_id": %q, "lifecycle_stage": "active"}}`, id)
	case call == "experiments/create":
		if s.experiments[body.Name] != "" {
			s.refuse(w, 400, "RESOURCE_ALREADY_EXISTS", "it is there")
			return
		}
		id := fmt.Sprint(len(s.experiments) + 1)
		s.experiments[body.Name] = id
		fmt.Fprintf(w, `{"experiment_id": %q}`, id)
	case call == "runs/create":
		id := fmt.Sprintf("run%d", len(s.runs)+1)
		s.runs[id] = &mlflowFakeRun{experiment: body.ExperimentID, name: body.RunName, status: "RUNNING", tags: map[string]string{},
			params: map[string]string{}, metrics: map[string][]metric{}, stage: "active"}
		s.runs[id].merge(body.Tags, nil, nil)
		s.describe(w, id)
	case call == "runs/get" && r.Method == http.MethodGet:
		id := r.URL.Query().Get("run_id")
		if s.runs[id] == nil {
			s.refuse(w, 404, "RESOURCE_DOES_NOT_EXIST", "no such run")
			return
		}
		s.describe(w, id)
	case run == nil:
		s.refuse(w, 404, "RESOURCE_DOES_NOT_EXIST", "no such run: "+body.RunID)
	case call == "runs/update":
		run.status = body.Status
		fmt.Fprint(w, `{}`)
	case call == "runs/log-batch":
		if m, p, g := len(body.Metrics), len(body.Params), len(body.Tags); m > 1000 || p > 100 || g > 100 || m+p+g > 1000 ||
			len(text) > 1e6 {
			s.refuse(w, 400, "INVALID_PARAMETER_VALUE", fmt.Sprintf("a batch of %d metrics, %d params, %d tags, %d bytes", m, p, g,
				len(text)))
			return
		}
		if bad := run.merge(body.Tags, body.Params, body.Metrics); bad != "" {
			s.refuse(w, 400, "INVALID_PARAMETER_VALUE", bad)
			return
		}
		fmt.Fprint(w, `{}`)
	default:
		s.refuse(w, 404, "ENDPOINT_NOT_FOUND", path)
	}
}

func (s *fakeMLflow) refuse(w http.ResponseWriter, status int, code, message string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error_code": %q, "message": %q}`, code, message)
}

func (s *fakeMLflow) describe(w http.ResponseWriter, id string) {
	fmt.Fprintf(w, `{"run": {"info": {"run_id": %q, "artifact_uri": "mlflow-artifacts:/1/%s/artifacts", "lifecycle_stage": %q}}}`, id, id,
		s.runs[id].stage)
}

// merge does what the real server does: parameters never change, names are checked.
func (r *mlflowFakeRun) merge(tags, params []pair, metrics []metric) string {
	for _, p := range params {
		if had, ok := r.params[p.Key]; ok && had != p.Value {
			return "changing param values is not allowed: " + p.Key
		}
		if len(p.Value) > 500 || strings.Trim(p.Key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./ ") != "" {
			return "invalid param " + p.Key
		}
		r.params[p.Key] = p.Value
	}
	for _, tag := range tags {
		if len(tag.Value) > 5000 {
			return "invalid tag " + tag.Key
		}
		r.tags[tag.Key] = tag.Value
	}
	for _, m := range metrics {
		r.metrics[m.Key] = append(r.metrics[m.Key], m)
	}
	return ""
}

// heard are the warnings and lines that MLflow said.
type heard struct {
	mu    sync.Mutex
	lines []string
}

func (h *heard) say(level record.Level, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, map[record.Level]string{record.LevelInfo: "info ", record.LevelWarning: "warning "}[level]+text)
}

func (h *heard) text() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.lines, "\n")
}

func fastMLflow(t *testing.T, uri string, h *heard) Options {
	return Options{Server: Server{URI: uri}, Experiment: "study", RunName: "okvqa_v3 a/b", Run: tracker.Run{Dir: t.TempDir(), Say: h.say},
		Settings: map[string]string{"seed": "3", "grpo.lr": "0.001"}, Tags: map[string]string{"mlflow.user": "me", "empty": ""},
		every: 5 * time.Millisecond, backoff: 5 * time.Millisecond, patience: time.Minute}
}

func stepRow(step int, fields map[string]any) record.Row {
	return record.Row{Kind: record.KindStep, Phase: "grpo", Epoch: 1, Step: step, GlobalStep: step, Time: 1000 + float64(step)/1000,
		Fields: fields}
}

func TestMLflowLogsARun(t *testing.T) {
	s, h := newFakeMLflow(t), &heard{}
	opt := fastMLflow(t, s.URL, h)
	opt.Server.Token = "secret"
	for i := range 250 {
		opt.Settings[fmt.Sprintf("p%03d", i)] = strings.Repeat("é", 400)
	}
	opt.Settings["odd:key[0]"] = "x"
	for name, text := range map[string]string{"report.md": strings.Repeat("long ", 2000), ".hydra/config.yaml": "seed: 3\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(opt.Dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(opt.Dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m := Start(opt)
	const steps = 3000
	for i := 1; i <= steps; i++ {
		m.Row(stepRow(i, map[string]any{"loss": 1 / float64(i), "items": 4, "adv_hist": []float64{1}}))
	}
	m.Row(stepRow(steps+1, map[string]any{"loss": math.NaN(), "kl": math.Inf(1)}))
	m.Row(record.Row{Kind: record.KindEpoch, Phase: "grpo", Epoch: 1, GlobalStep: 2,
		Fields: map[string]any{"val_reward": 0.5, "checkpoint": "x"}})
	m.Row(record.Row{Kind: record.KindEval, Fields: map[string]any{"split": "dev", "policy": "best", "reward": 0.25}})
	m.Row(record.Row{Kind: record.KindEvent, Phase: "grpo", Fields: map[string]any{"event": "beta_at_bound", "severity": "warning",
		"message": "β is 10"}})
	m.Row(record.Row{Kind: record.KindEvent, Phase: "grpo", Fields: map[string]any{"event": "resume", "severity": "note",
		"message": "no tag"}})
	m.Close(tracker.End{State: record.StateDone})
	if h.text() != "" {
		t.Errorf("said %q", h.text())
	}
	run := s.runs["run1"]
	if run == nil || len(s.runs) != 1 {
		t.Fatalf("runs %v, want one", s.runs)
	}
	if run.experiment != "1" || s.experiments["study"] != "1" || run.name != "okvqa_v3 a/b" || run.status != "FINISHED" {
		t.Errorf("run %+v in %v", run, s.experiments)
	}
	loss := run.metrics["grpo/train/loss"]
	if len(loss) != steps || len(run.metrics["grpo/train/items"]) != steps {
		t.Fatalf("%d and %d values of %d steps", len(loss), len(run.metrics["grpo/train/items"]), steps)
	}
	if want := (metric{"grpo/train/loss", 0.5, 1000002, 2}); loss[1] != want {
		t.Errorf("second value %+v, want %+v", loss[1], want)
	}
	for key, want := range map[string]float64{"grpo/epoch/val_reward": 0.5, "eval/dev/best/reward": 0.25} {
		if got := run.metrics[key]; len(got) != 1 || got[0].Value != want {
			t.Errorf("%s: %v, want %g", key, got, want)
		}
	}
	for key, want := range map[string]string{"mlflow.user": "me", "fulcrum.state": "done", "fulcrum.warning.beta_at_bound": "β is 10",
		"fulcrum.nonfinite": "grpo/train/kl from step 3001, grpo/train/loss from step 3001"} {
		if run.tags[key] != want {
			t.Errorf("tag %s: %q, want %q", key, run.tags[key], want)
		}
	}
	if _, ok := run.tags["empty"]; ok || run.tags["fulcrum.note.resume"] != "" || len(run.tags["mlflow.note.content"]) != 5000 {
		t.Errorf("tags %v", run.tags)
	}
	if len(run.params) != 253 || run.params["grpo.lr"] != "0.001" || run.params["odd_key_0_"] != "x" ||
		!strings.HasSuffix(run.params["p000"], "é…") {
		t.Errorf("%d params: %q %q %q", len(run.params), run.params["grpo.lr"], run.params["odd_key_0_"], run.params["p000"])
	}
	if len(s.artifacts) != 2 || s.artifacts["1/run1/artifacts/.hydra/config.yaml"] != "seed: 3\n" {
		t.Errorf("artifacts %v", s.artifacts)
	}
	if len(s.auth) != 1 || !s.auth["Bearer secret"] {
		t.Errorf("Authorization %v", s.auth)
	}
}

// Whatever the server does, a row costs nothing, the end comes soon, and there is one warning.
func TestMLflowFaults(t *testing.T) {
	status := func(code int, header ...string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			if len(header) > 0 {
				w.Header().Set("Retry-After", header[0])
			}
			w.WriteHeader(code)
			fmt.Fprint(w, "<html>")
		}
	}
	for _, tc := range []struct {
		name    string
		fault   func(w http.ResponseWriter, call string, n int) bool
		dead    bool
		mute    bool
		arrives bool // all values do
		warning string
		also    string // said besides
	}{
		{name: "busy, then well", fault: func(w http.ResponseWriter, call string, n int) bool {
			if call == "runs/log-batch" && n <= 2 {
				status(429, "0")(w)
				return true
			}
			return false
		}, arrives: true, warning: "answers 429"},
		{name: "broken at first", fault: func(w http.ResponseWriter, call string, n int) bool {
			if n == 1 {
				status(500)(w)
			}
			return n == 1
		}, arrives: true, warning: "answers 500"},
		{name: "refuses who is not known", fault: func(w http.ResponseWriter, _ string, _ int) bool {
			status(401)(w)
			return true
		}, warning: "answers 401: set MLFLOW_TRACKING_TOKEN, or"},
		{name: "no MLflow at all", fault: func(w http.ResponseWriter, _ string, _ int) bool {
			fmt.Fprint(w, "<html>")
			return true
		}, warning: "is this an MLflow server?"},
		{name: "refuses a batch", fault: func(w http.ResponseWriter, call string, n int) bool {
			if call == "runs/log-batch" && n == 2 { // the first has the parameters
				status(400)(w)
			}
			return call == "runs/log-batch" && n == 2
		}, warning: "refuses a batch", also: "did not get there"},
		{name: "does not answer", mute: true, warning: "does not answer in time", also: "did not get there"},
		{name: "is not there", dead: true, warning: "connection refused", also: "did not get there"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, h := newFakeMLflow(t), &heard{}
			s.fault = tc.fault
			opt := fastMLflow(t, s.URL, h)
			if tc.dead {
				s.Close()
			}
			if tc.mute {
				over := make(chan struct{})
				t.Cleanup(func() { close(over) })
				s.fault = func(http.ResponseWriter, string, int) bool { <-over; return true }
				opt.patience = 1500 * time.Millisecond
			}
			const soon = 10 * time.Second // a call that is waited for takes 15 s; a busy machine's rows a part of one
			m := Start(opt)
			begin := time.Now()
			const steps = 1500
			for i := 1; i <= steps; i++ {
				m.Row(stepRow(i, map[string]any{"loss": 0.5, "kl": 0.1}))
			}
			if took := time.Since(begin); took > soon {
				t.Errorf("%d rows took %v", steps, took)
			}
			time.Sleep(100 * time.Millisecond)
			begin = time.Now()
			m.Close(tracker.End{State: record.StateDone})
			if took := time.Since(begin); took > soon {
				t.Errorf("the end took %v", took)
			}
			said := h.text()
			if strings.Count(said, "warning ") != 1 || !strings.Contains(said, tc.warning) {
				t.Errorf("said %q, want one warning with %q", said, tc.warning)
			}
			if !strings.Contains(said, tc.also) || tc.also == "" && strings.Contains(said, "info ") {
				t.Errorf("said %q, want %q", said, tc.also)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if tc.arrives {
				if run := s.runs["run1"]; len(run.metrics["grpo/train/loss"]) != steps || run.status != "FINISHED" || len(s.runs) != 1 {
					t.Errorf("%d of %d values, %s", len(run.metrics["grpo/train/loss"]), steps, run.status)
				}
			}
		})
	}
}

// The queue of a server that never answers is bounded; the rows of epochs find room.
func TestMLflowQueueIsBounded(t *testing.T) {
	s, h := newFakeMLflow(t), &heard{}
	s.Close()
	opt := fastMLflow(t, s.URL, h)
	m := Start(opt)
	for i := range 3 * maxQueue {
		m.Row(stepRow(i, map[string]any{"loss": 0.5}))
	}
	m.Row(record.Row{Kind: record.KindEpoch, Phase: "grpo", Fields: map[string]any{"val_reward": 1.0}})
	m.mu.Lock()
	waiting, dropped := len(m.metrics), m.dropped
	m.mu.Unlock()
	if waiting != maxQueue+1 || dropped != 2*maxQueue {
		t.Errorf("%d wait and %d are dropped, want %d and %d", waiting, dropped, maxQueue+1, 2*maxQueue)
	}
	m.Close(tracker.End{State: record.StateFailed})
	if want := "150,001 values did not get there"; !strings.Contains(h.text(), want) {
		t.Errorf("said %q, want %q", h.text(), want)
	}
}

// A resumed run goes on in its MLflow run, unless that is gone.
func TestMLflowResume(t *testing.T) {
	s, h := newFakeMLflow(t), &heard{}
	opt := fastMLflow(t, s.URL, h)
	attempt := func(step int, state string) {
		m := Start(opt)
		m.Row(stepRow(step, map[string]any{"loss": 0.5}))
		m.Close(tracker.End{State: state})
	}
	attempt(1, record.StateInterrupted)
	if s.runs["run1"].status != "KILLED" {
		t.Errorf("an interrupted run is %s", s.runs["run1"].status)
	}
	opt.Resumed = true
	attempt(2, record.StateInterrupted)
	opt.Settings["checks.severity.no_signal"] = "note" // may change on the way; a parameter may not
	opt.Settings["seed"] = "4"
	m := Start(opt)
	for step, row := range []map[string]any{{"loss": 0.5}, {"kl": 0.1}} { // the last step may not have been there in full
		m.Row(stepRow(step+1, row))
	}
	m.Close(tracker.End{State: record.StateDone})
	if n := len(s.runs["run1"].metrics["grpo/train/kl"]); n != 1 {
		t.Errorf("%d values of kl, want what the killed attempt had not sent", n)
	}
	if run := s.runs["run1"]; len(s.runs) != 1 || run.status != "FINISHED" || len(run.metrics["grpo/train/loss"]) != 2 {
		t.Errorf("%d runs; the first: %+v", len(s.runs), run)
	}
	s.runs["run1"].stage = "deleted"
	attempt(3, record.StateFailed)
	if run := s.runs["run2"]; len(s.runs) != 2 || run.status != "FAILED" || run.params["seed"] != "4" {
		t.Errorf("%d runs; the second: %+v", len(s.runs), run)
	}
	other := newFakeMLflow(t)
	opt.Server.URI = other.URL
	attempt(4, record.StateDone)
	if len(other.runs) != 1 || len(s.runs) != 2 {
		t.Errorf("another server has %d runs, the first %d", len(other.runs), len(s.runs))
	}
	if h.text() != "" {
		t.Errorf("said %q", h.text())
	}
}

// Jobs of a sweep that start together make one experiment; a run without rows is none.
func TestMLflowEdges(t *testing.T) {
	s, h := newFakeMLflow(t), &heard{}
	var wait sync.WaitGroup
	for range 8 {
		opt := fastMLflow(t, s.URL, h)
		wait.Go(func() {
			m := Start(opt)
			m.Row(stepRow(1, map[string]any{"loss": 0.5}))
			m.Close(tracker.End{State: record.StateDone})
		})
	}
	wait.Wait()
	if len(s.experiments) != 1 || len(s.runs) != 8 {
		t.Errorf("%d experiments, %d runs", len(s.experiments), len(s.runs))
	}
	calls := len(s.calls)
	m := Start(fastMLflow(t, s.URL, h))
	m.Tag("a", "b")
	m.Close(tracker.End{State: record.StateFailed})
	if len(s.calls) != calls {
		t.Errorf("a run without a row made the calls %v", s.calls[calls:])
	}
	opt := fastMLflow(t, s.URL, h)
	opt.RunID = "run3" // as `mlflow run` sets it
	m = Start(opt)
	m.Row(stepRow(2, map[string]any{"loss": 0.5}))
	m.Close(tracker.End{State: record.StateDone})
	if len(s.runs) != 8 || len(s.runs["run3"].metrics["grpo/train/loss"]) != 2 {
		t.Errorf("%d runs; run3 %+v", len(s.runs), s.runs["run3"])
	}
	if h.text() != "" {
		t.Errorf("said %q", h.text())
	}
}

// A name that is too long is cut to one that MLflow accepts, and is sent once.
func TestMLflowLongNames(t *testing.T) {
	s, h := newFakeMLflow(t), &heard{}
	m := Start(fastMLflow(t, s.URL, h))
	name := strings.Repeat("model/", 50)
	m.Row(stepRow(1, map[string]any{"loss": 1.0}))
	m.Tag(name, "long")
	m.Close(tracker.End{State: record.StateDone})
	key := validKey(name)
	if len(key) > maxKeyLength || strings.Trim(key, "model/_") != "" || validKey(key) != key {
		t.Errorf("%d bytes: %q", len(key), key)
	}
	if run := s.runs["run1"]; run == nil || run.tags[key] != "long" || s.counts["runs/log-batch"] > 5 {
		t.Errorf("after %d batches the run is %+v", s.counts["runs/log-batch"], run)
	}
}
