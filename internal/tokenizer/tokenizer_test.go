package tokenizer

import (
	"path/filepath"
	"slices"
	"testing"

	"fulcrum/internal/golden"
)

type cases struct {
	Cases []struct {
		Text               string
		IDs                []int64
		Decoded            string
		DecodedSkipSpecial string `json:"decoded_skip_special"`
	}
	DecodeCases []struct {
		IDs  []int64
		Text string
	} `json:"decode_cases"`
	ChatCases []struct {
		Text string
		IDs  []int64
	} `json:"chat_cases"`
}

// The real vocabulary of Qwen2.5 against the ids of HuggingFace's tokenizer.
func TestRealVocabulary(t *testing.T) {
	folder := golden.Shared(t, "qwen2_5_vl", "tokenizer")
	tok, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	var c cases
	golden.JSON(t, filepath.Join(folder, "tokenizer_cases.json"), &c)
	if len(c.Cases) < 100 || len(c.DecodeCases) < 50 || len(c.ChatCases) < 10 {
		t.Fatalf("%d, %d, %d cases", len(c.Cases), len(c.DecodeCases), len(c.ChatCases))
	}
	for range 2 { // the second round meets a full cache
		for _, x := range c.Cases {
			if got := tok.Encode(x.Text); !slices.Equal(got, x.IDs) {
				t.Errorf("Encode(%q)\n got %v\nwant %v", x.Text, got, x.IDs)
			}
			if got := tok.Decode(x.IDs, false); got != x.Decoded {
				t.Errorf("Decode(%v)\n got %q\nwant %q", x.IDs, got, x.Decoded)
			}
			if got := tok.Decode(x.IDs, true); got != x.DecodedSkipSpecial {
				t.Errorf("Decode(%v, skip special)\n got %q\nwant %q", x.IDs, got, x.DecodedSkipSpecial)
			}
		}
	}
	for _, x := range c.DecodeCases {
		if got := tok.Decode(x.IDs, false); got != x.Text {
			t.Errorf("Decode(%v)\n got %q\nwant %q", x.IDs, got, x.Text)
		}
	}
	for _, x := range c.ChatCases {
		if got := tok.Encode(x.Text); !slices.Equal(got, x.IDs) {
			t.Errorf("Encode(%q)\n got %v\nwant %v", x.Text, got, x.IDs)
		}
	}
	if tok.Size() != 151665 {
		t.Errorf("size %d, want 151665", tok.Size())
	}
}
