package seq2seq

import (
	"fmt"
	"slices"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
)

// greedy are the options of the fixtures' runs that force nothing.
func greedy(n int) GenerateOptions {
	return GenerateOptions{SamplingOptions: tokens.SamplingOptions{MaxNewTokens: n, TopP: 1}, IgnoreEOS: true, First: []int64{},
		Last: []int64{}}
}

// answers are generated ids as Hugging Face returns them: after the start token, filled up with pads.
func answers(m *Model, out [][]Completion, width int, pad int64) [][]int64 {
	var all [][]int64
	for _, group := range out {
		for _, c := range group {
			ids := append([]int64{m.generation.Start}, c.IDs...)
			for len(ids) < width {
				ids = append(ids, pad)
			}
			all = append(all, ids)
		}
	}
	return all
}

// TestGreedyIDs: the tokens of Hugging Face's greedy runs of a batch, with and without cache, free, stopped by an end
// token, and with forced first and last tokens; and of each row alone.
func TestGreedyIDs(t *testing.T) {
	each(t, func(t *testing.T, model string) {
		m, e := openTiny(t, model, nil), expectations(t, model).Generation
		sources := unpadded(t, fixture(t, model+".forward"))
		for _, noCache := range []bool{false, true} {
			for _, run := range []struct {
				name string
				c    generationCase
				opt  func(*GenerateOptions)
			}{
				{"free", e.Ignored, func(*GenerateOptions) {}},
				{"stop", e.Stop, func(o *GenerateOptions) { o.IgnoreEOS, o.EOS = false, []int64{e.Stop.EOS} }},
				{"end token", e.RealEOS, func(o *GenerateOptions) { o.IgnoreEOS = false }},
				{"forced", e.Forced, func(o *GenerateOptions) { o.IgnoreEOS, o.First, o.Last = false, nil, nil }}, // the folder's own
			} {
				if run.c.IDs == nil {
					continue // not for this kind of model
				}
				t.Run(fmt.Sprintf("%s noCache=%v", run.name, noCache), func(t *testing.T) {
					opt := greedy(len(run.c.IDs[0]) - 1)
					run.opt(&opt)
					from := uncachedOr(m, noCache)
					out, err := tokens.Generate(from, sources, 1, opt)
					if err != nil {
						t.Fatal(err)
					}
					for i, got := range answers(m, out, len(run.c.IDs[0]), run.c.Pad) {
						if !slices.Equal(got, run.c.IDs[i]) {
							t.Errorf("row %d: got %v, want %v", i, got, run.c.IDs[i])
						}
					}
					for i := range sources {
						alone, err := tokens.Generate(from, sources[i:i+1], 2, opt)
						if err != nil {
							t.Fatal(err)
						}
						for j := range 2 {
							if !slices.Equal(alone[0][j].IDs, out[i][0].IDs) {
								t.Errorf("row %d alone, sample %d: got %v, want %v", i, j, alone[0][j].IDs, out[i][0].IDs)
							}
						}
					}
				})
			}
		}
	})
}

// TestFinished: an end token that was drawn finishes a completion, a forced one does not.
func TestFinished(t *testing.T) {
	m := openTiny(t, "tiny_bart", nil)
	e := expectations(t, "tiny_bart").Generation
	sources := unpadded(t, fixture(t, "tiny_bart.forward"))
	opt := greedy(e.Forced.MaxLength - 1)
	opt.IgnoreEOS, opt.First, opt.Last = false, nil, nil
	out, err := m.Generate(sources, 1, opt)
	if err != nil {
		t.Fatal(err)
	}
	if c := out[0][0]; c.Finished || c.IDs[len(c.IDs)-1] != 2 {
		t.Errorf("forced: got %+v", c)
	}
	opt = greedy(20)
	opt.IgnoreEOS, opt.EOS = false, []int64{e.Stop.EOS}
	if out, err = m.Generate(sources, 1, opt); err != nil {
		t.Fatal(err)
	}
	if !out[0][0].Finished || !out[1][0].Finished || out[2][0].Finished {
		t.Errorf("stopped: got %+v", out)
	}
}

