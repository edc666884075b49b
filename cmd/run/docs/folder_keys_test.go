package docs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/testkit/golden"
	"fulcrum/selector/clip"
	"fulcrum/selector/seq2seq"
	"fulcrum/selector/vl"
	"fulcrum/selector/vl/pixels"
)

// TestFolderKeysPageIsCurrent: the page lists what becomes of every key of a model folder's files.
func TestFolderKeysPageIsCurrent(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Keys of a model folder\n\n" + strings.Replace(generated, "the option structs", "the tables of keys in selector/", 1) +
		"What becomes of every key of the JSON files in a Hugging Face folder, as transformers 5 knows them. `make test-peers` compares\n" +
		"the lists with transformers' classes, so that a new key is noticed. A key of neither list is one that transformers does not\n" +
		"have either, and is passed over. Dropout is among what has no effect: no model is trained with its own.\n\n" +
		"A key of generation_config.json that is refused ends `task=generate`, which says what to add: `generate.without=[num_beams]`\n" +
		"goes on without it. Training draws as `vl.generation` and `seq2seq.generation` say, and names in a warning what the folder\n" +
		"asks for beside them. Without generation_config.json the keys of config.json count, as in transformers.\n")
	kinds := []struct {
		name string
		keys []hffolder.Keys
	}{
		{"Qwen2.5-VL and text models", append(vl.Keys(), pixels.ImageKeys(), pixels.VideoKeys())},
		{"T5 and BART", seq2seq.Keys()},
		{"CLIP", clip.Keys()},
	}
	n := 0
	for _, kind := range kinds {
		fmt.Fprintf(&b, "\n## %s\n", kind.name)
		for _, k := range kind.keys {
			fmt.Fprintf(&b, "\n**%s** (%s)\n\n", k.Of, k.Class)
			fmt.Fprintf(&b, "- read: %s\n- without effect: %s\n", words(k.Used), words(k.Idle))
			var wants []string
			for _, key := range slices.Sorted(maps.Keys(k.Want)) {
				want := " (any value)"
				if of := k.Want[key]; len(of) > 0 {
					want = " (but for " + strings.Join(of, ", ") + ")"
				}
				wants = append(wants, key+want)
			}
			fmt.Fprintf(&b, "- refused: %s\n", words(wants))
			for _, key := range slices.Sorted(maps.Keys(k.Alias)) {
				fmt.Fprintf(&b, "- refused where it is another than %s: %s\n", k.Alias[key], key)
			}
			n += len(k.Used) + len(k.Idle) + len(k.Want) + len(k.Alias)
		}
	}
	if n < 300 {
		t.Errorf("%d keys, want 300 at least", n)
	}
	golden.File(t, docsPath("model_folders.md"), []byte(b.String()))
}

// words lists names in alphabetical order, wrapped.
func words(names []string) string {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	var b strings.Builder
	width := 20
	for i, name := range names {
		if i > 0 {
			b.WriteString(",")
			if width += len(name) + 2; width > 120 {
				b.WriteString("\n  ")
				width = len(name) + 2
			} else {
				b.WriteString(" ")
			}
		}
		b.WriteString(name)
	}
	return b.String()
}
