package mlflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fulcrum/internal/list"
	"fulcrum/internal/regular"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/tracker"
)

// Options say where the rows of a run are copied to and as what.
type Options struct {
	tracker.Run  // its Dir keeps the id of the MLflow run for a resume
	Server       Server
	Experiment   string            // its name; made when there is none
	ExperimentID string            // instead of the name
	RunID        string            // an MLflow run that exists already, to log to; "": a new one
	RunName      string            // "": the server makes one up
	Settings     map[string]string // the configuration: dotted key → value
	Tags         map[string]string

	every, backoff, patience time.Duration // between two sendings, before a second try, at the end; 0: the defaults
}

// What a batch may hold: the limits of runs/log-batch, and of parameters that every storage backend keeps.
const (
	keptFile       = "mlflow.json"
	maxMetrics     = 1000
	maxParams      = 100
	maxTags        = 100
	maxParamLength = 500
	maxTagLength   = 5000
	maxKeyLength   = 250
	maxQueue       = 50_000 // values that wait for a slow server; steps beyond them are left out
)

// Client copies the rows of a run to an MLflow tracking server while it happens (REST API 2.0, no client
// library). It works in a goroutine of its own and never slows or fails the run: rows wait in a bounded queue,
// what does not fit or cannot be sent is counted, and a server that does not answer is one warning.
type Client struct {
	opt    Options
	rest   *restClient
	cancel context.CancelFunc
	wake   chan struct{} // a batch is full
	ending chan struct{}
	ended  chan struct{}
	status string // how the run ended, in MLflow's words, at which time: set before ending is closed
	at     time.Time

	mu       sync.Mutex
	rows     int               // so far
	metrics  []metric          // to be sent, oldest first
	tags     map[string]string // to be sent
	dropped  int               // values that found the queue full or that the server refused
	infinite map[string]int    // names of metrics that were not finite → first global step

	silent atomic.Bool // the last try had no answer
	off    atomic.Bool // the server refused for good

	// Only the goroutine uses these.
	kept    keptRun
	before  int  // Sent of the attempt that is resumed
	failing bool // the last try failed
	warned  bool
}

type metric struct {
	Key       string  `json:"key"`
	Value     float64 `json:"value"`
	Timestamp int64   `json:"timestamp"` // ms since 1970
	Step      int     `json:"step"`
}

type pair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// keptRun is mlflow.json: which MLflow run a run folder belongs to.
type keptRun struct {
	TrackingURI string `json:"tracking_uri"` // without user and password
	RunID       string `json:"run_id"`
	Params      bool   `json:"params"` // they are there: a resume must not send others
	Sent        int    `json:"sent"`   // global step of the newest value: all before it are there, and are computed once more after a kill
	artifacts   string // where the server keeps the run's files
}

// Start begins to copy. It does not wait for the server.
func Start(opt Options) *Client {
	opt.every, opt.backoff, opt.patience = cmp.Or(opt.every, 2*time.Second), cmp.Or(opt.backoff, time.Second),
		cmp.Or(opt.patience, 5*time.Second)
	ctx, cancel := context.WithCancel(context.Background())
	m := &Client{opt: opt, rest: newRest(opt.Server), cancel: cancel, tags: map[string]string{}, infinite: map[string]int{},
		wake: make(chan struct{}, 1), ending: make(chan struct{}), ended: make(chan struct{})}
	go m.work(ctx)
	return m
}

// Row queues a row's numbers under their TensorBoard names. Numbers that are not finite are left out: pages of
// MLflow 3 do not load for runs that have them. A tag names them instead.
func (m *Client) Row(r record.Row) {
	if m.off.Load() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rows++; m.rows == 1 {
		defer m.hurry()
	}
	if r.Kind == record.KindEvent {
		switch severity := r.Text("severity"); severity {
		case "warning", "stop", "error":
			m.tags[validKey("fulcrum."+severity+"."+r.Text("event"))] = r.Text("message")
		}
		return
	}
	if r.Kind == record.KindStep && len(m.metrics) >= maxQueue {
		m.dropped += len(r.Fields)
		return
	}
	at := int64(math.Round(r.Time * 1000))
	for _, name := range slices.Sorted(maps.Keys(r.Fields)) {
		x, ok := r.Number(name)
		if !ok {
			continue
		}
		key := validKey(record.EventTag(r, name))
		if math.IsNaN(x) || math.IsInf(x, 0) {
			if _, known := m.infinite[key]; !known {
				m.infinite[key] = r.GlobalStep
				since := list.Map(slices.Sorted(maps.Keys(m.infinite)), func(key string) string {
					return fmt.Sprintf("%s from step %d", key, m.infinite[key])
				})
				m.tags["fulcrum.nonfinite"] = strings.Join(since, ", ")
			}
			continue
		}
		m.metrics = append(m.metrics, metric{key, x, at, r.GlobalStep})
	}
	if len(m.metrics) >= maxMetrics {
		m.hurry()
	}
}

