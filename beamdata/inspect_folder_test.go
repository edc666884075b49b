package beamdata

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/tensorfile"
)

// A folder's files are told by their content; what nothing reads is counted and named.
func TestInspectFolder(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"train.json": tenLegacy, "chat.jsonl": `{"conversations": [{"from": "human", "value": "q"},
		{"from": "gpt", "value": "a"}]}`, "sum.json": `[{"document": "d", "summary": "s"}]`, "notes.json": `{"a": 1}`, "x.txt": "x",
		"cut.jsonl": `{"id": `, "ask.jsonl": `{"id": 1, "question": "q", "answers": ["a"]}`, "beams_bad.json": "[]"} {
		write(t, filepath.Join(dir, name), text)
	}
	if err := os.Mkdir(filepath.Join(dir, "pictures"), 0o755); err != nil {
		t.Fatal(err)
	}
	in, err := Inspect(dir, 0, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range in.Files {
		got = append(got, filepath.Base(f.Path)+": "+f.Format)
	}
	const want = "ask.jsonl: records of in-context learning; beams_bad.json: ; chat.jsonl: conversations; " +
		"sum.json: texts; train.json: beams (legacy)"
	if files := strings.Join(got, "; "); files != want {
		t.Errorf("files %s\nwant %s", files, want)
	}
	if facts := fmt.Sprint(in.Facts); facts != "[{not recognised 3: x.txt, cut.jsonl, notes.json} {folders, not looked into 1: pictures}]" {
		t.Errorf("facts %s", facts)
	}
}

// A folder of published files is data too (data=vqa); one that lacks some of them says which.
func TestInspectPublishedFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "train2014"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "OpenEnded_mscoco_train2014_questions.json"),
		`{"questions": [{"image_id": 1, "question": "What?", "question_id": 10}]}`)
	inspect := func() Inspection {
		in, err := Inspect(dir, 0, testOptions())
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	if in := inspect(); in.Fault == nil || !strings.Contains(in.Fault.Error(), "no mscoco_train2014_annotations.json beside ") {
		t.Errorf("without its answers: %v", in.Fault)
	}
	write(t, filepath.Join(dir, "mscoco_train2014_annotations.json"),
		`{"annotations": [{"image_id": 1, "question_id": 10, "answers": [{"answer": "surf"}]}]}`)
	if in := inspect(); in.Fault != nil || in.Fact("published questions") != "1, for data=vqa data.root="+dir {
		t.Errorf("%v, %v", in.Fault, in.Facts)
	}
}

// What a run says of a table that lies on its side, and of beams without a query, the inspection of their folder says too.
func TestInspectSaysWhatARunSays(t *testing.T) {
	dir := t.TempDir()
	beams, table := filepath.Join(dir, "beams.json"), filepath.Join(dir, "emb.npy")
	for _, tc := range []struct {
		text       string
		rows, cols int
		want       string
	}{
		{tenLegacy, 6, 60, "outside the embedding table of 6 rows, but inside the 60 columns of " + table + ": is the table transposed? want "},
		{" ", 60, 6, "line 1 (byte 1): the file is empty"},
		{"{}", 60, 6, `no query: the object is empty, want queries by id, {"17": {…}}`},
		{strings.ReplaceAll(tenLegacy, "[1,2", `["1",2`), 60, 6, "found a string, want an integer"},
	} {
		write(t, beams, tc.text)
		if err := tensorfile.WriteNPY(table, tensorfile.FromFloat32s("", []int{tc.rows, tc.cols}, make([]float32, 360))); err != nil {
			t.Fatal(err)
		}
		opt := testOptions()
		opt.Name, opt.Beams, opt.Embeddings = "beams", &beams, &table
		_, refused := Load(opt)
		in, err := Inspect(dir, 0, opt)
		if err != nil || refused == nil || len(in.Files) != 2 || in.Files[1].Fault == nil {
			t.Fatalf("%v, %v, %+v", err, refused, in)
		}
		for _, said := range []error{refused, in.Files[1].Fault} {
			if !strings.Contains(said.Error(), tc.want) {
				t.Errorf("%v, want %s", said, tc.want)
			}
		}
		if !strings.HasPrefix(in.Files[1].Fault.Error(), refused.Error()) {
			t.Errorf("the run says:  %v\nthe inspection: %v", refused, in.Files[1].Fault)
		}
	}
}
