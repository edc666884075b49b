package main

import (
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/configs"
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
