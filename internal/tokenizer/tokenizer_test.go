package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
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

type tinyCase struct {
	Text        string
	Qwen2, GPT2 []string
	IDs         []int64
}

// tinyCases returns the texts of testdata/cases.json with their pieces and their ids under testdata/tiny
// (testdata/make.py).
func tinyCases(t testing.TB) []tinyCase {
	t.Helper()
	var cases []tinyCase
	golden.JSON(t, filepath.Join("testdata", "cases.json"), &cases)
	if len(cases) < 300 {
		t.Fatalf("%d cases", len(cases))
	}
	return cases
}

func openTiny(t testing.TB) *Tokenizer {
	t.Helper()
	tok, err := Open(filepath.Join("testdata", "tiny"))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestSplitsAreThoseOfTheRegularExpressions(t *testing.T) {
	pieces := func(s Split, text string) (out []string) {
		for len(text) > 0 {
			n := s.next(text)
			out = append(out, text[:n])
			text = text[n:]
		}
		return out
	}
	for _, c := range tinyCases(t) {
		if got := pieces(Qwen2, c.Text); !slices.Equal(got, c.Qwen2) {
			t.Errorf("Qwen2 %q\n got %q\nwant %q", c.Text, got, c.Qwen2)
		}
		if got := pieces(GPT2, c.Text); !slices.Equal(got, c.GPT2) {
			t.Errorf("GPT2 %q\n got %q\nwant %q", c.Text, got, c.GPT2)
		}
	}
}

// tokenizer.json, the older pair of files, and what Save writes of either give the same ids.
func TestTinyVocabulary(t *testing.T) {
	tok := openTiny(t)
	older := t.TempDir()
	for _, name := range []string{"vocab.json", "merges.txt", "tokenizer_config.json"} {
		data, err := os.ReadFile(filepath.Join("testdata", "tiny", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(older, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := Open(older)
	if err != nil {
		t.Fatal(err)
	}
	saved := t.TempDir()
	if err := pair.Save(saved); err != nil {
		t.Fatal(err)
	}
	again, err := Open(saved)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"vocab.json", "merges.txt", "tokenizer_config.json"} {
		if got, want := values(t, saved, name), values(t, older, name); got != want {
			t.Errorf("%s: saved %s\nwant %s", name, got, want)
		}
	}
	if got, want := values(t, saved, "tokenizer.json"), values(t, filepath.Join("testdata", "tiny"), "tokenizer.json"); got != want {
		t.Errorf("tokenizer.json: saved %s\nwant %s", got, want)
	}
	for _, c := range tinyCases(t) {
		for name, x := range map[string]*Tokenizer{"tokenizer.json": tok, "vocab.json": pair, "saved": again} {
			if got := x.Encode(c.Text); !slices.Equal(got, c.IDs) {
				t.Errorf("%s: Encode(%q)\n got %v\nwant %v", name, c.Text, got, c.IDs)
			}
		}
	}
	if tok.Size() != 622 {
		t.Errorf("size %d, want 622", tok.Size())
	}
}

// values returns a file with JSON in one spelling.
func values(t *testing.T, folder, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Ext(name) != ".json" {
		return string(data)
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
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

// All sequences of four of these bytes, which border every range of Unicode's table of well-formed
// UTF-8, replaced as Python's bytes.decode("utf-8", "replace") does: the SHA-256 of the results, each
// followed by "|".
func TestIllFormedUTF8(t *testing.T) {
	bytes := []byte{0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0,
		0xF1, 0xF3, 0xF4, 0xF5, 0xFF}
	sum := sha256.New()
	for _, a := range bytes {
		for _, b := range bytes {
			for _, c := range bytes {
				for _, d := range bytes {
					io.WriteString(sum, validUTF8(string([]byte{a, b, c, d}))+"|")
				}
			}
		}
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != "47ba358c7b1198cd8ffad5360bb68dc3b0592dc240ac362b1b4959e3c09584f3" {
		t.Errorf("got %s", got)
	}
	for text, want := range map[string]int{"\xF0\x90\x80a": 1, "\xED\xA0\x80": 3, "\xE2\x82": 1, "\xC0\x80": 2} { // examples, for reading
		if got := strings.Count(validUTF8(text), "\uFFFD"); got != want {
			t.Errorf("%q: %d replacements, want %d", text, got, want)
		}
	}
}
