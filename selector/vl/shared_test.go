package vl

import (
	"math"
	"slices"
	"testing"

	"fulcrum/internal/rng"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl/processor"
)

// sharedPrompts are prompts that begin alike in several ways: the same demonstrations, the same picture, other pictures
// behind the same words, one prompt twice, one with nothing in common.
func sharedPrompts(t *testing.T) []Group {
	t.Helper()
	r := rng.New(3, "shared")
	words := func(n int) []int64 {
		out := make([]int64, n)
		for i := range out {
			out[i] = int64(5 + r.IntN(90))
		}
		return out
	}
	one, other := prompt(t, "one_image"), prompt(t, "two_images")
	demos := &processor.Prompt{IDs: slices.Concat(one.IDs, words(9)), Images: one.Images}
	swapped := *demos
	swapped.Images = slices.Clone(one.Images)
	swapped.Images[0].Data = slices.Clone(one.Images[0].Data)
	slices.Reverse(swapped.Images[0].Data)
	swapped.Images[0].Key = "another picture"
	join := func(a, b *processor.Prompt, n int) *processor.Prompt {
		return &processor.Prompt{IDs: slices.Concat(a.IDs, b.IDs, words(n)), Images: slices.Concat(a.Images, b.Images)}
	}
	first := join(demos, other, 4)
	groups := []Group{{Prompt: first}, {Prompt: join(demos, one, 7)}, {Prompt: first}, {Prompt: join(&swapped, other, 4)}, {Prompt: other},
		{Prompt: demos}, {Prompt: join(demos, other, 1)}}
	for i := range groups {
		for range 1 + i%3 {
			groups[i].Completions = append(groups[i].Completions, words(1+r.IntN(6)))
		}
	}
	groups[4].Completions = append(groups[4].Completions, nil)
	return groups
}

// TestSharedLogProbs: with what sequences begin with computed once, log-probabilities are those of separate sequences.
func TestSharedLogProbs(t *testing.T) {
	for _, name := range []string{"tiny_tied", "tiny_untied_bf16"} {
		m, groups := openTiny(t, name, nil), sharedPrompts(t)
		got, err := Shared{m}.LogProbs(groups)
		if err != nil {
			t.Fatal(err)
		}
		for i := range groups {
			want, err := m.LogProbs(groups[i : i+1])
			if err != nil {
				t.Fatal(err)
			}
			for j := range want[0] {
				for k, w := range want[0][j] {
					if !(math.Abs(got[i][j][k]-w) < 2e-5) { // float32 rounding of sums of other lengths
						t.Errorf("%s: prompt %d, completion %d, token %d: %v, want %v", name, i, j, k, got[i][j][k], w)
					}
				}
			}
		}
	}
}

// TestSharedVideos: equal frames at another rate have other positions.
func TestSharedVideos(t *testing.T) {
	m, slow := openTiny(t, "tiny_tied", nil), prompt(t, "video")
	fast := *slow
	fast.Videos = slices.Clone(slow.Videos)
	fast.Videos[0].SecondsPerGrid *= 4
	groups := []Group{{Prompt: slow, Completions: [][]int64{{7, 8}}}, {Prompt: &fast, Completions: [][]int64{{7, 8}}}}
	got, err := Shared{m}.LogProbs(groups)
	if err != nil {
		t.Fatal(err)
	}
	want, err := m.LogProbs(groups)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		golden.Close(t, got[i][0], want[i][0], 2e-5)
	}
}

// TestSharedGenerate: greedy answers over shared prompts are those of the prompts alone.
func TestSharedGenerate(t *testing.T) {
	m, groups := openTiny(t, "tiny_tied", nil), sharedPrompts(t)
	var prompts []*processor.Prompt
	for _, g := range groups {
		prompts = append(prompts, g.Prompt)
	}
	opt := GenerateOptions{SamplingOptions: DefaultSampling()}
	opt.MaxNewTokens, opt.Temperature = 6, 0
	got, err := Shared{m}.Generate(prompts, opt)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range prompts {
		want, err := m.Generate([]*processor.Prompt{p}, 1, opt)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got[i].IDs, want[0][0].IDs) {
			t.Errorf("prompt %d: %v, want %v", i, got[i].IDs, want[0][0].IDs)
		}
	}
}

// TestSharedIsNotResident: on CUDA tokens.Generate would choose the Model's own decoding, with nothing shared.
func TestSharedIsNotResident(t *testing.T) {
	m := Shared{openTiny(t, "tiny_tied", nil)}.stepwise()
	if _, ok := m.(tokens.Resident[*processor.Prompt]); ok {
		t.Error("decodes on the device")
	}
	if _, ok := m.(tokens.Slotted[*processor.Prompt]); ok {
		t.Error("decodes in slots")
	}
}

// TestSharedComputesOnce: 8 sequences of 100 rows that have 80 in common are 80 + 8·20 rows, and pairs within that have more
// in common go together where that spares more.
func TestSharedComputesOnce(t *testing.T) {
	make := func(begin ...int64) sequence {
		s := sequence{answer: 2, symbols: slices.Repeat([]int64{1}, 80)}
		s.symbols = append(s.symbols, begin...)
		for len(s.symbols) < 100 {
			s.symbols = append(s.symbols, begin[0])
		}
		return s
	}
	rows := func(all []sequence) (n int) {
		for _, s := range all {
			n += len(s.symbols)
		}
		for _, t := range trunks(all) {
			n -= t.rows * (len(t.of) - 1)
		}
		return n
	}
	var all []sequence
	for i := range 8 {
		all = append(all, make(int64(2+i)))
	}
	if got := rows(all); got != 80+8*20 {
		t.Errorf("%d rows, want %d", got, 80+8*20)
	}
	twice := []sequence{make(7), make(8), make(7), make(8)}
	if got := rows(twice); got != 80+4*20 {
		t.Errorf("%d rows, want %d", got, 80+4*20)
	}
	far := []sequence{{symbols: []int64{1, 2, 3, 4}, answer: 1}, {symbols: []int64{9, 2, 3, 4}, answer: 1},
		{symbols: []int64{1, 2, 3, 5}, answer: 1}}
	if got := rows(far); got != 3+1+1+4 {
		t.Errorf("%d rows, want 9", got)
	}
}

// TestSharedFrees: nothing but remembered pictures stays.
func TestSharedFrees(t *testing.T) {
	m, groups := openTiny(t, "tiny_tied", nil), sharedPrompts(t)
	var before int
	for range 3 {
		if _, err := (Shared{m}).LogProbs(groups); err != nil {
			t.Fatal(err)
		}
		if before == 0 {
			before = torchx.Live()
		}
	}
	if after := torchx.Live(); after != before {
		t.Errorf("%d tensors live, want %d", after, before)
	}
}