// hurry has what waits sent now.
func (m *Client) hurry() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// validKey makes a name one that MLflow accepts: letters, digits and _-. /.
func validKey(name string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.ContainsRune("_-./ ", c):
			return c
		}
		return '_' // the ellipsis of a cut name too
	}, cutBytes(strings.Trim(name, "/"), maxKeyLength))
}

// cutBytes cuts a text to so many bytes, at a character.
func cutBytes(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-len("…")], "") + "…"
}

// Close sends what is left, how the run ended, and the files of the run folder that the server takes. It waits no more
// than a few seconds, and hardly at all for a server that did not answer before. It returns nil: what is wrong is said.
func (m *Client) Close(end tracker.End) error {
	if b := end.Best; b != nil {
		m.Tag("fulcrum.best", fmt.Sprintf("%s %.6g, %s epoch %d", b.Metric, float64(b.Value), b.Phase, b.Epoch))
	}
	if text, err := regular.ReadFile(page.ReportPath(m.opt.Dir)); err == nil && end.State != record.StateInterrupted {
		m.Tag("mlflow.note.content", withoutImages(string(text)))
	}
	status, known := map[string]string{record.StateDone: "FINISHED", record.StatePruned: "FINISHED",
		record.StateInterrupted: "KILLED"}[end.State]
	if !known {
		status = "FAILED"
	}
	m.Tag("fulcrum.state", end.State)
	m.status, m.at = status, time.Now()
	close(m.ending)
	patience := m.opt.patience
	if m.silent.Load() {
		patience /= 5
	}
	stop := time.AfterFunc(patience, m.cancel)
	<-m.ended
	stop.Stop()
	m.cancel()
	return nil
}

// withoutImages drops the lines of a markdown text that show a picture, which only stand in the run folder.
func withoutImages(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "](plots/") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// Tag sets a tag of the MLflow run.
func (m *Client) Tag(key, value string) {
	if value == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tags[validKey(key)] = value
}

// work sends batches until the run ends. A try that fails is repeated after a pause that doubles, at the end too
// while there is an answer.
func (m *Client) work(ctx context.Context) {
	defer close(m.ended)
	for pause, ending := m.opt.every, false; ; {
		ending = m.wait(ctx, pause, ending)
		if ending && !m.begun() {
			return // a run that failed before its first row is none
		}
		err := m.send(ctx)
		refused, answered := errors.AsType[*serverError](err)
		m.silent.Store(err != nil && !answered)
		switch {
		case err == nil:
			m.failing, pause = false, m.opt.every
		case answered && !refused.temporary():
			m.warn("MLflow: %v; this run is not logged there", err)
			m.off.Store(true)
			<-m.ending
			return
		case ctx.Err() != nil: // Close waits no longer
			m.warn("MLflow: %s does not answer in time", m.rest.uri)
			m.failing = true
		default:
			m.warn("MLflow: %v; the run goes on, and what is still to be logged is sent when the server answers", err)
			pause = min(2*pause, longestPause)
			if !m.failing {
				m.failing, pause = true, m.opt.backoff
			}
			if answered {
				pause = max(pause, min(refused.after, longestPause))
			}
		}
		if ending && (err == nil || !answered || ctx.Err() != nil) {
			m.finish(ctx)
			return
		}
	}
}

// begun reports whether there was a row.
func (m *Client) begun() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rows > 0
}

const longestPause = 30 * time.Second // between two tries

// wait returns when it is time to send again; true when the run has ended.
func (m *Client) wait(ctx context.Context, pause time.Duration, ending bool) bool {
	full, end, timer := m.wake, m.ending, (<-chan time.Time)(nil)
	if m.failing {
		full = nil
	}
	if ending {
		end = nil
	}
	if m.failing || m.kept.RunID != "" { // no run there before the first row is here
		timer = time.After(pause)
	}
	select {
	case <-end:
		return true
	case <-full:
	case <-timer:
	case <-ctx.Done():
	}
	return ending
}

