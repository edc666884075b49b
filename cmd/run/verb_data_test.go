package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/configs"
	"fulcrum/internal/tensorfile"
)

// What data inspect says to type composes, and trains on what was looked at: on the file with targets where there are several.
func TestTrainOn(t *testing.T) {
	schema, err := annexes().app.Schema()
	if err != nil {
		t.Fatal(err)
	}
	const vl, seq2seq, of = "../../docs/examples/vl", "../../docs/examples/seq2seq", "../../testdata"
	file := func(format, path string) beamdata.Inspection {
		return beamdata.Inspection{Format: format, Path: filepath.Join(of, path)}
	}
	look := func(path string) beamdata.Inspection {
		in, err := beamdata.Inspect(path, 0, beamdata.DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	for _, tc := range []struct {
		in   beamdata.Inspection
		want string
	}{
		{look(vl), "exp=qwen2_5_vl_sft vl.path=MODEL data.conversations.train=" + vl + "/conversations.json"},
		{look(vl + "/prompts.jsonl"), ""}, // nothing to learn from
		{look(seq2seq), "exp=t5_summarize seq2seq.path=MODEL data.texts.train=" + seq2seq + "/reports.jsonl"},
		{beamdata.Inspection{Format: "conversations", Path: "a.json", Facts: []beamdata.Fact{{Name: "images", Value: "0"}}},
			"exp=qwen2_5_text vl.path=MODEL data.conversations.train=a.json"},
		{beamdata.Inspection{Path: of, Files: []beamdata.Inspection{file("embeddings", "e.npy"), file("beams (rl)", "rl.json")}},
			"exp=beams_v3 data=beams data.beams=" + of + "/rl.json data.embeddings=" + of + "/e.npy"},
		{file("beams (legacy)", "b.json"), "exp=beams_v3 data=beams data.beams=" + of + "/b.json data.embeddings=FILE"},
		{beamdata.Inspection{Path: of, Files: []beamdata.Inspection{file("embeddings", "e.npy"), file("reward table", "reader_dev.npz"),
			file("reward table", "reader_train.npz"), file("beams (legacy)", "beams.json")}}, "exp=okvqa_v3 data=okvqa data.root=" + of},
		{file("embeddings", "e.npy"), ""},
	} {
		words := trainOn(tc.in)
		if got := strings.Join(words, " "); got != tc.want {
			t.Errorf("%s %s:\n got %s\nwant %s", tc.in.Format, tc.in.Path, got, tc.want)
		}
		if _, err := configs.Compose(configs.Request{Library: configs.Library(), Schema: schema, Overrides: words, AppName: "run"}); err != nil {
			t.Errorf("run %s: %v", tc.want, err)
		}
	}
}

// data inspect --fix mends a folder that a run refuses, says so, and ends in the command that trains on the copy.
func TestFix(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := os.Mkdir(in, 0o755); err != nil {
		t.Fatal(err)
	}
	const items, dim = 60, 24
	var rows [dim * items]float32
	for i := range rows {
		rows[i] = float32(i%11) + 1
	}
	err := tensorfile.WriteNPY(filepath.Join(in, "emb.npy"), tensorfile.FromFloat32s("", []int{dim, items}, rows[:]))
	if err != nil {
		t.Fatal(err)
	}
	queries := map[string]any{}
	for id := range 20 {
		queries[fmt.Sprint(id)] = map[string]any{"id_list": [][]int{{20 + id, 59, id}, {30 + id, 21 + id, id}}, "score_list": []int{1, 0}}
	}
	text, err := json.Marshal(queries)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte("\ufeff" + strings.Replace(string(text), "[[20", `[["20"`, 1))
	if err := os.WriteFile(filepath.Join(in, "beams.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	call := func(args ...string) (string, error) {
		var said bytes.Buffer
		err := sessionOf(fakeApp{}, &said, &said).call(append([]string{"data", "inspect"}, args...))
		return said.String(), err
	}
	if err := os.MkdirAll(filepath.Join(dir, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "run", "summary.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{filepath.Join(dir, "run"), "--fix", out}, {in, "--fix", ""}} {
		if said, err := call(args...); err == nil || !strings.Contains(err.Error(), "want a new folder, and data to copy") {
			t.Errorf("%q: %v\n%s", args, err, said)
		}
	}
	if said, err := call(in); err == nil || !strings.HasSuffix(err.Error(), "a run would refuse this; `run data inspect "+in+
		" --fix OUT` writes a copy: mended beams.json: byte order mark removed; string ids made numbers (records: 1); mended emb.npy: table "+
		"transposed to [60 24], float32") {
		t.Errorf("%v of what is to be mended:\n%s", err, said)
	}
	said, err := call(in, "--fix", out)
	last := "train on it: `run exp=beams_v3 data=beams data.beams=" + out + "/beams.json data.embeddings=" + out + "/emb.npy`\n"
	for _, want := range []string{"mended beams.json: byte order mark removed; string ids made numbers (records: 1)\n",
		"mended emb.npy: table transposed to [60 24], float32\n", last} {
		if err != nil || !strings.Contains(said, want) {
			t.Errorf("%v: no %q in\n%s", err, want, said)
		}
	}
	if !strings.HasSuffix(said, last) {
		t.Errorf("it does not end in the command:\n%s", said)
	}
	if said, err := call(filepath.Join(out, "beams.json"), "--fix", filepath.Join(dir, "again")); err != nil ||
		!strings.HasPrefix(said, "nothing to mend: ") || !strings.Contains(said, "again/beams.json") {
		t.Errorf("sound data: %v\n%s", err, said)
	}
	if _, err := call(in, "--fix", out); exitCode(t.Context(), err) != 2 || !strings.Contains(err.Error(), "want a new or empty folder") {
		t.Errorf("a second time: %v", err)
	}
}

// What a run refuses, data inspect refuses: pictures that do not decode, and records without an answer beside others.
func TestInspectRefuses(t *testing.T) {
	dir := t.TempDir()
	whole, err := os.ReadFile("../../docs/examples/vl/pictures/one.png")
	if err != nil {
		t.Fatal(err)
	}
	const talk, answer = `{"image":"P.png","conversations":[{"from":"human","value":"<image>"}`, `,{"from":"gpt","value":"a"}`
	asked := `{"id":1,"image":"P.png","question":"q","answers":["a"]}`
	for _, tc := range []struct{ picture, records, want string }{
		{string(whole), talk + answer + "]}", ""},
		{string(whole[:len(whole)/2]), talk + answer + "]}", "d.jsonl:record 1: DIR/P.png: png: invalid format: not enough pixel data"},
		{"", talk + answer + "]}", "d.jsonl:record 1: DIR/P.png: not an image of a known format"},
		{"text", asked, "d.jsonl:1 (id 1): DIR/P.png: not an image of a known format"},
		{string(whole), asked, ""},
		{string(whole), strings.Repeat(talk+answer+"]}\n", 7) + talk + "]}", "sft would leave out 1 record without an answer " +
			"(d.jsonl: line 8): data.max_skipped_share=0.05 allows 5 %"},
		{string(whole), talk + "]}", ""}, // prompts
	} {
		for name, text := range map[string]string{"P.png": tc.picture, "d.jsonl": tc.records} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var said bytes.Buffer
		err := sessionOf(fakeApp{}, &said, &said).call([]string{"data", "inspect", filepath.Join(dir, "d.jsonl")})
		text := strings.Join(strings.Fields(said.String()), " ") // it is folded
		if (err != nil) != (tc.want != "") || !strings.Contains(text, strings.ReplaceAll(tc.want, "DIR", dir)) ||
			err != nil && strings.Contains(text, "train on it") {
			t.Errorf("%v, want %q in\n%s", err, tc.want, said.String())
		}
	}
}
