package tokenizer

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// darts compiles a table of replacements into a precompiled_charsmap, in the plainest way: children go to
// the first place where all of them are free.
func darts(table map[string]string) string {
	texts := ""
	values := map[string]uint32{}
	for _, key := range []string{"\r\n", "\n", "\t", "Ａ", "ﬁ", "é", "\u00ad"} { // in an order
		if text, ok := table[key]; ok {
			values[key] = uint32(len(texts))
			texts += text + "\x00"
		}
	}
	units := make([]uint32, 1<<16)
	used := make([]bool, len(units))
	used[0] = true
	var place func(prefix string, at uint32)
	place = func(prefix string, at uint32) {
		var next []byte
		for key := range values {
			if strings.HasPrefix(key, prefix) && len(key) > len(prefix) && !slices.Contains(next, key[len(prefix)]) {
				next = append(next, key[len(prefix)])
			}
		}
		slices.Sort(next)
		value, leaf := values[prefix]
		base := uint32(256)
		for ; ; base++ {
			children := at ^ base
			free := !leaf || !used[children]
			for _, c := range next {
				free = free && !used[children^uint32(c)]
			}
			if free {
				break
			}
		}
		children := at ^ base
		units[at] |= base << 10
		if leaf {
			units[at] |= 1 << 8
			units[children], used[children] = value|1<<31, true
		}
		for _, c := range next {
			used[children^uint32(c)] = true
			units[children^uint32(c)] = uint32(c)
		}
		for _, c := range next {
			place(prefix+string([]byte{c}), children^uint32(c))
		}
	}
	place("", 0)
	blob := binary.LittleEndian.AppendUint32(nil, uint32(4*len(units)))
	for _, u := range units {
		blob = binary.LittleEndian.AppendUint32(blob, u)
	}
	return base64.StdEncoding.EncodeToString(append(blob, texts...))
}

// smallUnigram returns a tokenizer.json of T5's kind. edit may change it before it is written.
func smallUnigram(t testing.TB, edit func(f map[string]any)) []byte {
	t.Helper()
	const mark = "▁"
	pieces := []any{[]any{"<pad>", 0.0}, []any{"</s>", 0.0}, []any{"<unk>", 0.0}}
	for i, p := range []string{mark, "a", "b", "c", "ab", "bc", mark + "a", mark + "ab", "fi", " "} {
		pieces = append(pieces, []any{p, -2 - float64(i)/4})
	}
	special := func(id int, content string) any {
		return map[string]any{"id": id, "content": content, "special": true}
	}
	f := map[string]any{
		"added_tokens": []any{special(0, "<pad>"), special(1, "</s>"), special(2, "<unk>")},
		"normalizer": map[string]any{"type": "Precompiled", "precompiled_charsmap": darts(map[string]string{
			"\r\n": " ", "\n": " ", "\t": " ", "Ａ": "A", "ﬁ": "fi", "\u00ad": ""})},
		"pre_tokenizer": map[string]any{"type": "Sequence", "pretokenizers": []any{
			map[string]any{"type": "WhitespaceSplit"}, map[string]any{"type": "Metaspace", "replacement": mark, "add_prefix_space": true}}},
		"post_processor": map[string]any{"type": "TemplateProcessing",
			"single": []any{map[string]any{"Sequence": map[string]any{"id": "A"}},
				map[string]any{"SpecialToken": map[string]any{"id": "</s>"}}},
			"special_tokens": map[string]any{"</s>": map[string]any{"id": "</s>", "ids": []int{1}, "tokens": []string{"</s>"}}}},
		"decoder": map[string]any{"type": "Metaspace", "replacement": mark, "add_prefix_space": true},
		"model":   map[string]any{"type": "Unigram", "unk_id": 2, "vocab": pieces},
	}
	if edit != nil {
		edit(f)
	}
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestUnigramRules(t *testing.T) {
	metaspace := func(scheme string, split bool) func(f map[string]any) {
		return func(f map[string]any) {
			m := map[string]any{"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}
			f["pre_tokenizer"], f["decoder"] = m, m
		}
	}
	newer := func(f map[string]any) {
		metaspace("always", true)(f)
		f["normalizer"] = map[string]any{"type": "Sequence", "normalizers": []any{f["normalizer"],
			map[string]any{"type": "Strip", "strip_right": true},
			map[string]any{"type": "Replace", "pattern": map[string]any{"Regex": " {2,}"}, "content": "▁"}}}
	}
	for _, c := range []struct {
		name, text string
		edit       func(f map[string]any)
		want       string // tokens, joined by |
	}{
		{"the likeliest pieces", "abc", nil, "▁ab|c"},
		{"every word has its mark", "ab  a", nil, "▁ab|▁a"},
		{"blank text has no word", " \n ", nil, ""},
		{"unknown neighbours are one", "xyzax", nil, "▁|<unk>|a|<unk>"},
		{"a cluster is replaced as a whole", "a\r\nb", nil, "▁a|▁|b"},
		{"a ligature", "aﬁ", nil, "▁a|fi"},
		{"a replacement by nothing", "a\u00adb", nil, "▁ab"},
		{"each part beside an added token is a text", "a</s>a", nil, "▁a|</s>|▁a"},
		{"newer: runs of spaces are one mark", "ab  a  ", newer, "▁ab|▁a"},
		{"newer: a single space is one mark", "ab a", newer, "▁ab|▁a"},
		{"first: only at the start", "a</s>a", metaspace("first", true), "▁a|</s>|a"},
		{"never: no mark of its own", "ab a", metaspace("never", true), "ab|▁a"},
		{"no split: a piece may cross words", "a", metaspace("always", false), "▁a"},
		{"the older key for never", "ab a", func(f map[string]any) {
			f["pre_tokenizer"] = map[string]any{"type": "Metaspace", "replacement": "▁", "add_prefix_space": false}
		}, "ab|▁a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok, err := parse(smallUnigram(t, c.edit))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, id := range tok.Encode(c.text) {
				got = append(got, tok.Token(id))
			}
			if strings.Join(got, "|") != c.want {
				t.Errorf("%q: got %s, want %s", c.text, strings.Join(got, "|"), c.want)
			}
		})
	}
}

