package conversation

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// vqaFolder writes n training and two held-out questions as OK-VQA publishes them, three about an image; all but 21 are about picture 0.
func vqaFolder(t *testing.T, n int) string {
	t.Helper()
	root := t.TempDir()
	for split, count := range map[string]int{"train2014": n, "val2014": 2} {
		var questions, annotations []string
		if err := os.Mkdir(filepath.Join(root, split), 0o755); err != nil {
			t.Fatal(err)
		}
		for i := range count {
			id, image := 1000*len(split)+i, 10*len(split)+i/3
			if i < count-21 { // a picture may have the number 0
				image = 0
			}
			questions = append(questions, fmt.Sprintf(`{"question_id": %d, "image_id": %d, "question": "what %d?"}`, id, image, i))
			answers := `{"answer": "dog"}, {"answer": "cat"}, {"answer": " "}, {"answer": "cat"}, {"answer": "A cat."}`
			annotations = append(annotations, fmt.Sprintf(`{"question_id": %d, "image_id": %d, "answers": [%s]}`, id, image, answers))
			picture := filepath.Join(root, split, fmt.Sprintf("COCO_%s_%012d.jpg", split, image))
			if err := os.WriteFile(picture, []byte("x"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for name, list := range map[string][]string{"OpenEnded_mscoco_" + split + "_questions.json": questions,
			"mscoco_" + split + "_annotations.json": annotations} {
			key := strings.TrimSuffix(name[strings.LastIndex(name, "_")+1:], ".json")
			text := fmt.Sprintf(`{%q: [%s]}`, key, strings.Join(list, ","))
			if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

// TestVQA: published files train a token policy: answers are rewarded by their accuracy, an image stays on one side.
func TestVQA(t *testing.T) {
	opt := DefaultOptions()
	opt.Root, opt.TrainRatio, opt.CheckRecords = vqaFolder(t, 30), 0.7, nil
	b, err := VQA(opt)
	if err != nil {
		t.Fatal(err)
	}
	n, at := b.Skipped["empty_answers"], b.SkippedAt["empty_answers"]
	if n != 32 || !strings.HasSuffix(at, "train2014_annotations.json:1: question 9000") {
		t.Errorf("%d empty answers (%s), want one a question", n, at)
	}
	if b.Train.Len() != 18 || b.Val.Len() != 12 || b.Eval.Len() != 2 {
		t.Errorf("%d, %d and %d samples, want 18, 12 and 2", b.Train.Len(), b.Val.Len(), b.Eval.Len())
	}
	s, err := b.Eval.Sample(0)
	if err != nil {
		t.Fatal(err)
	}
	// A cat. is cat, normalised. Beside dog three say cat, beside each of these two: (1 + 3·2/3)/4. Dog: (0 + 3·1/3)/4.
	want, got := "cat 0.75, dog 0.25, A cat. 0.75", ""
	for _, c := range s.Completions {
		got = strings.TrimPrefix(fmt.Sprintf("%s, %s %.4g", got, c.Text, c.Reward), ", ")
	}
	if s.Reference != "cat" || got != want {
		t.Errorf("reference %q, completions %s, want cat and %s", s.Reference, got, want)
	}
	files := s.Images()
	if len(files) != 1 || !strings.HasSuffix(files[0], "val2014/COCO_val2014_000000000070.jpg") || s.Text() != "<image>what 0?" {
		t.Errorf("images %v, text %q", files, s.Text())
	}
	of := map[string]string{}
	for name, set := range map[string]*Set{"train": b.Train, "val": b.Val} {
		clusters, err := set.Clusters("image")
		if err != nil || len(clusters) != set.Len() {
			t.Fatalf("%d clusters (%v)", len(clusters), err)
		}
		for _, image := range clusters {
			if other, ok := of[image]; ok && other != name {
				t.Errorf("image %s is on both sides", image)
			}
			of[image] = name
		}
	}
	opt.Root = "nowhere"
	if _, err := VQA(opt); err == nil || !strings.Contains(err.Error(), "data.root=nowhere") {
		t.Errorf("no folder: %v", err)
	}
}
