package vl

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"

	"fulcrum/internal/rng"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl/processor"
)

// greedy are the options of the fixtures' runs: Hugging Face suppresses no placeholder.
func greedy() GenerateOptions {
	return GenerateOptions{SamplingOptions: tokens.SamplingOptions{MaxNewTokens: 16, TopP: 1, RepetitionPenalty: 1}, IgnoreEOS: true,
		Suppressed: []int64{}}
}

type generationCase struct {
	NewIDs  []int64 `json:"new_ids"`
	Penalty []int64 `json:"new_ids_repetition_penalty_1.05"`
	EOS     []int64 `json:"eos_token_id"`
}

func generationCases(t *testing.T) map[string]generationCase {
	t.Helper()
	var raw struct {
		Generation map[string]json.RawMessage `json:"generation"`
	}
	golden.JSON(t, golden.Shared(t, "qwen2_5_vl", "expected.json"), &raw)
	out := map[string]generationCase{}
	for name, text := range raw.Generation {
		var c generationCase
		if json.Unmarshal(text, &c) == nil { // the left-padded batch has lists of lists
			out[name] = c
		}
	}
	return out
}

// TestGreedyIDs: the tokens of Hugging Face's greedy runs, with and without cache, with and without repetition penalty.
func TestGreedyIDs(t *testing.T) {
	cases := generationCases(t)
	for model, prompts := range map[string][]string{
		"tiny_tied":        {"text", "one_image", "two_images", "big_image", "video", "image_and_video"},
		"tiny_untied_bf16": {"text", "two_images", "video"},
	} {
		m := openTiny(t, model, nil)
		for _, name := range prompts {
			c := cases[model+"."+name]
			for _, run := range []struct {
				kind    string
				penalty float64
				noCache bool
				want    []int64
			}{{"cached", 1, false, c.NewIDs}, {"uncached", 1, true, c.NewIDs}, {"penalty", 1.05, false, c.Penalty},
				{"penalty uncached", 1.05, true, c.Penalty}} {
				if run.want == nil {
					continue // the fixtures penalise only one model
				}
				t.Run(fmt.Sprintf("%s %s %s", model, name, run.kind), func(t *testing.T) {
					opt := greedy()
					opt.RepetitionPenalty = run.penalty
					out, err := tokens.Generate(uncachedOr(m, run.noCache), []*processor.Prompt{prompt(t, name)}, 1, opt)
					if err != nil {
						t.Fatal(err)
					}
					if got := out[0][0].IDs; !slices.Equal(got, run.want) {
						t.Errorf("got %v, want %v", got, run.want)
					}
				})
			}
		}
	}
}

// TestStepLogits compares what each token was chosen from.
func TestStepLogits(t *testing.T) {
	want := fixture(t, "generation")
	m := openTiny(t, "tiny_tied", nil)
	for _, name := range []string{"text", "one_image", "two_images", "big_image", "video", "image_and_video"} {
		t.Run(name, func(t *testing.T) {
			opt := greedy()
			var got []float64
			seen := stepwise{m, m, false, func(logits torchx.Tensor) { got = append(got, logits.Floats()...) }}
			if _, err := tokens.Generate(seen, []*processor.Prompt{prompt(t, name)}, 1, opt); err != nil {
				t.Fatal(err)
			}
			logits, _ := floats(t, want, name+".step_logits")
			golden.Close(t, got, logits, 1e-4)
		})
	}
}

// TestStop: generation ends with the end token, which the completion keeps.
func TestStop(t *testing.T) {
	c := generationCases(t)["stop_case"]
	m := openTiny(t, "tiny_tied", nil)
	for _, noCache := range []bool{false, true} {
		opt := greedy()
		opt.IgnoreEOS, opt.EOS = false, c.EOS
		out, err := tokens.Generate(uncachedOr(m, noCache), []*processor.Prompt{prompt(t, "text")}, 1, opt)
		if err != nil {
			t.Fatal(err)
		}
		if got := out[0][0]; !slices.Equal(got.IDs, c.NewIDs) || !got.Finished {
			t.Errorf("noCache=%v: got %+v, want %v and finished", noCache, got, c.NewIDs)
		}
	}
}

