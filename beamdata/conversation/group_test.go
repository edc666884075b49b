package conversation

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A picture never stands on both sides of a split, also where records have it beside others.
func TestSplitOfRecordsWithSeveralPictures(t *testing.T) {
	var b strings.Builder
	for i := range 60 {
		fmt.Fprintf(&b, `{"images": ["a%d.png", "b%d.png"], "prompt": "<image><image>?", "completion": "x"}`+"\n", i/3, i/2)
	}
	path, none := filepath.Join(t.TempDir(), "x.jsonl"), 0
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	opt := DefaultOptions()
	opt.Train, opt.CheckRecords = &path, &none
	data, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	side := map[string]string{}
	for _, set := range []*Set{data.Train, data.Val} {
		for i := range set.Len() {
			s, err := set.Sample(i)
			if err != nil {
				t.Fatal(err)
			}
			for _, image := range s.Images() {
				if other, ok := side[image]; ok && other != set.Name {
					t.Errorf("%s is in %s and %s", filepath.Base(image), other, set.Name)
				}
				side[image] = set.Name
			}
		}
	}
}
