package tokenizer

import (
	"path/filepath"
	"slices"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// seq2seqCases are the texts of a tokenizer_cases.json with the ids of HuggingFace's tokenizers library.
type seq2seqCases struct {
	Cases []struct {
		Text         string
		IDs          []int64
		IDsNoSpecial []int64 `json:"ids_no_special"`
	}
	Decode []struct {
		IDs             []int64
		TextSkipSpecial string `json:"text_skip_special"`
		Text            string
	}
}

// Encoding and decoding of T5 (both layouts) and BART against HuggingFace; what Save writes does the same.
func TestEncoderDecoderTokenizers(t *testing.T) {
	for _, name := range []string{"tiny_t5", "tiny_t5_v11", "tiny_bart"} {
		t.Run(name, func(t *testing.T) {
			folder := golden.Shared(t, "seq2seq", name)
			tok, err := Open(folder)
			if err != nil {
				t.Fatal(err)
			}
			saved, again := reopened(t, tok)
			if tok.unigram != nil { // BART's processor is saved as the template that it means
				if got, want := values(t, saved, "tokenizer.json"), values(t, folder, "tokenizer.json"); got != want {
					t.Errorf("saved %.300s\nwant  %.300s", got, want)
				}
			}
			var c seq2seqCases
			golden.JSON(t, filepath.Join(folder, "tokenizer_cases.json"), &c)
			if len(c.Cases) < 90 || len(c.Decode) < 130 {
				t.Fatalf("%d and %d cases", len(c.Cases), len(c.Decode))
			}
			for i, tok := range []*Tokenizer{tok, again, tok} { // the third round meets a full cache
				for _, x := range c.Cases {
					if got := tok.EncodeSpecial(x.Text); !slices.Equal(got, x.IDs) {
						t.Errorf("%d: EncodeSpecial(%q)\n got %v\nwant %v", i, x.Text, got, x.IDs)
					}
					if got := tok.Encode(x.Text); !slices.Equal(got, x.IDsNoSpecial) {
						t.Errorf("%d: Encode(%q)\n got %v\nwant %v", i, x.Text, got, x.IDsNoSpecial)
					}
				}
				for _, x := range c.Decode {
					if got := tok.Decode(x.IDs, false); got != x.Text {
						t.Errorf("%d: Decode(%v)\n got %q\nwant %q", i, x.IDs, got, x.Text)
					}
					if got := tok.Decode(x.IDs, true); got != x.TextSkipSpecial {
						t.Errorf("%d: Decode(%v, skip special)\n got %q\nwant %q", i, x.IDs, got, x.TextSkipSpecial)
					}
				}
			}
		})
	}
}