// TestBatchIDs: prompts answered together give Hugging Face's left-padded batch, also when one of them ends early.
func TestBatchIDs(t *testing.T) {
	cases := generationCases(t)
	m := openTiny(t, "tiny_tied", nil)
	prompts := []*processor.Prompt{prompt(t, "text"), prompt(t, "one_image")}
	want := [][]int64{cases["tiny_tied.text"].NewIDs, cases["tiny_tied.one_image"].NewIDs}
	for _, noCache := range []bool{false, true} {
		opt, m := greedy(), uncachedOr(m, noCache)
		out, err := tokens.Generate(m, prompts, 2, opt)
		if err != nil {
			t.Fatal(err)
		}
		for i := range prompts {
			for j, c := range out[i] {
				if !slices.Equal(c.IDs, want[i]) || c.Finished {
					t.Errorf("noCache=%v prompt %d sample %d: got %v, want %v", noCache, i, j, c.IDs, want[i])
				}
			}
		}
		opt.IgnoreEOS, opt.EOS = false, []int64{538} // the sixth token of the first prompt, none of the second
		if out, err = tokens.Generate(m, prompts, 1, opt); err != nil {
			t.Fatal(err)
		}
		if got := out[0][0]; !slices.Equal(got.IDs, want[0][:6]) || !got.Finished {
			t.Errorf("noCache=%v: the prompt that ends early got %+v, want %v", noCache, got, want[0][:6])
		}
		if got := out[1][0]; !slices.Equal(got.IDs, want[1]) || got.Finished {
			t.Errorf("noCache=%v: the other prompt got %+v, want %v", noCache, got, want[1])
		}
	}
}

// TestSamplingDistributions draws often from one prompt's logits and compares frequencies with the distribution that Hugging
// Face's processors make: by χ², with the expected size of the fixtures' support.
func TestSamplingDistributions(t *testing.T) {
	arrays := fixture(t, "generation")
	logits, _ := floats(t, fixture(t, "logits"), "tiny_tied.one_image.logits")
	p := prompt(t, "one_image")
	const vocab, draws = 640, 6000
	last := make([]float32, vocab)
	for i := range last {
		last[i] = float32(logits[len(logits)-vocab+i])
	}
	for i, opt := range []torchx.SampleOptions{
		{Temperature: 0.9, TopP: 0.95, RepetitionPenalty: 1}, {Temperature: 0.7, TopK: 20, TopP: 0.8, RepetitionPenalty: 1},
		{Temperature: 1, TopK: 50, TopP: 0.9, RepetitionPenalty: 1.05}, {Temperature: 1.3, TopK: 5, TopP: 1, RepetitionPenalty: 1.2},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			defer torchx.Scope()()
			want, _ := floats(t, arrays, fmt.Sprintf("sampling.%d.probs", i))
			counts := make([]float64, vocab)
			const rows = 200
			batch := torchx.Contiguous(torchx.Expand(torchx.From(last, 1, vocab), rows, vocab))
			seen := slices.Repeat([][]int64{p.IDs}, rows)
			r := rng.New(1, "draws", i)
			for range draws / rows {
				u := make([]float64, rows)
				for k := range u {
					u[k] = r.Float64()
				}
				drawn, _, _ := torchx.SampleTokens(batch, opt, seen, nil, u)
				for _, id := range drawn {
					counts[id]++
				}
			}
			chi, kinds := 0.0, 0
			for id, n := range counts {
				expect := want[id] * draws
				if want[id] == 0 && n > 0 {
					t.Fatalf("token %d was drawn %v times, but is excluded", id, n)
				}
				if expect >= 5 {
					chi += (n - expect) * (n - expect) / expect
					kinds++
				}
			}
			if df := float64(kinds - 1); chi > df+5*math.Sqrt(2*df) { // five standard deviations of χ²
				t.Errorf("χ² = %.1f over %d tokens", chi, kinds)
			}
		})
	}
}

