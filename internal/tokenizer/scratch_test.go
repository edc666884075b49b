package tokenizer

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestScratch(t *testing.T) {
	corpus := []string{"the storm hit the coast", "the storm left <s>the</s> coast on monday", "2,400 homes"}
	for _, c := range []struct {
		name   string
		layout Layout
		ids    map[string]int64 // of special tokens; -1: the last
		around []int64
	}{
		{"T5", T5, map[string]int64{"<pad>": 0, "</s>": 1, "<unk>": 2}, []int64{1}},
		{"BART", BART, map[string]int64{"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": -1}, []int64{0, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok, err := Scratch(corpus, 300, c.layout)
			if err != nil {
				t.Fatal(err)
			}
			folder := t.TempDir()
			if err := tok.Save(folder); err != nil {
				t.Fatal(err)
			}
			saved, err := Open(folder)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(folder, "tokenizer.json")); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(folder); err == nil || !strings.Contains(err.Error(), "PreTrainedTokenizerFast") {
				t.Errorf("without tokenizer.json: got %v, want a refusal: the older layout cannot say what stands around a text", err)
			}
			for _, tok := range []*Tokenizer{tok, saved} {
				if tok.Size() > 300 || tok.Size() < 262 {
					t.Errorf("%d tokens, want merges and at most 300", tok.Size())
				}
				for _, token := range slices.Sorted(maps.Keys(c.ids)) {
					want := c.ids[token]
					if want < 0 {
						want = int64(tok.Size()) - 1
					}
					if id, ok := tok.ID(token); !ok || id != want {
						t.Errorf("%s has id %d, want %d", token, id, want)
					}
				}
				text := "the storm, naïve 日本 2,400"
				ids := tok.EncodeSpecial(text)
				if got := tok.Decode(ids, true); got != text {
					t.Errorf("%q came back as %q", text, got)
				}
				if plain := tok.Encode(text); len(ids) != len(plain)+len(c.around) || len(plain) >= len(text) {
					t.Errorf("%d tokens, %d with special ones, of %d bytes", len(plain), len(ids), len(text))
				}
				if got := tok.EncodeSpecial(""); !slices.Equal(got, c.around) {
					t.Errorf("around an empty text: %v, want %v", got, c.around)
				}
			}
		})
	}
	if _, err := Scratch(corpus, 258, T5); err == nil || !strings.Contains(err.Error(), "want at least 259") {
		t.Errorf("258 tokens: got %v", err)
	}
}
