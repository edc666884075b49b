package tokenizer

import (
	"path/filepath"
	"slices"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// TestCLIP: the ids of the transformers library, from tokenizer.json, from vocab.json and merges.txt, and from what Save makes of
// either.
func TestCLIP(t *testing.T) {
	data := filepath.Join("..", "..", "selector", "clip", "testdata")
	var want struct {
		Texts []string
		IDs   [][]int64 `json:"ids"`
	}
	golden.JSON(t, filepath.Join(data, "quick.json"), &want)
	for _, name := range []string{"quick", "legacy"} {
		first, err := Open(filepath.Join(data, name))
		if err != nil {
			t.Fatal(err)
		}
		folder := t.TempDir()
		if err := first.Save(folder); err != nil {
			t.Fatal(err)
		}
		saved, err := Open(folder)
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range want.Texts {
			for _, tok := range []*Tokenizer{first, saved} {
				ids := tok.EncodeSpecial(text)
				if len(ids) > 24 { // where the golden's are cut
					ids = append(ids[:23], want.IDs[i][len(want.IDs[i])-1])
				}
				if !slices.Equal(ids, want.IDs[i]) {
					t.Errorf("%s: %q\n%v, want\n%v", name, text, ids, want.IDs[i])
				}
			}
		}
		ids := first.EncodeSpecial("  What's  in the\tpicture? ")
		if got, want := first.Decode(ids, true), "what 's in the picture ?"; got != want {
			t.Errorf("%s: decoded %q, want %q", name, got, want)
		}
	}
}
