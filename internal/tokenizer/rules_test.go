package tokenizer

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"fulcrum/internal/testkit/golden"
)

func TestAddedTokens(t *testing.T) {
	vocab, merges := Train([]string{"the cat sat on the mat"}, 262)
	n := len(vocab)
	tok, err := New(vocab, merges, []Added{
		{ID: n, Content: "<a>"},
		{ID: n + 1, Content: "<a><b>"},
		{ID: n + 2, Content: "<l>", LStrip: true},
		{ID: n + 3, Content: "<r>", RStrip: true},
		{ID: n + 4, Content: "word", SingleWord: true},
		{ID: n + 5, Content: "<s>", Special: true},
		{ID: n + 6, Content: "e\u0301!", Normalized: true},
		{ID: n + 7, Content: "or"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, text, want string }{
		{"the longest wins", "<a><b>", "[<a><b>]"},
		{"the leftmost wins", "<a><a><b>x", "[<a>][<a><b>]x"},
		{"a part of one is text", "<a <", "<a <"},
		{"lstrip swallows the space before", "x \n<l> y", "x[<l>] y"},
		{"rstrip swallows the space after", "x <r> \u3000y", "x [<r>]y"},
		{"single_word stands alone", "word words sword _word word", "[word] words sword _word [word]"},
		{"one inside a word hides those within it", "or sword swordor", "[or] sword sword[or]"},
		{"signs are no word, though they count", "½word ²word ①word Ⅷword ⓐword", "½[word] ²[word] ①[word] Ⅷword ⓐword"},
		{"marks, joiners and connectors are", "\u0301word word\u200d ‿word word\u0345", "\u0301word word\u200d ‿word word\u0345"},
		{"normalized is found in NFC text", "e\u0301! \u00e9!", "[e\u0301!] [e\u0301!]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got strings.Builder
			for _, id := range tok.Encode(c.text) {
				if e := tok.tokens[id]; e.added != nil {
					got.WriteString("[" + e.token + "]")
				} else {
					got.WriteString(e.bytes)
				}
			}
			if got.String() != c.want {
				t.Errorf("got %q, want %q", got.String(), c.want)
			}
		})
	}
	ids := tok.Encode("a<s>b<a>")
	if got := tok.Decode(ids, true); got != "ab<a>" {
		t.Errorf("special tokens left out: %q", got)
	}
	if got := tok.Decode(append(ids, -1, 1<<40), false); got != "a<s>b<a>" {
		t.Errorf("ids outside stand for nothing: %q", got)
	}
}

func TestNewRefuses(t *testing.T) {
	good, merges := Train([]string{"aa aa"}, 257)
	with := func(edit func(map[string]int)) map[string]int {
		v := maps.Clone(good)
		edit(v)
		return v
	}
	for _, c := range []struct {
		name   string
		vocab  map[string]int
		merges [][2]string
		added  []Added
		want   string
	}{
		{"a missing byte", with(func(v map[string]int) { delete(v, "!") }), nil, nil,
			`the vocabulary lacks the byte 0x21, which it writes "!"`},
		{"two tokens of one id", with(func(v map[string]int) { v["xy"] = 3 }), nil, nil, "share the id 3"},
		{"a negative id", with(func(v map[string]int) { v["xy"] = -3 }), nil, nil, `token "xy": id -3, want 0 to`},
		{"an id beyond all tables", with(func(v map[string]int) { v["xy"] = 1 << 40 }), nil, nil, `token "xy": id 1099511627776`},
		{"a merge without its result", good, [][2]string{{"a", "b"}}, nil, `merge 1 ("a" + "b"): the vocabulary lacks "ab"`},
		{"a merge of an unknown token", good, append(slices.Clone(merges), [2]string{"zz", "a"}), nil,
			`merge 2 ("zz" + "a"): the vocabulary lacks "zz"`},
		{"an empty added token", good, nil, []Added{{ID: 500}}, "added token 500 is empty"},
		{"an added token on another's id", good, nil, []Added{{ID: 0, Content: "<x>"}}, `tokens "!" and "<x>" share the id 0`},
		{"an added token of two ids", good, nil, []Added{{ID: 500, Content: "aa"}}, `added token "aa" has the ids 256 and 500`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := New(c.vocab, c.merges, c.added); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// What tokenizer.json may say that this package does not do is refused by name.
func TestOpenRefuses(t *testing.T) {
	file, err := os.ReadFile(filepath.Join("testdata", "tiny", "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	const rest = `,"continuing_subword_prefix":"","end_of_word_suffix":"","fuse_unk":false,"byte_fallback":false,` +
		`"ignore_merges":false,"vocab":{`
	for _, c := range []struct{ name, old, new, want string }{
		{"another model", `"type": "BPE"`, `"type": "Unigram"`, `model.vocab: want a list of [piece, score]`},
		{"another model with another vocabulary", `"type":"BPE",`, `"type":"WordLevel","vocab":[["a",1]],`,
			`model "WordLevel" is not supported (supported: BPE, Unigram)`},
		{"another normalizer", `"type": "NFC"`, `"type": "NFKC"`,
			`normalizer "NFKC" is not supported (supported: NFC, Precompiled, Strip, Replace, Prepend, Lowercase, none)`},
		{"another pattern", `\\p{N}|`, `\\p{N}{1,4}|`,
			`(supported: the pattern of Qwen2, Llama 3 or GPT-2, Isolated, that of CLIP, Removed and inverted)`},
		{"another behavior", `"Isolated"`, `"Removed"`, `behavior Removed`},
		{"another pre-tokenizer", `"type": "Split"`, `"type": "Metaspace"`, `pre_tokenizer "Metaspace" is not supported`},
		{"a template without the text", `"post_processor": {"type": "ByteLevel"`, `"post_processor": {"type": "TemplateProcessing"`,
			`post_processor: TemplateProcessing: single has no Sequence`},
		{"another post-processor", `"post_processor": {"type": "ByteLevel"`, `"post_processor": {"type": "Prompt"`,
			`post_processor "Prompt" is not supported`},
		{"another decoder", `"decoder": {"type": "ByteLevel"`, `"decoder": {"type": "WordPiece"`, `decoder "WordPiece" is not supported`},
		{"byte fallback", `"byte_fallback": false`, `"byte_fallback": true`, `pre_tokenizer with byte_fallback "Sequence" is not supported`},
		{"runs of digits", `{"type": "Split"`, `{"type":"Digits","individual_digits":false},{"type": "Split"`,
			`pre_tokenizer Digits "individual_digits false" is not supported`},
		{"digits after a split", `{"type": "ByteLevel", "add`, `{"type":"Digits","individual_digits":true},{"type": "ByteLevel", "add`,
			`pre_tokenizer "Digits" is not supported`},
		{"a missing byte that is unknown", `"unk_token":null` + rest + `"!":`, `"unk_token":"!!"` + rest + `"!!":`,
			`the vocabulary lacks the byte 0x21`},
		{"a suffix", `"end_of_word_suffix": ""`, `"end_of_word_suffix": "</w>"`, `model.end_of_word_suffix "</w>" is not supported`},
		{"dropout", `"dropout": null`, `"dropout": 0.1`, `model.dropout "0.1" is not supported`},
		{"damage", `{"version":`, `{"version";`, `invalid character ';'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := string(file) // written without spaces
			if !strings.Contains(text, compact(c.old)) {
				t.Fatalf("the file has no %s", c.old)
			}
			_, err := parse([]byte(strings.Replace(text, compact(c.old), compact(c.new), 1)))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"an empty folder", nil, "no tokenizer: want tokenizer.json, or vocab.json and merges.txt"},
		{"another class", map[string]string{"vocab.json": "{}", "merges.txt": "",
			"tokenizer_config.json": `{"tokenizer_class":"T5Tokenizer"}`},
			`tokenizer_class "T5Tokenizer" is not supported (supported: Qwen2Tokenizer, GPT2Tokenizer, BartTokenizer, RobertaTokenizer, CLIPTokenizer)`},
		{"a bad merge", map[string]string{"vocab.json": "{}", "merges.txt": "#version: 0.2\na b\nc\n"},
			`merges.txt:3: "c", want two tokens and one space`},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			for name, text := range c.files {
				if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := Open(folder); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// compact removes the spaces that a JSON file may or may not have after : and ,.
func compact(s string) string { return strings.NewReplacer(`": `, `":`, `, "`, `,"`).Replace(s) }

// GPT-2's own layout: ByteLevel with its pattern, no normalizer, with and without a leading space.
func TestGPT2(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"vocab.json", "merges.txt"} {
		data, err := os.ReadFile(filepath.Join("testdata", "tiny", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, prefix := range []bool{false, true} {
		config := `{"tokenizer_class":"GPT2Tokenizer","add_prefix_space":false,"clean_up_tokenization_spaces":true}`
		if prefix {
			config = `{"tokenizer_class":"GPT2Tokenizer","add_prefix_space":true,"clean_up_tokenization_spaces":true,` +
				`"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output":true}`
		}
		if err := os.WriteFile(filepath.Join(folder, "tokenizer_config.json"), []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
		tok, err := Open(folder)
		if err != nil {
			t.Fatal(err)
		}
		_, tok = reopened(t, tok) // now by way of tokenizer.json
		var pieces []string
		for _, c := range tinyCases(t) {
			pieces = append(pieces, c.GPT2...)
			var want []int64
			for i, p := range c.GPT2 {
				if prefix && i == 0 && p[0] != ' ' {
					p = " " + p
				}
				if strings.HasPrefix(p, " '") || len(p) > 1 && beginsWhite(p[1:]) { // the space changes how the text is cut
					want = nil
					break
				}
				s := tok.pool.Get().(*scratch)
				for _, id := range tok.appendMerged(nil, p, s) {
					want = append(want, int64(id))
				}
			}
			if want == nil {
				continue
			}
			if got := tok.Encode(c.Text); !slices.Equal(got, want) {
				t.Errorf("prefix %t: Encode(%q)\n got %v\nwant %v", prefix, c.Text, got, want)
			}
		}
		if len(pieces) < 1000 {
			t.Fatalf("%d pieces", len(pieces))
		}
		want := map[bool]string{false: "it 's a b . c", true: "it's a b. c"}[prefix] // BPE keeps its spaces, but for the last key
		if got := tok.Decode(tok.Encode("it 's a b . c"), false); strings.TrimSpace(got) != want {
			t.Errorf("clean up: %q", got)
		}
	}
}

func TestTrain(t *testing.T) {
	corpus := []string{"low low low low low lower lower newest newest newest newest newest newest widest widest widest"}
	vocab, merges := Train(corpus, 266)
	golden.File(t, filepath.Join("testdata", "train.txt"), []byte(join2(merges)))
	if len(vocab) != 256+len(merges) || vocab["!"] != 0 || vocab[merges[0][0]+merges[0][1]] != 256 {
		t.Errorf("%d tokens, %d merges", len(vocab), len(merges))
	}
	again, merges2 := Train([]string{corpus[0][:23], "", corpus[0][23:]}, 266) // cut between two words
	if !maps.Equal(vocab, again) || !slices.Equal(merges, merges2) {
		t.Errorf("the same words in another shape give %v, not %v", merges2, merges)
	}
	if all, _ := Train(corpus, 10000); len(all) >= 300 {
		t.Errorf("%d tokens: it goes on when no pair occurs twice", len(all))
	}
	if bytes, _ := Train(nil, 5); len(bytes) != 256 {
		t.Errorf("%d tokens of nothing", len(bytes))
	}
	// a+bc and ab+c make one token
	vocab, merges = Train([]string{"abc abc abc bc bc bc bc bc", "ab ab ab ab ab ab ab ab ab abcabc"}, 300)
	if _, err := New(vocab, merges, nil); err != nil {
		t.Error(err)
	}
}

func join2(merges [][2]string) string {
	var b strings.Builder
	for _, m := range merges {
		b.WriteString(m[0] + " " + m[1] + "\n")
	}
	return b.String()
}

func FuzzRoundTrip(f *testing.F) {
	for _, c := range tinyCases(f) {
		f.Add(c.Text)
	}
	tok := openTiny(f)
	f.Fuzz(func(t *testing.T, text string) {
		ids := tok.Encode(text)
		want := nfcOfParts(tok, validUTF8(text))
		if got := tok.Decode(ids, false); got != want {
			t.Errorf("%q: decoded %q, want %q", text, got, want)
		}
		if got := tok.Encode(want); !slices.Equal(got, ids) {
			t.Errorf("%q: ids %v, of the decoded text %v", text, ids, got)
		}
	})
}

// nfcOfParts brings the text between the added tokens to NFC.
func nfcOfParts(tok *Tokenizer, text string) string {
	var b strings.Builder
	var s scratch
	n := 0
	flush := func() {
		for ; n < len(s.ids); n++ {
			b.WriteString(tok.Token(int64(s.ids[n])))
		}
	}
	tok.raw.cut(text, &s, func(part string) {
		flush()
		b.WriteString(nfc(part))
	})
	flush()
	return b.String()
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{0, 1, 2, 200, 255})
	tok := openTiny(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		ids := make([]int64, len(raw))
		for i, b := range raw {
			ids[i] = int64(b)*3 - 50
		}
		for _, skip := range []bool{false, true} {
			if got := tok.Decode(ids, skip); !utf8.ValidString(got) {
				t.Errorf("%v: %q is not UTF-8", ids, got)
			}
		}
	})
}

// The heap gives what the plainest BPE gives: merge the lowest rank, the leftmost first, and look again.
func FuzzMerges(f *testing.F) {
	f.Add("the the there    then aaaaaaaaaaaa")
	tok := openTiny(f)
	f.Fuzz(func(t *testing.T, piece string) {
		if piece == "" {
			return // no rule cuts one
		}
		var want []int32
		for i := range len(piece) {
			want = append(want, tok.byteID[piece[i]])
		}
		for {
			best, at := merge{rank: 1 << 30}, -1
			for i := range len(want) - 1 {
				if m, ok := tok.bpe[join(want[i], want[i+1])]; ok && m.rank < best.rank {
					best, at = m, i
				}
			}
			if at < 0 {
				break
			}
			want[at] = best.id
			want = slices.Delete(want, at+1, at+2)
		}
		if got := tok.appendMerged(nil, piece, &scratch{}); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", piece, got, want)
		}
	})
}

// FuzzParse: a damaged tokenizer.json is an error or a tokenizer, never a panic.
func FuzzParse(f *testing.F) {
	data, err := os.ReadFile(filepath.Join("testdata", "tiny", "tokenizer.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":9e99}},"pre_tokenizer":{"type":"Sequence"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if tok, err := parse(data); err == nil {
			tok.Decode(tok.Encode("a <|im_end|>"), true)
		}
	})
}

// Only a space is a leading space: before other white space one is put, as before a word.
func TestPrefixSpace(t *testing.T) {
	vocab, merges := Train(nil, 256)
	tok, err := buildAs(gpt2(true), vocab, merges, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"\nx", "\u00a0x", "x"} {
		if got, want := tok.Encode(text), tok.Encode(" "+text); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want those of %q: %v", text, got, " "+text, want)
		}
	}
}
