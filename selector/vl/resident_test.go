package vl

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"fulcrum/internal/list"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl/processor"
)

// residentCase is one way to draw completions of prompts.
type residentCase struct {
	name    string
	prompts []string
	n       int
	opt     GenerateOptions
}

func residentCases() []residentCase {
	every := func(k int) (ids []int64) { // of the 640 ids of the fixtures' vocabulary
		for id := int64(0); id < 640; id += int64(k) {
			ids = append(ids, id)
		}
		return ids
	}
	sampled := func(change func(*GenerateOptions)) GenerateOptions {
		o := GenerateOptions{SamplingOptions: DefaultSampling(), Seed: 7}
		o.MaxNewTokens = 40
		change(&o)
		return o
	}
	all := []string{"text", "one_image", "image_and_video"}
	return []residentCase{
		{"greedy", all, 1, greedy()},
		{"greedy with a penalty and one end", all, 2, func() GenerateOptions {
			o := greedy()
			o.RepetitionPenalty, o.IgnoreEOS, o.EOS = 1.3, false, []int64{538}
			return o
		}()},
		{"sampled, never ending", all, 3, sampled(func(o *GenerateOptions) { o.IgnoreEOS = true })},
		{"ends here and there", all, 8, sampled(func(o *GenerateOptions) { o.EOS = every(20) })}, // half have ended after 16 tokens
		{"ends early", all, 8, sampled(func(o *GenerateOptions) { o.EOS = every(3) })},
		{"shaped", all, 4, sampled(func(o *GenerateOptions) {
			o.EOS, o.Temperature, o.TopK, o.TopP, o.RepetitionPenalty = every(30), 0.8, 60, 0.9, 1.2
		})},
		{"hot", []string{"text"}, 5, sampled(func(o *GenerateOptions) { o.EOS, o.Temperature = every(40), 3 })},
		{"forced", all, 2, sampled(func(o *GenerateOptions) { o.EOS, o.First, o.Last = every(25), []int64{70, 71}, []int64{602} })},
		{"one token", all, 2, sampled(func(o *GenerateOptions) { o.MaxNewTokens = 1 })},
	}
}

// TestResident: decoding with the state on the device draws what the host draws, with and without adapters.
func TestResident(t *testing.T) {
	adapter := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "adapters", "mid", "adapter_config.json"))
	for _, model := range []struct {
		name   string
		change func(*Options)
	}{{"tiny_tied", nil}, {"tiny_tied", func(o *Options) { o.Adapter = &adapter }}, {"tiny_untied_bf16", nil}} {
		m := openTiny(t, model.name, model.change)
		for _, c := range residentCases() {
			t.Run(model.name+" "+c.name, func(t *testing.T) {
				want := c.generate(t, m, false)
				sameCompletions(t, c.generate(t, m, true), want, 1e-4, 0)
			})
		}
	}
}

func (c residentCase) generate(t *testing.T, m *Model, onDevice bool) [][]Completion {
	t.Helper()
	prompts := make([]*processor.Prompt, len(c.prompts))
	for i, name := range c.prompts {
		prompts[i] = prompt(t, name)
	}
	opt := c.opt
	opt.OnDevice = onDevice
	told := make([][]string, len(prompts))
	opt.Ended = func(prompt int, ids []int64) { told[prompt] = append(told[prompt], fmt.Sprint(ids)) }
	out, err := m.Generate(prompts, c.n, opt)
	if err != nil {
		t.Fatal(err)
	}
	for i, group := range out {
		ended := list.Map(group, func(c Completion) string { return fmt.Sprint(c.IDs) })
		slices.Sort(ended)
		if slices.Sort(told[i]); !slices.Equal(told[i], ended) {
			t.Errorf("prompt %d: told of %v, completions are %v", i, told[i], ended)
		}
	}
	return out
}

// sameCompletions compares ids exactly, log-probabilities and shares within tolerance. So many sampled completions may part
// at a token that is the next or the last one by id.
func sameCompletions(t *testing.T, got, want [][]Completion, tolerance float64, borders int) {
	t.Helper()
	lengths := map[int]bool{}
	for i := range want {
		for j, w := range want[i] {
			g := got[i][j]
			lengths[len(w.IDs)] = true
			if at := parting(g.IDs, w.IDs); at >= 0 && w.Sampled != nil && borders > 0 && (g.IDs[at]-w.IDs[at])*(g.IDs[at]-w.IDs[at]) == 1 {
				t.Logf("prompt %d sample %d: token %d is %d instead of %d", i, j, at, g.IDs[at], w.IDs[at])
				borders--
				continue
			}
			if !slices.Equal(g.IDs, w.IDs) || g.Finished != w.Finished {
				t.Errorf("prompt %d sample %d: got %v finished=%v\nwant %v finished=%v", i, j, g.IDs, g.Finished, w.IDs, w.Finished)
				continue
			}
			if !(math.Abs(g.Kept-w.Kept) <= tolerance) {
				t.Errorf("prompt %d sample %d: kept %g, want %g", i, j, g.Kept, w.Kept)
			}
			if len(g.Sampled) != len(w.Sampled) {
				t.Errorf("prompt %d sample %d: %d log-probabilities, want %d", i, j, len(g.Sampled), len(w.Sampled))
				continue
			}
			for k, x := range w.Sampled {
				if y := g.Sampled[k]; math.IsNaN(x) != math.IsNaN(y) || math.Abs(x-y) > tolerance*math.Max(1, math.Abs(x)) {
					t.Errorf("prompt %d sample %d token %d: log-probability %g, want %g", i, j, k, y, x)
				}
			}
		}
	}
	t.Logf("%d lengths", len(lengths))
}