// TestStepLogits compares what each token was chosen from.
func TestStepLogits(t *testing.T) {
	each(t, func(t *testing.T, model string) {
		m := openTiny(t, model, nil)
		want, shape := floats(t, fixture(t, model+".generation"), "greedy_ignore_eos.step_logits")
		steps, vocab := shape[1], shape[2]
		for _, noCache := range []bool{false, true} {
			opt := greedy(steps)
			seen := stepwise{m, m, noCache, func(step int, logits torchx.Tensor) {
				got := logits.Floats()
				for row := range shape[0] {
					at := (row*steps + step) * vocab
					golden.Close(t, got[row*vocab:(row+1)*vocab], want[at:at+vocab], 1e-4)
				}
			}}
			if _, err := tokens.Generate(seen, unpadded(t, fixture(t, model+".forward")), 1, opt); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestSamplingDistributions: a token is drawn exactly where its share of the cumulative distribution lies that Hugging
// Face's processors make, to 1e-5, and an excluded one nowhere.
func TestSamplingDistributions(t *testing.T) {
	each(t, func(t *testing.T, model string) {
		f, e := fixture(t, model+".generation"), expectations(t, model).Generation.Sampling
		m := openTiny(t, model, nil)
		defer torchx.Scope()()
		logits, _ := floats(t, f, "sampling.logits")
		in := &packed{sources: &rows{side: "encoder"}, completions: &rows{side: "decoder"}}
		source := unpadded(t, fixture(t, model+".forward"))[e.Row]
		in.sources.add(source, false)
		in.completions.add(e.Decoder, true)
		in.completions.cross = []torchx.Span{{QLen: len(e.Decoder), OwnLen: len(source)}}
		all := m.Logits(m.scaled(m.run(in.completions, m.run(in.sources, torchx.Tensor{}, &lora.Pass{}), &lora.Pass{})))
		golden.Close(t, torchx.Narrow(all, 0, len(e.Decoder)-1, 1).Floats(), logits, 1e-4)
		for i, c := range e.Settings {
			want, _ := floats(t, f, name("sampling.%d.probs", i))
			opt := torchx.SampleOptions{Temperature: c.Temperature, TopP: c.TopP}
			if c.TopK != nil {
				opt.TopK = *c.TopK
			}
			var u []float64
			var expect []int64
			sum, kept := 0.0, 0
			for id, p := range want {
				if p > 0 {
					kept++
				}
				if p > 3e-5 {
					u, expect = append(u, sum+1e-5, sum+p/2, sum+p-1e-5), append(expect, int64(id), int64(id), int64(id))
				}
				sum += p
			}
			if kept != c.Kept {
				t.Fatalf("case %d: the fixture keeps %d tokens, says %d", i, kept, c.Kept)
			}
			got, _, _ := torchx.SampleTokens(torchx.Contiguous(torchx.Expand(torchx.From(narrow(logits), 1, len(logits)), len(u),
				len(logits))), opt, nil, nil, u)
			if !slices.Equal(got, expect) {
				t.Errorf("case %d: draws differ from the distribution", i)
			}
		}
	})
}

// TestDrawsDoNotDependOnTheBatch: a source's samples are the same alone, in company, in another order, without cache, and
// with other samples ending before them.
func TestDrawsDoNotDependOnTheBatch(t *testing.T) {
	each(t, func(t *testing.T, model string) {
		m := openTiny(t, model, nil)
		sources := unpadded(t, fixture(t, model+".forward"))
		run := func(order []int, n int, noCache bool) map[int][]Completion {
			var texts [][]int64
			for _, i := range order {
				texts = append(texts, sources[i])
			}
			opt := GenerateOptions{SamplingOptions: DefaultSampling(), Seed: 7, Streams: order}
			opt.MaxNewTokens, opt.TopP = 14, 0.95
			opt.EOS = m.EOS()
			for id := int64(100); id < 200; id++ { // samples end at different steps
				opt.EOS = append(opt.EOS, id)
			}
			out, err := tokens.Generate(uncachedOr(m, noCache), texts, n, opt)
			if err != nil {
				t.Fatal(err)
			}
			byRow := map[int][]Completion{}
			for k, i := range order {
				byRow[i] = out[k]
			}
			return byRow
		}
		want := run([]int{0, 1, 2}, 5, false)
		lengths := map[int]bool{}
		for _, c := range append(want[0], append(want[1], want[2]...)...) {
			lengths[len(c.IDs)] = true
		}
		if len(lengths) < 3 {
			t.Errorf("completions of %d lengths: the test needs several", len(lengths))
		}
		for _, other := range []map[int][]Completion{run([]int{2, 0, 1}, 5, false), run([]int{1, 2, 0}, 5, true), run([]int{1}, 3, false),
			run([]int{0, 2}, 2, false)} {
			for i, group := range other {
				for j, c := range group {
					if !slices.Equal(c.IDs, want[i][j].IDs) || c.Finished != want[i][j].Finished {
						t.Errorf("source %d, sample %d: got %v, want %v", i, j, c.IDs, want[i][j].IDs)
					}
				}
			}
		}
	})
}

// TestRefusedGeneration names what cannot be generated from.
func TestRefusedGeneration(t *testing.T) {
	m := openTiny(t, "tiny_bart", nil)
	long := slices.Repeat([]int64{5}, 129)
	for _, tc := range []struct {
		sources [][]int64
		tokens  int
		want    string
	}{
		{[][]int64{{5, 2}, {}}, 4, "source 1: the source is empty"},
		{[][]int64{{5, 521}}, 4, "source 0: token 1 of the source has id 521, want 0 … 520"},
		{[][]int64{long}, 4, "the source has 129 tokens, but the model only 128 positions"},
		{[][]int64{{5, 2}}, 129, "max_new_tokens=129, but the model has 128 positions"},
		{nil, 4, "0 prompts"},
	} {
		_, err := m.Generate(tc.sources, 1, greedy(tc.tokens))
		if err == nil || !contains(err, tc.want) {
			t.Errorf("got %v, want %s", err, tc.want)
		}
	}
	if _, err := m.LogProbs([]Group{{Prompt: []int64{5, 2}, Completions: [][]int64{{0, -100}}}}); err == nil ||
		!contains(err, "completion 0: token 1 of the completion has id -100") {
		t.Errorf("a padded target: got %v", err)
	}
}