// TestDrawsDoNotDependOnTheBatch: a prompt's samples are the same alone, in company and in another order, and without cache.
func TestDrawsDoNotDependOnTheBatch(t *testing.T) {
	m := openTiny(t, "tiny_tied", nil)
	opt := GenerateOptions{SamplingOptions: DefaultSampling(), Seed: 7}
	opt.MaxNewTokens = 12
	text, image := prompt(t, "text"), prompt(t, "one_image")
	run := func(prompts []*processor.Prompt, n int, streams []int, noCache bool) [][]Completion {
		o := opt
		o.Streams = streams
		out, err := tokens.Generate(uncachedOr(m, noCache), prompts, n, o)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	want := run([]*processor.Prompt{text, image}, 4, []int{10, 11}, false)
	if same := fmt.Sprint(want[0][0]) == fmt.Sprint(want[0][1]); same {
		t.Error("two samples of a prompt are equal")
	}
	alone := run([]*processor.Prompt{image}, 2, []int{11}, false)
	swapped := run([]*processor.Prompt{image, text}, 4, []int{11, 10}, true)
	for j := range 4 {
		if j < 2 && !slices.Equal(alone[0][j].IDs, want[1][j].IDs) {
			t.Errorf("sample %d alone: got %v, want %v", j, alone[0][j].IDs, want[1][j].IDs)
		}
		if !slices.Equal(swapped[0][j].IDs, want[1][j].IDs) || !slices.Equal(swapped[1][j].IDs, want[0][j].IDs) {
			t.Errorf("sample %d without cache, in another order, differs", j)
		}
	}
}

// TestPlaceholdersAreNotDrawn: at a temperature that makes all tokens alike, placeholders are still never drawn.
func TestPlaceholdersAreNotDrawn(t *testing.T) {
	m := openTiny(t, "tiny_tied", nil)
	count := func(suppressed []int64) (pads int) {
		opt := GenerateOptions{SamplingOptions: tokens.SamplingOptions{MaxNewTokens: 64, Temperature: 1e4, TopP: 1, RepetitionPenalty: 1},
			Seed: 3, IgnoreEOS: true, Suppressed: suppressed}
		out, err := m.Generate([]*processor.Prompt{prompt(t, "text")}, 24, opt)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range out[0] {
			for _, id := range c.IDs {
				if id >= 611 && id <= 613 {
					pads++
				}
			}
		}
		return pads
	}
	if n := count(nil); n != 0 {
		t.Errorf("%d placeholders drawn", n)
	}
	if count([]int64{}) == 0 {
		t.Error("the test draws no placeholder even where they are allowed")
	}
}

// TestTheCachePays: 256 tokens with the cache take at most a fifth of the time without it, and are the same. The time is the
// processor's, so that other programs do not count.
func TestTheCachePays(t *testing.T) {
	m := openTiny(t, "tiny_tied", nil)
	ask := []*processor.Prompt{prompt(t, "big_image")}
	run := func(noCache bool) (ids []int64, seconds float64) {
		opt := greedy()
		opt.MaxNewTokens = 256
		begin := golden.ProcessorTime(t).Seconds()
		out, err := tokens.Generate(uncachedOr(m, noCache), ask, 1, opt)
		if err != nil {
			t.Fatal(err)
		}
		return out[0][0].IDs, golden.ProcessorTime(t).Seconds() - begin
	}
	run(false) // the picture is looked at once
	cached, fast := run(false)
	uncached, slow := run(true)
	for range 3 { // a garbage collection or a cold cache weighs on a tenth of a second
		_, again := run(false)
		fast = min(fast, again)
	}
	if !slices.Equal(cached, uncached) {
		t.Errorf("with cache %v\nwithout   %v", cached, uncached)
	}
	t.Logf("256 tokens: %.3f s with cache, %.3f s without (%.1f times)", fast, slow, slow/fast)
	if slow < 5*fast {
		t.Errorf("256 tokens take %.3f s with the cache and %.3f s without: want at least 5 times", fast, slow)
	}
}
