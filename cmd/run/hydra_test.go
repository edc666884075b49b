package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"fulcrum/configs"
	"fulcrum/experiments/sweep"
	"fulcrum/internal/testkit/golden"
)

// The corpus of testdata/hydra holds command lines with the output of Hydra 1.4. They run here
// without a process; see the fields in hydraCase.

// fakeApp composes without a schema and records what it was asked to do.
type fakeApp struct {
	schema *configs.Schema
	calls  *[]string
	err    error
}

func (a fakeApp) note(s string) error {
	if a.calls != nil {
		*a.calls = append(*a.calls, s)
	}
	return a.err
}

func (a fakeApp) Report(dir string) error          { return a.note("report " + dir) }
func (a fakeApp) Schema() (*configs.Schema, error) { return a.schema, nil }
func (a fakeApp) Annexes() sweep.Annexes           { return sweep.Annexes{} }
func (a fakeApp) Run(_ context.Context, c *configs.Composed) error {
	return a.note("run " + strings.Join(c.TaskOverrides(), " "))
}
func (a fakeApp) Sweep(_ context.Context, req configs.Request, _ bool) error {
	jobs, err := configs.ExpandSweep(req)
	if err != nil {
		return err
	}
	return a.note(fmt.Sprintf("sweep %v", jobs))
}
func (a fakeApp) Jobs(req configs.Request) (string, error) {
	jobs, err := configs.ExpandSweep(req)
	return configs.JobsYAML(jobs), err
}
func (a fakeApp) Check(*configs.Composed) error { return nil }

func (a fakeApp) RefuseIdle(*configs.Composed) error { return nil }

func (a fakeApp) Resume(_ context.Context, dir string, _ ...string) error {
	return a.note("resume " + dir)
}

func (a fakeApp) Rerun(_ context.Context, dir string, overrides []string) error {
	return a.note("rerun " + strings.Join(append([]string{dir}, overrides...), " "))
}

// sessionOf is a call of the program with one verb more than it has.
func sessionOf(app fakeApp, out, errOut io.Writer) *session {
	table := verbs(annexes().verbs)
	table.Add("toy", toyVerb(app))
	return &session{ctx: context.Background(), out: out, errOut: errOut, app: app, verbs: table, annex: annexes(), now: time.Now()}
}

type hydraCase struct {
	ID         string            `json:"id"`
	Tree       string            `json:"tree"`
	ConfigName *string           `json:"config_name"`
	Args       []string          `json:"args"`
	Kind       string            `json:"kind"` // job, hydra, sweep or error
	Cfg        string            `json:"cfg"`  // what an error case asks for
	Env        map[string]string `json:"env"`
	Expected   json.RawMessage   `json:"expected"`
	Compare    string            `json:"compare"` // subset: the output may have more keys
	Alt        []json.RawMessage `json:"alt"`
}

// knownFailures are cases that we do not pass, with the reason.
var knownFailures = map[string]string{}

const wantCases = 190

