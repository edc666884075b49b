package icl

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// write makes files below a folder.
func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.jsonl")
	write(t, filepath.Dir(path), map[string]string{"r.jsonl": `{"id": 7, "image": "a/1.jpg", "question": " What is it? ", "answers": ["cat", "a cat"]}
{"id": 3, "image": "/b/2.jpg", "question": "who?", "answers": ["he"], "image_id": 44, "split": "val"}

{"id": 9, "image": "a/1.jpg", "question": "what is  it", "answers": ["dog"], "anwers": 1}
`})
	s, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(listed(s.Records))
	root := filepath.Dir(path)
	want := fmt.Sprintf("[{7 %[1]s/a/1.jpg What is it? [cat a cat] -1 false} {9 %[1]s/a/1.jpg what is  it [dog] -1 false} "+
		"{3 /b/2.jpg who? [he] 44 true}]", root)
	if got != want {
		t.Errorf("records\n%s, want\n%s", got, want)
	}
	if got := s.At(1); got != path+":4 (id 9)" {
		t.Errorf("At(1) = %s, want line 4: the record of val, which stands before it, comes last", got)
	}
	notes := strings.Join(s.Notes(), "\n")
	if !strings.Contains(notes, "unknown key \"anwers\" in 1 record, in line 4: did you mean answers?") {
		t.Errorf("notes:\n%s", notes)
	}
	if q, c := s.Queries(true), s.Candidates(); !slices.Equal(q, []int{2}) || !slices.Equal(c, []int{0, 1}) {
		t.Errorf("held out %v, candidates %v", q, c)
	}
}

// Every record that is wrong is named by its line, and nothing is read.
func TestLoadNamesFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.jsonl")
	write(t, filepath.Dir(path), map[string]string{"r.jsonl": `{"id": 1, "question": "a?", "answers": []}
{"question": "a?"}
{"id": 1, "question": "a?"}
{"id": "x", "question": "a?"}
{"id": 4, "question": " "}
{"id": 5, "question": "b", "image": "https://x/1.jpg"}
{"id": 6, "question": "b", "split": "test"}
{"id": 8, "question": "b", "answers": ["x", ""]}
`})
	_, err := Load(path)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"r.jsonl:2: no id", "r.jsonl:3: id 1 stands twice: record 1 has it too", "r.jsonl:4: id: got a JSON string, want a whole number",
		"r.jsonl:5: id 4: no question", "r.jsonl:6: id 5: image https://x/1.jpg is an address", `r.jsonl:7: id 6: split "test"`,
		"r.jsonl:8: id 8: an answer is empty"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
	if _, err := Load(path + "x"); err == nil || !strings.Contains(err.Error(), "did you mean "+path) {
		t.Errorf("a missing file: %v", err)
	}
}

// vqaFiles are the published files of three questions, in miniature. prefix is that of VQAv2.
func vqaFiles(prefix string) map[string]string {
	annotation := func(question, image int, answers ...string) string {
		var list []string
		for i, a := range answers {
			list = append(list, fmt.Sprintf(`{"answer_id": %d, "raw_answer": "raw %s", "answer_confidence": "yes", "answer": "%s"}`, i+1, a, a))
		}
		return fmt.Sprintf(`{"image_id": %d, "answer_type": "other", "question_type": "one", "question_id": %d, "confidence": 3, "answers": [%s]}`,
			image, question, strings.Join(list, ", "))
	}
	return map[string]string{
		prefix + "OpenEnded_mscoco_train2014_questions.json": `{"info": {"version": "1.0"}, "task_type": "Open-Ended", "data_subtype": "train2014", "questions": [
{"image_id": 51606, "question": "What is the hairstyle of the blond called?", "question_id": 516065},
{"image_id": 81721, "question": "How old do you have to be?", "question_id": 817215}], "data_type": "mscoco"}`,
		prefix + "mscoco_train2014_annotations.json": `{"info": {}, "annotations": [` +
			annotation(817215, 81721, "18", "", "21", " ") + ",\n" + annotation(516065, 51606, "pony tail", "braid") + "," + annotation(1, 2, "x") + `]}`,
		prefix + "OpenEnded_mscoco_val2014_questions.json": `{"questions": [{"image_id": 42, "question": "What sport?", "question_id": 425}]}`,
		prefix + "mscoco_val2014_annotations.json":         `{"annotations": [` + annotation(425, 42, "surf") + `]}`,
	}
}

func TestLoadVQA(t *testing.T) {
	for _, prefix := range []string{"", "v2_"} {
		root := t.TempDir()
		write(t, root, vqaFiles(prefix))
		write(t, root, map[string]string{"coco/train2014/COCO_train2014_000000051606.jpg": "", "coco/val2014/x": "", "notes/readme": ""})
		s, err := LoadVQA("data.root", root)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("[{516065 %[1]s/train2014/COCO_train2014_000000051606.jpg "+
			"What is the hairstyle of the blond called? [pony tail braid] 51606 false} "+
			"{817215 %[1]s/train2014/COCO_train2014_000000081721.jpg How old do you have to be? [18 21] 81721 false} "+
			"{425 %[1]s/val2014/COCO_val2014_000000000042.jpg What sport? [surf] 42 true}]", filepath.Join(root, "coco"))
		if got := fmt.Sprint(listed(s.Records)); got != want {
			t.Errorf("records\n%s, want\n%s", got, want)
		}
		if notes := strings.Join(s.Notes(), "\n"); !strings.Contains(notes, "2 answers of annotators are empty and left out (the first: "+
			filepath.Join(root, prefix+"mscoco_train2014_annotations.json:1: question 817215)")) {
			t.Errorf("notes: %s", notes)
		}
		if n := s.Counts["annotations_without_question"]; n != 1 {
			t.Errorf("%d annotations without a question, want 1", n)
		}
		if got := s.At(2); !strings.HasSuffix(got, "val2014_questions.json: question 1 (id 425)") {
			t.Errorf("At(2) = %s", got)
		}
	}
}

