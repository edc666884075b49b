//go:build !core

package experiments_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// tracking is a tracking server that keeps what it is told of one MLflow run.
type tracking struct {
	*httptest.Server
	mu      sync.Mutex
	created int
	name    string
	values  map[string]int // of each metric
	status  []string
	params  map[string]string
	tags    map[string]string
}

func newTracking(t *testing.T) *tracking {
	s := &tracking{values: map[string]int{}, params: map[string]string{}, tags: map[string]string{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Status       string
			RunName      string `json:"run_name"`
			Metrics      []struct{ Key string }
			Params, Tags []struct{ Key, Value string }
		}
		text, _ := io.ReadAll(r.Body)
		if r.Method == http.MethodPost && json.Unmarshal(text, &body) != nil {
			w.WriteHeader(400)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, p := range body.Params {
			s.params[p.Key] = p.Value
		}
		for _, tag := range body.Tags {
			s.tags[tag.Key] = tag.Value
		}
		for _, m := range body.Metrics {
			s.values[m.Key]++
		}
		switch filepath.Base(r.URL.Path) {
		case "create":
			s.created++
			s.name = body.RunName
			fallthrough
		case "get":
			fmt.Fprint(w, `{"run": {"info": {"run_id": "one", "artifact_uri": "s3://bucket", "lifecycle_stage": "active"}}}`)
		case "update":
			s.status = append(s.status, body.Status)
			fallthrough
		default:
			fmt.Fprint(w, `{"experiment": {"experiment_id": "7"}}`)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// A run that logs to MLflow computes and writes what one without it does; an interrupted one goes on there.
func TestMLflowRun(t *testing.T) {
	t.Parallel()
	s := newTracking(t)
	env := []string{"MLFLOW_TRACKING_URI=" + s.URL, "MLFLOW_RUN_NAME=mine"}
	dir := folder(t)
	p := startWith(t, "", env, tiny("hydra.run.dir="+dir, "report.plots=false")...)
	p.Until(func() bool { return exists(filepath.Join(dir, "checkpoints/rce_epoch1.state")) })
	p.Signal(syscall.SIGTERM)
	first := p.Wait()
	resumes := 0
	if first.Code == 143 { // else it was faster than the signal
		resumes = 1
		if r := startWith(t, "", env, "resume", dir).Wait(); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
	}
	outcomeOf(t, undrawn(t)).Same(t, outcomeOf(t, dir), resumes)
	if s.created != 1 || s.status[len(s.status)-1] != "FINISHED" || resumes == 1 &&
		strings.Join(s.status, " ") != "KILLED RUNNING FINISHED" {
		t.Errorf("%d MLflow runs, states %v after %d resumes", s.created, s.status, resumes)
	}
	if s.values["grpo/train/loss"] != 6 || s.values["rce/epoch/val_loss"] != 2 || s.values["eval/dev/best/reward"] != 1 {
		t.Errorf("values %v", s.values)
	}
	if s.params["grpo.epochs"] != "2" || s.name != "mine" ||
		!strings.HasPrefix(s.tags["fulcrum.best"], "val_reward 0.") || !strings.Contains(s.tags["mlflow.note.content"], "beams_v3") {
		t.Errorf("params %v, tags %v", s.params["grpo.epochs"], s.tags)
	}
}

// A server that cannot be logged to costs one warning.
func TestMLflowIsOptional(t *testing.T) {
	t.Parallel()
	data := beams(t, records())
	dead := httptest.NewServer(nil)
	dead.Close()
	for uri, warning := range map[string]string{dead.URL: "does not answer",
		"file:///tmp/mlruns": "MLFLOW_TRACKING_URI=file:///tmp/mlruns: want the http:// or https:// address"} {
		p := startWith(t, "", []string{"MLFLOW_TRACKING_URI=" + uri}, small(data, "hydra.run.dir="+folder(t), "logging.progress=false")...)
		r := p.Wait()
		if r.Code != 0 || strings.Count(r.Stderr, "warning: MLflow")+strings.Count(r.Stderr, "warning: MLFLOW") != 1 ||
			!strings.Contains(r.Stderr, warning) {
			t.Errorf("%s: exit code %d, stderr %q, want one warning with %q", uri, r.Code, r.Stderr, warning)
		}
	}
}