// parting returns where two texts first differ, -1 where one begins with the other.
func parting(a, b []int64) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// TestResidentFrees: a decoding on the device leaves no tensor behind.
func TestResidentFrees(t *testing.T) {
	m := openTiny(t, "tiny_tied", nil)
	c := residentCases()[5]
	c.generate(t, m, true) // the pictures' vectors stay
	before := torchx.Live()
	c.generate(t, m, true)
	if after := torchx.Live(); after != before {
		t.Errorf("%d tensors live, %d before", after, before)
	}
}

// TestResidentCopiesNothingForAToken: however many tokens are drawn on the device, as much is copied to it, and the host reads once.
func TestResidentCopiesNothingForAToken(t *testing.T) {
	m := openTiny(t, "tiny_tied", nil)
	var counted [2]torchx.Counts
	for i, tokens := range []int{5, 40} {
		c := residentCases()[2]
		c.opt.MaxNewTokens = tokens
		c.generate(t, m, true) // the pictures' vectors stay
		before := torchx.Counted()
		c.generate(t, m, true)
		counted[i] = torchx.Counted().Minus(before)
	}
	if a, b := counted[0], counted[1]; a.Uploads != b.Uploads || a.ReadBacks != 1 || b.ReadBacks != 1 {
		t.Errorf("5 tokens %+v, 40 tokens %+v: want the same uploads and one read-back", a, b)
	}
}

// TestResidentOnCUDA: recorded steps on CUDA draw in float32 what the CPU draws; in bfloat16 they say of every token what a
// forward pass says of it.
func TestResidentOnCUDA(t *testing.T) {
	if !torchx.CUDAAvailable() {
		t.Skip("this libtorch sees no CUDA device")
	}
	adapter := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "adapters", "mid", "adapter_config.json"))
	for _, adapted := range []bool{false, true} {
		open := func(device, dtype string) *Model {
			opt := DefaultOptions()
			path := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "tiny_tied", "config.json"))
			opt.Path, opt.DType, opt.LoRA.Enabled = &path, dtype, false
			if adapted {
				opt.Adapter = &adapter
			}
			m, err := Open(opt, device, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(m.Free)
			return m
		}
		host, device, low := open("cpu", "float32"), open("cuda:0", "float32"), open("cuda:0", "bfloat16")
		for _, c := range residentCases() {
			t.Run(fmt.Sprintf("adapted=%v %s", adapted, c.name), func(t *testing.T) {
				want := c.generate(t, host, false)
				// Other kernels round otherwise: a uniform at a token's border may give its neighbour, from where on texts part.
				sameCompletions(t, c.generate(t, device, false), want, 1e-3, 1)
				if c.opt.Temperature == 1 && c.opt.First == nil {
					gapOf(t, low, c, 0.02, 0.5) // logits of size 5, eight bits each: a few hundredths
				}
			})
		}
	}
}

// TestSampledLogProbs: what the host's sampler says of each token is what a forward pass says of it.
func TestSampledLogProbs(t *testing.T) {
	m := openTiny(t, "tiny_tied", nil)
	for _, c := range residentCases() {
		if c.opt.Temperature == 1 && c.opt.First == nil {
			gapOf(t, m, c, 3e-6, 3e-5) // float32, log-probabilities of -10
		}
	}
}

// gapOf compares the log-probabilities that tokens were drawn with with those of a forward pass over the same completions.
func gapOf(t *testing.T, m *Model, c residentCase, median, most float64) {
	t.Helper()
	var gaps []float64
	for i, answers := range c.generate(t, m, false) {
		g := Group{Prompt: prompt(t, c.prompts[i])}
		for _, a := range answers {
			g.Completions = append(g.Completions, a.IDs)
		}
		logp, err := tokens.LogProbs[*processor.Prompt](m, []Group{g})
		if err != nil {
			t.Fatal(err)
		}
		for j, a := range answers {
			for k, x := range a.Sampled {
				gaps = append(gaps, math.Abs(x-logp[0][j][k]))
			}
		}
	}
	slices.Sort(gaps)
	half, worst := gaps[len(gaps)/2], gaps[len(gaps)-1]
	t.Logf("%s: gap over %d tokens: median %.3g, largest %.3g nats", m.DType, len(gaps), half, worst)
	if half > median || worst > most {
		t.Errorf("log-probabilities are off by %g (median), %g (largest), want at most %g, %g", half, worst, median, most)
	}
}
