package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/visible"
)

// hostile sets a terminal's title, rings, clears the screen by C1, and turns the direction of writing.
const hostile = "\x1b]0;owned\a\u009b2J\u202eabc"

// obeyed returns the line of text that a terminal would obey; "": none.
func obeyed(text string) string {
	for line := range strings.Lines(text) {
		if visible.Text(line) != line {
			return line
		}
	}
	return ""
}

// TestNothingIsObeyed: no name or text of data, of a folder, of an override or of a record reaches the terminal, run.log,
// report.md or report.html as something to obey; JSON stays JSON.
func TestNothingIsObeyed(t *testing.T) {
	t.Parallel()
	root := filepath.Dir(folder(t))
	dir := filepath.Join(root, "run"+hostile)
	quoted := func(key, value string) string { return key + "='" + value + "'" }
	var printed strings.Builder
	probe := func(name string, args ...string) result {
		r := run(t, args...)
		for stream, text := range map[string]string{"stdout": r.Stdout, "stderr": r.Stderr} {
			if line := obeyed(text); line != "" {
				t.Errorf("%s: %s: %q", name, stream, line)
			}
		}
		printed.WriteString(r.Stdout + r.Stderr)
		return r
	}
	rs := records()
	data := beams(t, rs)
	if r := probe("a run", small(data, quoted("hydra.run.dir", dir), "data.reward.mode=vqa_gt_prob",
		quoted("on_end.command", "true # "+hostile))...); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	summary := filepath.Join(dir, "summary.json")
	text, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	write(t, summary, strings.Replace(read(t, summary), `"title": "train"`, `"title": `+string(text), 1))
	const header = `{"NAME":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"__metadata__":{"phase":"NAME"}}`
	names := strings.ReplaceAll(header, `"NAME"`, string(text))
	tensors := filepath.Join(root, hostile+".safetensors")
	write(t, tensors, string([]byte{byte(len(names)), byte(len(names) >> 8), 0, 0, 0, 0, 0, 0})+names+"\x00\x00\x00\x00")
	rs[3].Candidates[0]["pointer"] = hostile
	damaged := filepath.Join(root, hostile+".json")
	write(t, damaged, beamLines(t, rs))
	lines := filepath.Join(root, "in.jsonl")
	write(t, lines, `{"id": `+string(text)+`, "messages": [{"role": "user", "content": [{"type": "image", "image": `+string(text)+`}]}]}`+"\n")
	results := filepath.Join(root, "results.json")
	write(t, results, `[{"question_id": `+string(text)+`, "answer": `+string(text)+`}]`)
	icl := filepath.Join(root, "icl.jsonl")
	write(t, icl, `{"id": 1, "image": `+string(text)+`, "question": `+string(text)+`, "answers": [`+string(text)+`]}`+"\n")
	for name, args := range map[string][]string{
		"ls": {"ls", root}, "ls --json": {"ls", root, "--json"}, "status": {"status", dir}, "watch": {"watch", dir}, "report": {"report", dir},
		"report of two": {"report", dir, undrawn(t)}, "report --json": {"report", dir, "--json"}, "verify": {"verify", dir},
		"verify --json": {"verify", dir, "--json"}, "diff": {"diff", dir, undrawn(t)}, "diff --json": {"diff", dir, undrawn(t), "--json"},
		"export csv": {"export", dir}, "export json": {"export", dir, "--format", "json"}, "export latex": {"export", dir, "--format", "latex"},
		"export markdown": {"export", dir, "--format", "markdown"}, "export table": {"export", dir, "--what", "table"},
		"resume": {"resume", dir}, "rerun": {"--rerun", dir, "dry_run=true"}, "attach": {"attach", dir}, "no such folder": {"status", hostile},
		"no such verb": {hostile}, "no such flag": {"ls", "--" + hostile}, "no such key": {hostile + "=1"}, "no such option": {"exp=" + hostile},
		"a value": {"seed='" + hostile + "'"}, "explain": {"explain", hostile}, "sort": {"ls", root, "--sort", hostile},
		"where": {"ls", root, "--where", hostile + "=1"}, "checkpoint": {"checkpoint", "inspect", tensors},
		"checkpoint --json": {"checkpoint", "inspect", tensors, "--json"}, "checkpoint verify": {"checkpoint", "verify", tensors},
		"data inspect": {"data", "inspect", damaged}, "data inspect --json": {"data", "inspect", damaged, "--json"},
		"data":            small([]string{"data=beams", quoted("data.beams", damaged), data[2]}, "dry_run=true"),
		"init.checkpoint": small(data, quoted("init.checkpoint", tensors), "dry_run=true"),
		"generate": {"task=generate", "policy=qwen2_5_vl", "vl.path=" + tinyModel(t), "threads=1", "generate.in=" + lines,
			"hydra.run.dir=" + filepath.Join(root, "generate")},
		"evaluate": {"task=evaluate", "evaluate.results=" + results, "evaluate.annotations=" + damaged, "evaluate.questions=" + damaged,
			"hydra.run.dir=" + filepath.Join(root, "evaluate")},
		"records": {"task=beams", "data.records_icl=" + icl, "dry_run=true", "beams.sampler=random", "beams.score=none"},
		"a sweep": small(data, "-m", "seed=1", "+note='"+hostile+"'", quoted("hydra.sweep.dir", filepath.Join(root, "s"+hostile)),
			"dry_run=true"),
		"board":       {"board", root, "--export", filepath.Join(root, "page"+hostile)},
		"cfg":         {"--cfg", "job", "on_end.command='\x1b\u009b'"},
		"completions": {"-sc", "query=" + hostile},
	} {
		r := probe(name, args...)
		if strings.Contains(name, "json") && r.Code == 0 && !json.Valid([]byte(r.Stdout)) {
			t.Errorf("%s: no JSON: %s", name, r.Stdout)
		}
	}
	for _, want := range []string{`\x1b]0;owned\x07\u009b2J\u202eabc`, `\u001b]0;owned\u0007\u009b2J\u202eabc`} {
		if !strings.Contains(printed.String(), want) {
			t.Errorf("%s was never shown: the test looks at nothing", want)
		}
	}
	for _, name := range []string{"report.md", "report.html", "run.log"} {
		if line := obeyed(read(t, filepath.Join(dir, name))); line != "" {
			t.Errorf("%s: %q", name, line)
		}
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}
