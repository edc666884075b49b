//go:build !core

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fulcrum/experiments/sweep"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/compare"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
)

// schemas are the types of what --json prints, by command.
func schemas() map[string]reflect.Type {
	return map[string]reflect.Type{
		"status": reflect.TypeFor[sweep.Status](), "report": reflect.TypeFor[reportJSON](), "diff": reflect.TypeFor[compare.Diff](),
		"verify": reflect.TypeFor[verificationJSON](), "data_inspect": reflect.TypeFor[inspectionJSON](),
		"checkpoint_inspect": reflect.TypeFor[checkpointJSON](), "doctor": reflect.TypeFor[machineJSON](),
	}
}

// schemaOf is the JSON Schema of a type. Types that contain themselves are called by name.
func schemaOf(t reflect.Type, within ...reflect.Type) map[string]any {
	if slices.Contains(within, t) {
		return map[string]any{"$ref": "#"}
	}
	switch t.Kind() {
	case reflect.Struct:
		properties, required := map[string]any{}, []string{}
		for i := range t.NumField() {
			f := t.Field(i)
			name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.IsExported() || name == "-" {
				continue
			}
			if properties[name] = schemaOf(f.Type, append(within, t)...); option != "omitempty" {
				required = append(required, name)
			}
		}
		return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
	case reflect.Pointer: // null where there is none
		inner := schemaOf(t.Elem(), within...)
		inner["type"] = []any{inner["type"], "null"}
		return inner
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem(), within...)}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem(), within...)}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int:
		return map[string]any{"type": "integer"}
	case reflect.Float64:
		if t.Name() == "Number" { // record.Number: what JSON has no number for is a word
			return map[string]any{"type": []string{"number", "string"}}
		}
		return map[string]any{"type": "number"}
	}
	panic("no schema of " + t.String())
}

// fits returns what of a value does not fit a schema, "" where all does. root is the schema that $ref means.
func fits(root, schema map[string]any, v any, at string) string {
	if schema["$ref"] != nil {
		schema = root
	}
	kind := map[reflect.Kind]string{reflect.Map: "object", reflect.Slice: "array", reflect.String: "string", reflect.Bool: "boolean",
		reflect.Float64: "number", reflect.Invalid: "null"}[reflect.ValueOf(v).Kind()]
	if want := fmt.Sprint(schema["type"]); !strings.Contains(want, kind) && (want != "integer" || kind != "number") {
		return fmt.Sprintf("%s is %v, want %s", at, v, want)
	}
	switch v := v.(type) {
	case []any:
		for i, item := range v {
			if wrong := fits(root, schema["items"].(map[string]any), item, fmt.Sprintf("%s[%d]", at, i)); wrong != "" {
				return wrong
			}
		}
	case map[string]any:
		for _, name := range append([]string{}, asStrings(schema["required"])...) {
			if _, ok := v[name]; !ok {
				return at + " has no " + name
			}
		}
		properties, _ := schema["properties"].(map[string]any)
		for name, item := range v {
			s, known := properties[name].(map[string]any)
			if !known {
				if s, known = schema["additionalProperties"].(map[string]any); !known {
					return at + " has a " + name + " that the schema does not know"
				}
			}
			if wrong := fits(root, s, item, at+"."+name); wrong != "" {
				return wrong
			}
		}
	}
	return ""
}

func asStrings(v any) []string {
	var out []string
	list, _ := v.([]any)
	for _, s := range list {
		out = append(out, s.(string))
	}
	return out
}

