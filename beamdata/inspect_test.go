package beamdata

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

func TestInspect(t *testing.T) {
	dir := t.TempDir()
	writeTable(t, dir, 20)
	for name, content := range map[string]string{"beams.json": tenLegacy, "beams_bad.json": strings.Replace(tenLegacy, "[1,8,9]",
		"[1,80,9]", 1)} {
		write(t, filepath.Join(dir, name), content)
	}
	in, err := Inspect(dir, 0, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	in.Write(&b)
	golden.File(t, filepath.Join("testdata", "inspect.txt"), bytes.ReplaceAll(b.Bytes(), []byte(dir), []byte("DIR")))
	if !in.Faulty() {
		t.Error("the bad file was not noticed")
	}
	if _, err := Inspect(filepath.Join(dir, "none.json"), 0, testOptions()); err == nil {
		t.Error("a missing file was inspected")
	}
}

// Queries and pools alone are a file for task=predict.
func TestInspectPools(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queries.json")
	for _, tc := range []struct{ text, want string }{
		{`{"7":{"candidate_pool_ids":[1,2]},"8":{"candidate_pool_ids":[1,2,3],"pointer_candidates":[{"pointer":[1],"eval_failed":true}]}}`,
			"[{queries 2} {pool size min 2, median 3, mean 2.5, max 3} {use task=predict: no query has a usable trajectory, so no run can " +
				"train on the file} {not used 1 trajectory"},
		{`{"7":{"pointer_candidates":[]}}`, "[{queries 0} "},
	} {
		write(t, path, tc.text)
		in, err := Inspect(path, 0, testOptions())
		if got := fmt.Sprint(in.Facts); err != nil || in.Faulty() || !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: %s, %v %v", tc.text, got, in.Fault, err)
		}
	}
}

// A file of texts whose columns have names of their own is read by these; without them it says how to give them.
func TestInspectTexts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "news.jsonl")
	write(t, path, `{"body":"a b","headline":"c"}`+"\n")
	opt := testOptions()
	blind, _ := Inspect(path, 0, opt)
	opt.Texts.Source, opt.Texts.Target = ptr("body"), ptr("headline")
	in, err := Inspect(path, 0, opt)
	if got := fmt.Sprint(in.Facts, blind.Fault); err != nil || in.Faulty() || !strings.Contains(got, "data.texts.source=NAME") ||
		!strings.Contains(got, "{source column body, 3 bytes in the mean} {target column headline") {
		t.Errorf("%s, %v %v", got, in.Fault, err)
	}
}

// Records of in-context learning are told from conversations; a missing image is a fault.
func TestInspectRecords(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) { write(t, filepath.Join(dir, name), text) }
	put("records.jsonl", `{"id": 7, "image": "1.jpg", "question": "what?", "answers": ["a cat"]}`+"\n"+
		`{"id": 8, "image": "2.jpg", "question": "who?", "split": "val"}`)
	for _, tc := range []struct{ image, fault string }{{"1.jpg", "records.jsonl:2 (id 8): stat"}, {"2.jpg", "<nil>"}} {
		put(tc.image, "")
		in, err := Inspect(filepath.Join(dir, "records.jsonl"), 0, testOptions())
		if err != nil || in.Format != "records of in-context learning" || !strings.Contains(fmt.Sprint(in.Fault), tc.fault) {
			t.Errorf("%+v %v, want the fault %s", in, err, tc.fault)
		}
		if facts := fmt.Sprint(in.Facts); !strings.Contains(facts, "{images 2}") || !strings.Contains(facts, "{without answers 1}") {
			t.Errorf("facts %s", facts)
		}
	}
}

// Of many pictures the first are decoded, each once, and it is said so.
func TestInspectDecodes(t *testing.T) {
	dir, opt := t.TempDir(), testOptions()
	path, lines, decoded := filepath.Join(dir, "records.jsonl"), "", map[string]int{}
	opt.Picture = func(path string) error { decoded[path]++; return nil }
	for i := range 201 {
		picture := fmt.Sprintf("%d.png", i)
		write(t, filepath.Join(dir, picture), "")
		lines += `{"messages":[{"role":"user","content":"<image><image>"}],"images":["` + picture + `","` + picture + `"]}` + "\n"
	}
	write(t, path, lines)
	in, err := Inspect(path, 0, opt)
	if err != nil || in.Faulty() || len(decoded) != 200 || decoded[filepath.Join(dir, "7.png")] != 1 ||
		in.Fact("pictures decoded") != "the first 200" {
		t.Errorf("%v, %+v: %d pictures", err, in, len(decoded))
	}
}

func TestInspectOKVQA(t *testing.T) {
	opt := testOptions()
	opt.Reward.Mode = "vqa_gt_prob"
	in, err := Inspect(golden.Shared(t, "okvqa"), 0, opt)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	in.Write(&b)
	t.Log(b.String())
	if in.Faulty() || len(in.Files) != 13 || !strings.Contains(b.String(), "items.jsonl: items.jsonl\n  rows                    10009\n") {
		t.Errorf("%d files, faulty %v", len(in.Files), in.Faulty())
	}
}
