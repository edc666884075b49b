package tokens

import (
	"fmt"
	"math"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/rng"
	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
)

// GenerateOptions configures how completions are drawn. A nil list means the model's own, an empty one means none.
type GenerateOptions struct {
	SamplingOptions
	Constraints
	Seed    uint64
	Streams []int // [prompts] names of the prompts' random streams; nil = their positions

	EOS        []int64 // tokens that end a completion
	IgnoreEOS  bool    // go on to MaxNewTokens whatever is drawn
	First      []int64 // the first token is one of these; none = free
	Last       []int64 // token number MaxNewTokens is one of these; none = free
	Suppressed []int64 // tokens that are never drawn
	OnDevice   bool    // decode as on CUDA (Resident) where the device is another: for tests

	Ended func(prompt int, ids []int64) // hears of completions that end while others go on

	scored bool // keep the log-probability of every token at temperature 1
}

// Sequence is a completion in the making.
type Sequence struct {
	Index          int // in the list of all sequences, after which come those of idle rows
	Prompt, Sample int
	Slot, Place    int     // where the keys of its own tokens and of its prompt lie: Index and Prompt, but in slots
	Before         []int64 // what the repetition penalty counts beside IDs
	IDs            []int64

	born     int // in slots on the device, the step that drew its first token,
	row      int // and its row
	finished bool
	logp     float64   // of its tokens, where scored
	sampled  []float64 // of each token, the log-probability that it was drawn with; NaN = forced
	kept     []float64 // of each token that was drawn, what torchx.SampleTokens says of it
}

// Step returns the logits [len(live), V] that the next token of each sequence is drawn from.
type Step func(live []*Sequence) (torchx.Tensor, error)

// Generate draws n completions of each prompt; the prompt is computed once for all of them. An ended sequence leaves the
// batch, and in Slots the next one takes its place. Draws depend on (seed, stream of the prompt, sample, step) and the logits
// of the sequence alone, not on the rest of the batch.
func Generate[P any](m Model[P], prompts []P, n int, opt GenerateOptions) (out [][]Completion, err error) {
	defer torchx.Recover(&err)
	if opt.MaxNewTokens < 1 || n < 1 || len(prompts) == 0 {
		return nil, fmt.Errorf("generate: %d prompts, %d samples, max_new_tokens=%d: want at least 1 of each", len(prompts), n,
			opt.MaxNewTokens)
	}
	if opt.Streams != nil && len(opt.Streams) != len(prompts) {
		return nil, fmt.Errorf("generate: %d random streams for %d prompts", len(opt.Streams), len(prompts))
	}
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	var all []*Sequence
	for i := range prompts {
		for j := range n {
			all = append(all, &Sequence{Index: len(all), Prompt: i, Sample: j, Slot: len(all), Place: i})
		}
	}
	resident, onDevice := m.(Resident[P])
	slotted, inSlots := m.(Slotted[P])
	switch {
	case inSlots && opt.Slots != nil:
		err = generateInSlots(slotted, m.Tensors(), prompts, all, &opt)
	case onDevice && opt.resident(m.Tensors()):
		err = generateResident(resident, m.Tensors(), prompts, all, &opt)
	default:
		err = generateStepwise(m, prompts, all, &opt)
	}
	if err != nil {
		return nil, err
	}
	out = make([][]Completion, len(prompts))
	for _, s := range all {
		c := Completion{IDs: s.IDs, Finished: s.finished, LogP: s.logp, Sampled: s.sampled, Kept: 1}
		if len(s.kept) > 0 {
			c.Kept = stat.Mean(s.kept)
		}
		out[s.Prompt] = append(out[s.Prompt], c)
	}
	return out, nil
}

// generateStepwise draws the tokens of all sequences, choosing each on the host.
func generateStepwise[P any](m Model[P], prompts []P, all []*Sequence, opt *GenerateOptions) error {
	step, err := m.Begin(prompts, all, opt)
	if err != nil {
		return err
	}
	for live := all; len(live) > 0; {
		if live, err = m.Tensors().extend(live, opt, step); err != nil {
			return err
		}
	}
	return nil
}

// extend draws the next token of each live sequence and returns the sequences that go on.
func (w *Weights) extend(live []*Sequence, opt *GenerateOptions, step Step) (going []*Sequence, err error) {
	defer torchx.Scope()()
	logits, err := step(live)
	if err != nil {
		return nil, err
	}
	banned := func(s *Sequence) []int64 {
		if opt.forcedIDs(len(s.IDs)) != nil { // a forced token wins over all constraints
			return opt.Suppressed
		}
		return opt.banned(s, w.Vocab)
	}
	how := torchx.SampleOptions{Temperature: opt.Temperature, TopP: opt.TopP, TopK: opt.TopK, MinP: opt.MinP,
		RepetitionPenalty: opt.RepetitionPenalty}
	drawn, kept, logp := torchx.SampleTokens(w.forced(logits, live, opt), how, said(live, opt), list.Map(live, banned), uniforms(live, opt))
	if opt.scored {
		logp = torchx.Gather(torchx.LogSoftmax(logits.To(torchx.Float32), 1), 1, torchx.Reshape(w.Int64s(drawn), len(drawn), 1)).Floats()
	}
	for i, s := range live {
		if ended := s.append(drawn[i], opt, at(kept, i), at(logp, i)); !ended && len(s.IDs) < opt.MaxNewTokens {
			going = append(going, s)
		} else if opt.Ended != nil {
			opt.Ended(s.Prompt, s.IDs)
		}
	}
	return going, nil
}

