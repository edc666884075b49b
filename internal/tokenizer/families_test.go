package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// reopened returns the folder that a tokenizer saves, and what Open reads of it.
func reopened(t *testing.T, tok *Tokenizer) (string, *Tokenizer) {
	t.Helper()
	saved := t.TempDir()
	if err := tok.Save(saved); err != nil {
		t.Fatal(err)
	}
	again, err := Open(saved)
	if err != nil {
		t.Fatal(err)
	}
	return saved, again
}

// The rules of SmolLM2, Llama 3, Llama 2 and Mistral give what the tokenizers library gives (testdata/families.py), as read and as saved.
func TestFamilies(t *testing.T) {
	var families []struct {
		Name  string
		File  json.RawMessage
		Cases []struct {
			Text         string
			IDs, Special []int64
		}
		Decoded []struct {
			IDs          []int64
			Text, Hidden string
		}
	}
	golden.JSON(t, filepath.Join("testdata", "families.json"), &families)
	if len(families) != 10 {
		t.Fatalf("%d families", len(families))
	}
	for _, f := range families {
		t.Run(f.Name, func(t *testing.T) {
			folder := t.TempDir()
			if err := os.WriteFile(filepath.Join(folder, "tokenizer.json"), f.File, 0o644); err != nil {
				t.Fatal(err)
			}
			tok, err := Open(folder)
			if err != nil {
				t.Fatal(err)
			}
			_, again := reopened(t, tok)
			for _, tok := range []*Tokenizer{tok, again} {
				for range 2 { // without and with the cache of pieces
					for _, c := range f.Cases {
						if got := tok.Encode(c.Text); !slices.Equal(got, c.IDs) {
							t.Errorf("%q: got %v, want %v", c.Text, got, c.IDs)
						}
						if got := tok.EncodeSpecial(c.Text); !slices.Equal(got, c.Special) {
							t.Errorf("%q with special tokens: got %v, want %v", c.Text, got, c.Special)
						}
					}
				}
				for _, c := range f.Decoded {
					if text, hidden := tok.Decode(c.IDs, false), tok.Decode(c.IDs, true); text != c.Text || hidden != c.Hidden {
						t.Errorf("%v: got %q and %q, want %q and %q", c.IDs, text, hidden, c.Text, c.Hidden)
					}
				}
			}
		})
	}
}