// finish tells the server how the run ended, and the log what the server was not told.
func (m *Client) finish(ctx context.Context) {
	if !m.failing {
		body := map[string]any{"run_id": m.kept.RunID, "status": m.status, "end_time": m.at.UnixMilli()}
		err := m.insist(ctx, func() error { return m.rest.post(ctx, "runs/update", body, nil) })
		if err == nil {
			err = m.insist(ctx, func() error { return m.upload(ctx) })
		}
		if err != nil {
			m.warn("MLflow: %v", err)
		}
	}
	m.mu.Lock()
	left := len(m.metrics) + m.dropped
	m.mu.Unlock()
	if left > 0 {
		m.opt.Say(record.LevelInfo, fmt.Sprintf("MLflow: %s did not get there; metrics.jsonl has them all", page.Plural(left, "value")))
	}
}

// insist repeats a call that the server may answer better a moment later.
func (m *Client) insist(ctx context.Context, call func() error) error {
	for pause := m.opt.backoff; ; pause *= 2 {
		err := call()
		if refused, ok := errors.AsType[*serverError](err); !ok || !refused.temporary() {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// upload copies the run's files to the server where it takes them over HTTP (an artifact location
// mlflow-artifacts:/…); others need the client of their storage.
func (m *Client) upload(ctx context.Context) error {
	root, ok := strings.CutPrefix(m.kept.artifacts, "mlflow-artifacts:")
	if !ok {
		return nil
	}
	root = strings.TrimLeft(root, "/")
	for _, name := range []string{"report.md", "report.html", "summary.json", ".hydra/config.yaml", ".hydra/overrides.yaml"} {
		data, err := regular.ReadFile(filepath.Join(m.opt.Dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			escaped := (&url.URL{Path: root + "/" + filepath.ToSlash(name)}).EscapedPath()
			err = m.rest.do(ctx, http.MethodPut, "/api/2.0/mlflow-artifacts/artifacts/"+escaped, data, nil) // the server's proxy
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (m *Client) warn(format string, args ...any) {
	if !m.warned {
		m.warned = true
		m.opt.Say(record.LevelWarning, fmt.Sprintf(format, args...))
	}
}

// send makes the MLflow run if there is none yet and sends all that waits.
func (m *Client) send(ctx context.Context) error {
	if m.kept.RunID == "" {
		if err := m.begin(ctx); err != nil {
			return err
		}
	}
	if !m.kept.Params {
		if err := m.sendParams(ctx); err != nil {
			return err
		}
	}
	for {
		m.mu.Lock()
		m.metrics = slices.DeleteFunc(m.metrics, func(x metric) bool { return x.Step < m.before })
		metrics := slices.Clone(m.metrics[:min(len(m.metrics), maxMetrics-maxTags)])
		tags := pairsOf(m.tags, maxTagLength)
		tags = tags[:min(len(tags), maxTags)]
		m.mu.Unlock()
		if len(metrics)+len(tags) == 0 {
			return nil
		}
		body := map[string]any{"run_id": m.kept.RunID, "metrics": metrics, "tags": tags}
		err := m.rest.post(ctx, "runs/log-batch", body, nil)
		if refused, ok := errors.AsType[*serverError](err); ok && refused.Status == 400 { // these values, not all: go on without them
			m.warn("MLflow refuses a batch: %v", err)
			m.mu.Lock()
			m.dropped += len(metrics)
			m.mu.Unlock()
			err = nil
		}
		if err != nil {
			return err
		}
		m.mu.Lock()
		m.metrics = slices.Delete(m.metrics, 0, len(metrics))
		for _, tag := range tags {
			if cutBytes(m.tags[tag.Key], maxTagLength) == tag.Value { // not set anew meanwhile
				delete(m.tags, tag.Key)
			}
		}
		for _, x := range metrics {
			if m.dropped == 0 { // a resume sends again what is missing
				m.kept.Sent = max(m.kept.Sent, x.Step)
			}
		}
		m.mu.Unlock()
		if err := m.keep(); err != nil {
			return err
		}
	}
}

func pairsOf(m map[string]string, limit int) []pair {
	pairs := []pair{}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if m[key] != "" {
			pairs = append(pairs, pair{validKey(key), cutBytes(m[key], limit)})
		}
	}
	return pairs
}

func (m *Client) sendParams(ctx context.Context) error {
	for batch := range slices.Chunk(pairsOf(m.opt.Settings, maxParamLength), maxParams) {
		err := m.rest.post(ctx, "runs/log-batch", map[string]any{"run_id": m.kept.RunID, "params": batch}, nil)
		if refused, ok := errors.AsType[*serverError](err); ok && refused.Status == 400 {
			m.warn("MLflow refuses parameters: %v", err)
			err = nil
		}
		if err != nil {
			return err
		}
	}
	m.kept.Params = true
	return m.keep()
}