// forced returns the logits with those of forced tokens in place of the model's.
func (w *Weights) forced(logits torchx.Tensor, live []*Sequence, opt *GenerateOptions) torchx.Tensor {
	var rows []int64
	var only []torchx.Tensor
	for i, s := range live {
		if ids := opt.forcedIDs(len(s.IDs)); ids != nil {
			rows, only = append(rows, int64(i)), append(only, w.OnDevice(uniformOver(1, w.Vocab, ids)))
		}
	}
	if rows == nil {
		return logits
	}
	return torchx.ReplaceRows(logits.To(torchx.Float32), w.Int64s(rows), torchx.Cat(0, only...))
}

// at returns entry k of x, NaN for a nil x.
func at(x []float64, k int) float64 {
	if x == nil {
		return math.NaN()
	}
	return x[k]
}

// forcedIDs returns the only ids that token number t may be; nil = any.
func (o *GenerateOptions) forcedIDs(t int) []int64 {
	switch {
	case t+1 == o.MaxNewTokens && len(o.Last) > 0:
		return o.Last
	case t == 0 && len(o.First) > 0:
		return o.First
	}
	return nil
}

// append adds the next token, which may be forced, and reports whether it ends the sequence. A forced last token leaves the sequence
// unfinished. kept and logp are the kept mass and the log-probability of the draw.
func (s *Sequence) append(id int64, o *GenerateOptions, kept, logp float64) (ended bool) {
	t := len(s.IDs)
	s.IDs = append(s.IDs, id)
	switch {
	case o.scored:
		s.logp += logp
	case o.Temperature == 0:
	case o.forcedIDs(t) != nil:
		s.sampled = append(s.sampled, math.NaN())
	default:
		s.sampled = append(s.sampled, logp)
		s.kept = append(s.kept, kept)
	}
	ended = !o.IgnoreEOS && slices.Contains(o.EOS, id)
	s.finished = ended && !(t+1 == o.MaxNewTokens && len(o.Last) > 0)
	return ended
}

// said returns the tokens that the repetition penalty counts; nil without a penalty.
func said(live []*Sequence, opt *GenerateOptions) [][]int64 {
	if opt.RepetitionPenalty == 0 || opt.RepetitionPenalty == 1 {
		return nil
	}
	return list.Map(live, func(s *Sequence) []int64 { return slices.Concat(s.Before, s.IDs) })
}

// uniformOver returns logits [rows, vocabulary] that make the given ids equally likely and all others impossible.
func uniformOver(rows, vocabulary int, ids []int64) torchx.Tensor {
	row := slices.Repeat([]float32{float32(math.Inf(-1))}, vocabulary)
	for _, id := range ids {
		row[id] = 0
	}
	return torchx.Contiguous(torchx.Expand(torchx.From(row, 1, vocabulary), rows, vocabulary))
}

// uniforms returns the number in [0, 1) that each sequence's next token is drawn with; nil = greedy.
func uniforms(live []*Sequence, opt *GenerateOptions) []float64 {
	if opt.Temperature == 0 {
		return nil
	}
	return list.Map(live, func(s *Sequence) float64 { return opt.uniform(s, len(s.IDs)) })
}

// uniform returns the number that token number t of a sequence is drawn with.
func (o *GenerateOptions) uniform(s *Sequence, t int) float64 {
	stream := s.Prompt
	if o.Streams != nil {
		stream = o.Streams[s.Prompt]
	}
	return rng.New(int64(o.Seed), "token", stream, s.Sample, t).Float64()
}

// SamplingOptions says how tokens are drawn. Anything but the defaults draws from another distribution than the one
// that is trained, so ratios are off by as much.
type SamplingOptions struct {
	// longest completion, in tokens
	MaxNewTokens int     `koanf:"max_new_tokens" range:"[1,inf)" also:"max_completion_length,max_tokens,max_length,response_length"`
	Temperature  float64 `koanf:"-"` // of the draw; 0 = greedy. Rollouts have grpo.sample_temperature and rce.sample_temperature
	// draw from the fewest tokens with this probability; 1 = all
	TopP float64 `koanf:"top_p" range:"(0,1]"`
	// draw from this many likeliest tokens; 0 = all
	TopK int `koanf:"top_k" range:"[0,inf)"`
	// divides positive and multiplies negative logits of tokens seen before (vl: in the prompt too); 1 = none
	RepetitionPenalty float64 `koanf:"repetition_penalty" range:"(0,inf)"`
	// completions in work at a time: bounds memory; null = all
	Slots *int `koanf:"slots" range:"[1,inf)" also:"max_num_seqs"`
	// attention of decoding on CUDA; fast = sums in another order than training's: for grpo.correction (vl)
	Kernel string `koanf:"kernel" enum:"exact,fast"`
}

// DefaultSampling draws completions of at most n tokens from the policy itself.
func DefaultSampling(n int) SamplingOptions {
	return SamplingOptions{MaxNewTokens: n, Temperature: 1, TopP: 1, RepetitionPenalty: 1, Kernel: "exact"}
}
