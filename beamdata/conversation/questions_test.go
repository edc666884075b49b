package conversation

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A sample is the same question in another row of another file: a file without its first record shares the others.
func TestQuestionsHaveNoRows(t *testing.T) {
	lines := []string{}
	for _, word := range []string{"red", "green", "blue", "grey"} {
		lines = append(lines, `{"messages": [{"role": "user", "content": "What is `+word+`?"}, {"role": "assistant", "content": "a colour"}]}`)
	}
	dir, opt := t.TempDir(), DefaultOptions()
	of := func(lines []string) (string, []string) {
		path := filepath.Join(dir, "data.jsonl")
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
		opt.Eval = &path
		b, err := Open(opt)
		if err != nil {
			t.Fatal(err)
		}
		return b.Eval.Questions()
	}
	all, sketch := of(lines)
	part, fewer := of(lines[1:])
	kept := 0
	for _, h := range fewer {
		if slices.Contains(sketch, h) {
			kept++
		}
	}
	if all == part || len(sketch) != 4 || kept != 3 {
		t.Errorf("%d hashes of 4 samples, %d of the other 3 among them; digests %s, %s", len(sketch), kept, all, part)
	}
}