func TestHydraCorpus(t *testing.T) {
	root := filepath.Join(golden.RepoRoot(), "configs", "testdata", "hydra")
	data, err := os.ReadFile(filepath.Join(root, "cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []hydraCase
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) != wantCases {
		t.Fatalf("%d cases, want %d", len(cases), wantCases)
	}
	conf := filepath.Join(root, "conf")
	for _, c := range cases {
		t.Run(c.ID, func(t *testing.T) {
			why := runCase(t, c, conf)
			reason, known := knownFailures[c.ID]
			switch {
			case why == "" && known:
				t.Errorf("passes now: remove it from knownFailures (%s)", reason)
			case why != "" && known:
				t.Skipf("known failure: %s", reason)
			case why != "":
				t.Error(why)
			}
		})
	}
}

func runCase(t *testing.T, c hydraCase, conf string) string {
	cfg := c.Kind
	if cfg == "error" {
		cfg = c.Cfg
		if cfg == "" {
			cfg = "job"
		}
	}
	args := []string{"--config-path", filepath.Join(conf, c.Tree)}
	if c.ConfigName != nil {
		args = append(args, "--config-name", *c.ConfigName)
	}
	if cfg == "sweep" {
		args = append(args, "-m")
	}
	for _, a := range c.Args {
		args = append(args, strings.ReplaceAll(a, "{CONF}", conf))
	}
	args = append(args, "--cfg", cfg)
	for k, v := range c.Env {
		t.Setenv(k, v)
	}
	var out, errOut bytes.Buffer
	err := sessionOf(fakeApp{}, &out, &errOut).call(args)
	first := ""
	for _, want := range append([]json.RawMessage{c.Expected}, c.Alt...) {
		why := judge(want, c, out.Bytes(), err)
		if why == "" {
			return ""
		}
		if first == "" {
			first = why
		}
	}
	return fmt.Sprintf("%s\nargs: %q\noutput:\n%s\nerror: %v", first, args, out.String(), err)
}

func judge(want json.RawMessage, c hydraCase, out []byte, err error) string {
	var fail struct {
		Error    bool     `json:"error"`
		Mentions []string `json:"mentions"`
	}
	if json.Unmarshal(want, &fail) == nil && fail.Error {
		if err == nil {
			return "no error"
		}
		if code := exitCode(context.Background(), err); code != 2 {
			return fmt.Sprintf("exit code %d, want 2", code)
		}
		for _, m := range fail.Mentions {
			if !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(m)) {
				return fmt.Sprintf("the message does not mention %q", m)
			}
		}
		return ""
	}
	if err != nil {
		return "failed"
	}
	got, perr := configs.ParseYAML("output", out)
	if perr != nil {
		return "output is not YAML: " + perr.Error()
	}
	dec := json.NewDecoder(bytes.NewReader(want))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return err.Error()
	}
	return differ("$", v, got, c.Compare == "subset")
}

// differ returns the first difference between a JSON value and a tree, "" when there is none.
func differ(path string, want any, got *configs.Node, subset bool) string {
	bad := func() string { return fmt.Sprintf("%s: got %s %q, want %v", path, got.Kind, got.Text, want) }
	switch w := want.(type) {
	case nil:
		if got.Kind != configs.Null {
			return bad()
		}
	case bool:
		if got.Kind != configs.Bool || got.Bool != w {
			return bad()
		}
	case string:
		if got.Kind != configs.String || got.Text != w {
			return bad()
		}
	case json.Number:
		if !strings.ContainsAny(w.String(), ".eE") {
			if got.Kind != configs.Int || got.Text != w.String() {
				return bad()
			}
			return ""
		}
		x, _ := w.Float64()
		if got.Kind != configs.Float || !sameFloat(x, got.Num) {
			return bad()
		}
	case []any:
		if got.Kind != configs.List || len(got.Vals) != len(w) {
			return bad()
		}
		for i := range w {
			if d := differ(path+"["+strconv.Itoa(i)+"]", w[i], got.Vals[i], subset); d != "" {
				return d
			}
		}
	case map[string]any:
		if f, ok := w["$float"].(string); ok && len(w) == 1 {
			x, _ := strconv.ParseFloat(f, 64)
			if got.Kind != configs.Float || !sameFloat(x, got.Num) {
				return bad()
			}
			return ""
		}
		if got.Kind != configs.Map || !subset && len(got.Keys) != len(w) {
			return bad()
		}
		for k, x := range w {
			v := got.Get(k)
			if v == nil {
				return path + ": missing key " + k
			}
			if d := differ(path+"."+k, x, v, subset); d != "" {
				return d
			}
		}
	default:
		return fmt.Sprintf("%s: cannot compare %T", path, want)
	}
	return ""
}

func sameFloat(a, b float64) bool {
	return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-9*math.Max(math.Abs(a), math.Abs(b))
}