func TestUnigramRefuses(t *testing.T) {
	set := func(part, key string, value any) func(map[string]any) {
		return func(f map[string]any) { f[part].(map[string]any)[key] = value }
	}
	blob := func(size uint32, rest int) string {
		return base64.StdEncoding.EncodeToString(append(binary.LittleEndian.AppendUint32(nil, size), make([]byte, rest)...))
	}
	firstAfter := func(kind string) func(map[string]any) {
		return func(f map[string]any) {
			f["normalizer"] = map[string]any{"type": "Sequence", "normalizers": []any{map[string]any{"type": kind, "strip_left": true,
				"pattern": map[string]any{"String": "x"}, "content": ""}}}
			f["pre_tokenizer"] = map[string]any{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}
		}
	}
	for _, c := range []struct {
		name string
		edit func(map[string]any)
		want string
	}{
		{"no unknown token", set("model", "unk_id", nil), `model.unk_id "null" is not supported`},
		{"an unknown token outside", set("model", "unk_id", 99), "unk_id 99 outside of the vocabulary (0 to 12)"},
		{"byte fallback", set("model", "byte_fallback", true), `model.byte_fallback "true" is not supported`},
		{"a piece without a score", set("model", "vocab", []any{[]any{"a"}}),
			`model.vocab: want a list of [piece, score]: ["a"]: want [piece, score]`},
		{"no table", set("normalizer", "precompiled_charsmap", ""), "0 bytes, want a trie and its texts"},
		{"a table that is no base64", set("normalizer", "precompiled_charsmap", "?"), "illegal base64"},
		{"a trie beyond the data", set("normalizer", "precompiled_charsmap", blob(400, 8)), "a trie of 400 bytes in 8"},
		{"a mark of two letters", set("decoder", "replacement", "__"), `replacement "__" of Metaspace: want one character`},
		{"two marks", set("decoder", "replacement", "_"), `by "▁", the decoder by "_"`},
		{"an unknown scheme", set("decoder", "prepend_scheme", "last"), `Metaspace prepend_scheme "last" is not supported`},
		{"two meanings", func(f map[string]any) {
			f["decoder"].(map[string]any)["add_prefix_space"] = false
			f["decoder"].(map[string]any)["prepend_scheme"] = "always"
		}, "want one meaning"},
		{"a start that is stripped, and its mark", firstAfter("Strip"), `before Metaspace prepend_scheme first "Strip" is not supported`},
		{"a start that is replaced by nothing, and its mark", firstAfter("Replace"), `first "Replace" is not supported`},
		{"no pre-tokenizer", func(f map[string]any) { f["pre_tokenizer"] = nil }, `pre_tokenizer "none" is not supported`},
		{"no decoder", func(f map[string]any) { f["decoder"] = nil }, `decoder "none" is not supported (supported: Metaspace)`},
		{"a pattern", func(f map[string]any) {
			f["normalizer"] = map[string]any{"type": "Replace", "pattern": map[string]any{"Regex": `\d+`}, "content": " "}
		}, `normalizer Replace "\\d+" is not supported (supported: a String, the Regexes "\\s+" and " {2,}")`},
		{"a special token without ids", set("post_processor", "special_tokens", map[string]any{}),
			`special_tokens lacks the ids of "</s>"`},
		{"a special token outside", set("post_processor", "special_tokens", map[string]any{"</s>": map[string]any{"ids": []int{-4}}}),
			"post_processor: id -4"},
		{"a class without an id", func(f map[string]any) {
			f["post_processor"] = map[string]any{"type": "BertProcessing", "cls": []any{"[CLS]"}, "sep": []any{"[SEP]", 3}}
		}, "post_processor: BertProcessing: cls: want [token, id]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := parse(smallUnigram(t, c.edit)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// FuzzUnigram: the path has the highest score of all paths, checked against the plainest search, and
// decoding it gives the normalised text where nothing is unknown.
func FuzzUnigram(f *testing.F) {
	for _, text := range []string{"", "abc", "aab bca", "xabx", "a\r\nb", "ﬁab\u0301", "é日本", "a</s>b", strings.Repeat("a", 40)} {
		f.Add(text)
	}
	tok, err := parse(smallUnigram(f, nil))
	if err != nil {
		f.Fatal(err)
	}
	u := tok.unigram
	score := func(id int32) float64 {
		if id == u.unk {
			return u.unknown
		}
		return u.pieces[id].score
	}
	var best func(word string) float64
	known := map[string]float64{} // of words, so that the search is not exponential
	best = func(word string) (most float64) {
		if word == "" {
			return 0
		}
		if most, ok := known[word]; ok {
			return most
		}
		defer func() { known[word] = most }()
		_, char := utf8.DecodeRuneInString(word)
		most = score(u.unk) + best(word[char:])
		if _, ok := u.ids[word[:char]]; ok {
			most = score(int32(u.ids[word[:char]])) + best(word[char:])
		}
		for id, p := range u.pieces {
			if len(p.text) > 0 && strings.HasPrefix(word, p.text) {
				most = max(most, score(int32(id))+best(word[len(p.text):]))
			}
		}
		return most
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids := tok.EncodeSpecial(text)
		if !utf8.ValidString(tok.Decode(ids, false)) || ids[len(ids)-1] != 1 {
			t.Errorf("%q: %v", text, ids)
		}
		word := "▁" + strings.Join(strings.Fields(validUTF8(text)), "")
		if len(word) > 24 {
			word = word[:24]
			for !utf8.ValidString(word) {
				word = word[:len(word)-1]
			}
		}
		got := 0.0
		path := u.append(nil, word, &scratch{})
		for i, id := range path {
			if i > 0 && id == u.unk && path[i-1] == u.unk {
				t.Errorf("%q: two unknown neighbours in %v", word, path)
			}
			got += score(id)
		}
		clear(known)
		if want := best(word); got < want-1e-9 { // joined unknowns score more
			t.Errorf("%q: path %v scores %v, the best %v", word, path, got, want)
		}
	})
}

func BenchmarkUnigram(b *testing.B) {
	tok, err := parse(smallUnigram(b, nil))
	if err != nil {
		b.Fatal(err)
	}
	var text strings.Builder
	for i := range 400 {
		fmt.Fprintf(&text, "ab%dca ", i%50)
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		tok.Encode(text.String())
	}
}