func TestLoadVQANamesFaults(t *testing.T) {
	const questions, annotations = "OpenEnded_mscoco_train2014_questions.json", "mscoco_train2014_annotations.json"
	for _, tc := range []struct {
		name   string
		change func(files map[string]string)
		want   string
	}{
		{"no questions", func(f map[string]string) { delete(f, questions) }, "no OpenEnded_mscoco_train2014_questions.json (OK-VQA)"},
		{"no annotations", func(f map[string]string) { delete(f, annotations) }, "no " + annotations + " beside"},
		{"no images", func(f map[string]string) { delete(f, "train2014/x") }, "no folder train2014 with COCO's images"},
		{"two data sets", func(f map[string]string) { f["v2_"+questions] = f[questions] }, "2 files hold the train questions"},
		{"a question twice", func(f map[string]string) { f[questions] = strings.ReplaceAll(f[questions], "817215", "516065") },
			questions + ":3: id 516065 stands twice"},
		{"an empty question", func(f map[string]string) {
			f[questions] = strings.ReplaceAll(f[questions], "How old do you have to be?", " ")
		},
			questions + ":3: question 2: want question_id, image_id and question"},
		{"in both splits", func(f map[string]string) { f[questions] = strings.ReplaceAll(f[questions], "817215", "425") },
			"val2014_questions.json:1: id 425 stands twice: record 2 has it too"},
		{"annotated twice", func(f map[string]string) { f[annotations] = strings.ReplaceAll(f[annotations], "817215", "516065") },
			annotations + ":1: question 516065 is about image 81721 here and about 51606"},
		{"cut", func(f map[string]string) { f[questions] = f[questions][:200] }, questions + ":2: the JSON ends in the middle"},
		{"Latin-1", func(f map[string]string) { f[questions] = strings.ReplaceAll(f[questions], "?", "\xe9") }, questions + ":2: not UTF-8"},
		{"another kind of file", func(f map[string]string) { f[questions] = `[]` }, questions + ":1: want an object with a list questions"},
		{"no list", func(f map[string]string) { f[questions] = `{"info": []}` }, questions + ":1: no list questions"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			files := vqaFiles("")
			files["train2014/x"], files["val2014/x"] = "", ""
			tc.change(files)
			write(t, root, files)
			_, err := LoadVQA("data.records_icl", root)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "data.root") {
				t.Errorf("got %v, want %q, and the key that was asked for", err, tc.want)
			}
		})
	}
}

// captionFiles are COCO's captions in miniature.
func captionFiles() map[string]string {
	return map[string]string{
		"annotations/captions_train2014.json": `{"images": [{"id": 9, "file_name": "COCO_train2014_000000000009.jpg", "height": 4},
{"id": 7, "file_name": "COCO_train2014_000000000007.jpg"}],
"annotations": [{"image_id": 9, "id": 1, "caption": "A  cat.\n"}, {"image_id": 9, "caption": " "}, {"image_id": 9, "caption": "Cat"}]}`,
		"annotations/captions_val2014.json": `{"images": [{"id": 42, "file_name": "v.jpg"}],
"annotations": [{"image_id": 42, "id": 4, "caption": "surf"}]}`,
		"annotations/instances_val2014.json": `{}`, "coco/train2014/x": "", "coco/val2014/x": "",
	}
}

func TestLoadCaptions(t *testing.T) {
	root := t.TempDir()
	write(t, root, captionFiles())
	s, err := LoadCaptions("data.root", root)
	if err != nil || !HasCaptions(root) || HasCaptions(t.TempDir()) {
		t.Fatal(err, HasCaptions(root))
	}
	want := fmt.Sprintf("[{9 %[1]s/train2014/COCO_train2014_000000000009.jpg %[2]s [A cat. Cat] 9 false} "+
		"{7 %[1]s/train2014/COCO_train2014_000000000007.jpg %[2]s [] 7 false} {42 %[1]s/val2014/v.jpg %[2]s [surf] 42 true}]",
		filepath.Join(root, "coco"), Describe)
	if got := fmt.Sprint(listed(s.Records)); got != want || !s.Captions || s.Counts["questions_without_answers"] != 1 {
		t.Errorf("records\n%s, want\n%s", got, want)
	}
	for want, change := range map[string]func(f map[string]string){
		"no captions_train2014.json": func(f map[string]string) { delete(f, "annotations/captions_train2014.json") },
		"no folder val2014":          func(f map[string]string) { delete(f, "coco/val2014/x") },
		"2 files hold the train captions": func(f map[string]string) {
			f["annotations/captions_train2017.json"] = f["annotations/captions_train2014.json"]
		},
		"a caption of image 42, which is not among the file's images": func(f map[string]string) {
			f["annotations/captions_val2014.json"] = `{"images": [{"id": 1, "file_name": "x.jpg"}], "annotations": [{"image_id": 42, "caption": "a"}]}`
		},
		"captions_val2014.json:1: want id and file_name": func(f map[string]string) {
			f["annotations/captions_val2014.json"] = `{"images": [{"id": 1}]}`
		},
	} {
		root, files := t.TempDir(), captionFiles()
		change(files)
		write(t, root, files)
		if _, err := LoadCaptions("data.root", root); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
