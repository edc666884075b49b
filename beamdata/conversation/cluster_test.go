package conversation

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"fulcrum/beamdata/shapes"
)

// Records about one picture belong together, whatever their order, however the picture is named and what stands beside
// it; so do those with one value of a key, at the top of a record or in its meta.
func TestClusters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data.json")
	text := `[
		{"id": 1, "image": "a.png", "doc": 7, "conversations": [{"from": "human", "value": "<image>?"}, {"from": "gpt", "value": "x"}]},
		{"id": 2, "images": ["b.png"], "meta": {"doc": "7", "page": 1}, "conversations": [{"from": "human",
		"value": "<image>?"}, {"from": "gpt", "value": "x"}]},
		{"id": 3, "images": ["a.png"], "meta": {"doc": null}, "conversations": [{"from": "human",
		"value": "<image>?"}, {"from": "gpt", "value": "x"}]},
		{"id": 4, "conversations": [{"from": "human", "value": "?"}, {"from": "gpt", "value": "x"}]},
		{"id": 5, "prompt": [{"role": "user", "content": [{"type": "image", "image": "a.png"}, "?"]}], "completion": "x"},
		{"id": 6, "Messages": [{"role": "user", "content": [{"type": "image", "path": "a.png"}]}, {"role": "assistant", "content": "x"}]},
		{"id": 7, "Image": "a.png", "conversations": [{"from": "human", "value": "<image>?"}, {"from": "gpt", "value": "x"}]},
		{"id": 9, "images": ["c.png", "a.png"], "conversations": [{"from": "human", "value": "<image><image>?"}, {"from": "gpt", "value": "x"}]},
		{"id": 10, "image": "c.png", "conversations": [{"from": "human", "value": "<image>?"}, {"from": "gpt", "value": "x"}]},
		{"id": 8, "prompt": "an \"image\": ?", "completion": "x"}
	]`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	src, err := openFile(path, "train", DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	set := NewSet("val", src, Rows(src.index.Len()))
	images, err := set.Clusters("image")
	of := images[0]
	if err != nil || len(images) != 8 || images[1] == of {
		t.Errorf("by image: %v, %v", images, err)
	}
	for _, row := range []int64{2, 4, 5, 6, 7, 8} {
		if images[row] != of {
			t.Errorf("record %d is of %q, want %q", row+1, images[row], of)
		}
	}
	docs, err := set.Clusters("doc")
	if err != nil || fmt.Sprint(docs) != "map[0:7 1:7]" {
		t.Errorf("by doc: %v, %v", docs, err)
	}
	if none, err := set.Clusters("dco"); err != nil || len(none) != 0 {
		t.Errorf("by a key that no record has: %v, %v", none, err)
	}
	if none, err := (*Set)(nil).Clusters("image"); err != nil || none != nil {
		t.Errorf("no set: %v, %v", none, err)
	}
}

// The built-in questions about one scene belong together: three of a training scene, one of the others.
func TestClustersOfShapes(t *testing.T) {
	sizes := shapes.DefaultOptions()
	sizes.TrainQueries, sizes.ValQueries, sizes.DevQueries, sizes.ReaderQuestions = 60, 8, 0, 8
	b := Shapes(sizes, DefaultOptions())
	for _, tc := range []struct {
		set  *Set
		want int
	}{{b.Train, 20}, {b.Val, 8}} {
		of, err := tc.set.Clusters("image")
		if err != nil {
			t.Fatal(err)
		}
		scenes := map[string]bool{}
		for _, scene := range of {
			scenes[scene] = true
		}
		if len(of) != tc.set.Len() || len(scenes) != tc.want {
			t.Errorf("%s: %d questions about %d scenes, want %d", tc.set.Name, len(of), len(scenes), tc.want)
		}
	}
}
