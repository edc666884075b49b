package beamdata

import (
	"fmt"
	"path/filepath"
	"testing"
)

// Questions have their image in common, or the value of another key of items.jsonl.
func TestItemsKnowTheirClusters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "items.jsonl")
	text := `{"idx": 0, "image_id": 7, "question": "what", "source": "web", "page": 9007199254740993}
{"idx": 2, "image_id": 7, "question": "who", "answer_counts": {"a": 3}, "source": 5, "page": 9007199254740992}
{"idx": 1, "question": "what", "source": null}
`
	write(t, path, text)
	for key, want := range map[string]string{"": "[7  7  ]", "image_id": "[7  7  ]", "question": "[what what who  ]",
		"source": "[web  5  ]", "page": "[9007199254740993  9007199254740992  ]", "sauce": "[    ]"} {
		items := &Items{key: key}
		if _, _, err := items.readItems(path, 4); err != nil {
			t.Fatal(err)
		}
		b := Bundle{Items: items}
		if got := fmt.Sprint([]string{b.Cluster(0), b.Cluster(1), b.Cluster(2), b.Cluster(3), (&Bundle{}).Cluster(0)}); got != want {
			t.Errorf("key %q: got %s, want %s", key, got, want)
		}
	}
}