// The schemas in docs/schemas are those of the types, and what the commands print fits them.
func TestJSONFitsItsSchema(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	reportstest.SweepRun(t, a, 0, 0.02, "seed: 0\n")
	reportstest.SweepRun(t, b, 1, 0.03, "seed: 1\n")
	table := filepath.Join(dir, "beams.json")
	if err := os.WriteFile(table, []byte(`{"1": {"id_list": [[2, 3, 1]], "score_list": [0.5]}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	lines := map[string][]string{"status": {"status", a}, "report": {"report", a, b}, "diff": {"diff", a, b}, "verify": {"verify", a},
		"data_inspect": {"data", "inspect", dir}, "doctor": {"doctor"}, "checkpoint_inspect": nil} // a checkpoint: in the tests of experiments
	for name, kind := range schemas() {
		t.Run(name, func(t *testing.T) {
			schema := schemaOf(kind)
			schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
			text, err := json.MarshalIndent(schema, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden.File(t, filepath.Join(golden.RepoRoot(), "docs", "schemas", name+".json"), append(text, '\n'))
			if lines[name] == nil {
				return
			}
			var out, errOut bytes.Buffer
			_ = sessionOf(fakeApp{}, &out, &errOut).call(append(lines[name], "--json")) // diff and verify may have found something
			var read, plain map[string]any
			if err := json.Unmarshal(text, &plain); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(out.Bytes(), &read); err != nil {
				t.Fatalf("%v: %s%s", err, out.String(), errOut.String())
			}
			if wrong := fits(plain, plain, read, name); wrong != "" {
				t.Errorf("%s\n%s", wrong, out.String())
			}
			delete(read, asStrings(plain["required"])[0])
			if fits(plain, plain, read, name) == "" {
				t.Error("a document without a required field fits")
			}
		})
	}
}

// Runs are listed, chosen and sorted; every format of every table can be written.
func TestListAndExport(t *testing.T) {
	dir := t.TempDir()
	for i, gain := range []float64{0.02, 0.05, 0.03} {
		reportstest.SweepRun(t, filepath.Join(dir, "outputs", string(rune('a'+i))), uint64(i), gain,
			fmt.Sprintf("seed: %d\ngrpo: {lr: 1.0e-%d}\n", i, 3+i%2))
	}
	rows := `{"kind":"step","phase":"grpo","epoch":1,"step":1,"global_step":1,"time":1.5,"loss":"nan","adv_hist":[1,2]}
{"kind":"event","phase":"grpo","epoch":1,"step":1,"global_step":1,"time":1.75,"event":"x","message":"a, b","kl_beta_at_bound":true}
{"kind":"step","pha`
	for _, name := range []string{"a", "c"} {
		if err := os.WriteFile(filepath.Join(dir, "outputs", name, "metrics.jsonl"), []byte(rows), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	call := func(args ...string) string {
		var out, errOut bytes.Buffer
		if err := sessionOf(fakeApp{}, &out, &errOut).call(args); err != nil {
			return err.Error()
		}
		return out.String()
	}
	order := func(args ...string) string {
		var rows []struct{ Run string }
		if err := json.Unmarshal([]byte(call(append([]string{"ls", "--json"}, args...)...)), &rows); err != nil {
			t.Fatal(args, err)
		}
		var names []string
		for _, row := range rows {
			names = append(names, filepath.Base(row.Run))
		}
		return strings.Join(names, "")
	}
	if err := os.Symlink("outputs", "linked"); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{"": "abc", "linked": "abc", "--sort dev/reward": "bca", "--where grpo.lr=0.001": "ac",
		"--where grpo.lr=1e-3 --sort dev/reward": "ca", "--where state=done outputs/b": "b", "outputs/b outputs": "bac", "--where seed=7": ""} {
		if got := order(strings.Fields(args)...); got != want {
			t.Errorf("run ls %s lists %q, want %q", args, got, want)
		}
	}
	for line := range strings.Lines(call("ls")) {
		if n := len([]rune(line)); n > 81 {
			t.Errorf("a line of %d characters: %s", n-1, line)
		}
	}
	for args, want := range map[string]string{"ls --where sead=1": "no run has such", "ls --where x": "want KEY=VALUE",
		"ls --sort dev/rewrad": "did you mean dev/reward?", "export": "want: `run export", "export outputs --what evalz": "did you mean evals?",
		"export outputs --format tex": "want one of csv, json"} {
		if got := call(strings.Fields(args)...); !strings.Contains(got, want) {
			t.Errorf("run %s: %s, want %s", args, got, want)
		}
	}
	wanted := `run,kind,phase,epoch,step,global_step,time,event,message,loss,adv_hist,kl_beta_at_bound
outputs/a,step,grpo,1,1,1,1.5,,,nan,"[1,2]",
outputs/a,event,grpo,1,1,1,1.75,x,"a, b",,,true
`
	if got := call("export", "outputs/a", "--what", "metrics"); got != wanted {
		t.Errorf("metrics as CSV:\n%s\nwant\n%s", got, wanted)
	}
	for what, lines := range map[string]int{"runs": 1 + 3, "evals": 1 + 3*evaluationsOf(t, "outputs/a"), "metrics": 1 + 2*2} {
		if got := strings.Count(call("export", "outputs", "--what", what), "\n"); got != lines {
			t.Errorf("--what %s: %d lines of CSV, want %d", what, got, lines)
		}
	}
	for _, what := range []string{"runs", "metrics", "evals", "table"} {
		for format := range tableFormats() {
			out := filepath.Join(dir, "new", what+"."+format)
			if got := call("export", "outputs", "--what", what, "--format", format, "--out", out); got != "" {
				t.Errorf("%s as %s: %s", what, format, got)
			}
			if data, err := os.ReadFile(out); err != nil || !bytes.Contains(data, []byte("outputs")) && what != "table" {
				t.Errorf("%s as %s: %d bytes, %v", what, format, len(data), err)
			}
		}
	}
	for _, name := range []string{record.SummaryFile, record.MetricsFile} { // a damaged run hides no other
		reportstest.Must(t, os.WriteFile(filepath.Join("outputs/b", name), []byte("garbage\n"), 0o644))
	}
	for args, want := range map[string]string{"ls": "outputs/a", "export outputs": "outputs/c",
		"export outputs --what metrics": "outputs/a,step", "export outputs --what evals": "outputs/c,"} {
		var out bytes.Buffer
		err := sessionOf(fakeApp{}, &out, io.Discard).call(strings.Fields(args))
		if err == nil || err.Error() != "1 of 3 runs could not be read, as said above" || !strings.Contains(out.String(), want) ||
			strings.Contains(out.String(), "outputs/b") {
			t.Errorf("run %s beside a damaged run: %v\n%s", args, err, out.String())
		}
	}
}

// A name tells the best checkpoint's value from the last epoch's, values of best are compared within a measure, a run that has not
// ended has its settings, and no column is empty.
func TestListedColumns(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, r := range []struct {
		name, metric string
		best, last   record.Number
	}{{"a", "val_loss", 8, 0.1}, {"b", "val_reward", 0.3, 0.2}, {"c", "val_loss", 5, 0.4}, {"d", "val_reward", 0.9, 0.3}} {
		reportstest.SweepRun(t, "outputs/"+r.name, 1, 0, "grpo: {lr: 1.0e-3}\ncheckpoint: {keep: null}\n")
		reportstest.Must(t, results.WriteSummary("outputs/"+r.name, record.Summary{State: record.StateDone, Task: "train",
			Best:   &record.BestSummary{Metric: r.metric, Value: r.best},
			Phases: []record.PhaseSummary{{Name: "grpo", Final: map[string]record.Number{"val_reward": r.last, "loss": -r.last}}}}))
	}
	killed := "outputs/e/.hydra"
	reportstest.Must(t, os.MkdirAll(killed, 0o755))
	reportstest.Must(t, os.WriteFile(killed+"/config.yaml", []byte("task: train\nseed: 7\ndevice: auto\ngrpo: {lr: 1.0e-4}\n"), 0o644))
	reportstest.Must(t, os.WriteFile(killed+"/overrides.yaml", []byte("[exp=mine, grpo.lr=1e-4]\n"), 0o644))
	list := func(args ...string) (rows []map[string]any, order string) {
		var out bytes.Buffer
		if err := sessionOf(fakeApp{}, &out, io.Discard).call(append([]string{"ls", "--json"}, args...)); err != nil {
			t.Fatal(args, err)
		}
		reportstest.Must(t, json.Unmarshal(out.Bytes(), &rows))
		for _, row := range rows {
			order += filepath.Base(row["run"].(string))
		}
		return rows, order
	}
	for by, want := range map[string]string{"best": "cadbe", "last_val_reward": "cdbae", "val_reward": "cdbae", "loss": "cdbae",
		"state": "abcde"} {
		if _, got := list("--sort", by); got != want {
			t.Errorf("--sort %s lists %q, want %q", by, got, want)
		}
	}
	rows, order := list("--where", "title=mine")
	if order != "e" || rows[0]["seed"] != 7.0 || rows[0]["start"] == nil || rows[0]["state"] != "killed" {
		t.Errorf("a killed run: %v", rows)
	}
	table, _, err := exportTables([]string{"outputs"}, "runs")
	reportstest.Must(t, err)
	want := "run state task title seed start wall_seconds phases epochs steps best_metric best best_epoch overrides " +
		"dev/reward dev/reward_se last_val_reward grpo.lr"
	if got := strings.Join(table[0].Names(), " "); got != want {
		t.Errorf("columns %s, want %s", got, want)
	}
}

func evaluationsOf(t *testing.T, dir string) int {
	t.Helper()
	var s struct{ Evaluations []any }
	golden.JSON(t, filepath.Join(dir, "summary.json"), &s)
	return len(s.Evaluations)
}
