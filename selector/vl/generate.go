package vl

import (
	"fmt"
	"slices"

	"fulcrum/internal/rng"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl/processor"
)

// GenerateOptions says how completions are drawn.
type GenerateOptions struct {
	SamplingOptions
	Seed    uint64
	Streams []int // [prompts] names of the prompts' random streams; nil = their positions

	EOS               []int64 // tokens that end a completion; nil = the model's
	IgnoreEOS         bool    // go on to MaxNewTokens whatever is drawn
	AllowPlaceholders bool    // let image, video and vision pads be drawn, as Hugging Face does; they mean nothing in an answer
	NoCache           bool    // compute everything again for each token: for tests of the cache

	scored bool // keep the log-probability of every token at temperature 1

	observe func(step int, logits torchx.Tensor) // tests look at what tokens were drawn from
}

// Completion is what a prompt was answered with.
type Completion = tokens.Completion

// sequence is a completion in the making.
type sequence struct {
	prompt, sample int
	ids            []int64
	next           int     // position of its next token
	first          int     // its first row in the cache
	seen           []int64 // prompt and completion, where the repetition penalty asks for them
	finished       bool
	logp           float64 // of its tokens, where scored
	kept           tokens.Kept
}

// Generate draws n completions of each prompt. They share the prompt's keys and values, which are computed once. A
// sequence that has ended leaves the batch. Draws depend on (seed, stream of the prompt, sample, step) and on the logits
// of the sequence alone, whatever else is in the batch.
func (m *Model) Generate(prompts []*processor.Prompt, n int, opt GenerateOptions) (out [][]Completion, err error) {
	defer torchx.Recover(&err)
	if opt.MaxNewTokens < 1 || n < 1 || len(prompts) == 0 {
		return nil, fmt.Errorf("generate: %d prompts, %d samples, max_new_tokens=%d: want at least 1 of each", len(prompts), n, opt.MaxNewTokens)
	}
	if opt.Streams != nil && len(opt.Streams) != len(prompts) {
		return nil, fmt.Errorf("generate: %d random streams for %d prompts", len(opt.Streams), len(prompts))
	}
	if opt.EOS == nil {
		opt.EOS = m.EOS()
	}
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	all, step, err := m.begin(prompts, n, &opt)
	if err != nil {
		return nil, err
	}
	live := slices.Clone(all)
	for t := 0; ; t++ {
		if live, err = m.extend(live, t, &opt, step); err != nil {
			return nil, err
		}
		if len(live) == 0 || t+1 == opt.MaxNewTokens {
			break
		}
	}
	out = make([][]Completion, len(prompts))
	for _, s := range all {
		out[s.prompt] = append(out[s.prompt], Completion{IDs: s.ids, Finished: s.finished, LogP: s.logp, Kept: s.kept.Mean()})
	}
	return out, nil
}

// stepper returns the logits [len(live), V] that the next token of each sequence is drawn from.
type stepper func(live []*sequence) (torchx.Tensor, error)

// begin makes the sequences, prompt by prompt, and the function that computes their logits.
func (m *Model) begin(prompts []*processor.Prompt, n int, opt *GenerateOptions) ([]*sequence, stepper, error) {
	var all []*sequence
	for i, p := range prompts {
		for j := range n {
			s := &sequence{prompt: i, sample: j}
			if opt.RepetitionPenalty != 1 && opt.RepetitionPenalty != 0 {
				s.seen = slices.Clone(p.IDs)
			}
			all = append(all, s)
		}
	}
	if opt.NoCache {
		return all, func(live []*sequence) (torchx.Tensor, error) { return m.uncached(prompts, live) }, nil
	}
	c, err := m.prefill(prompts, all, opt.MaxNewTokens)
	if err != nil {
		return nil, nil, err
	}
	return all, c.step, nil
}

// extend draws the next token of each live sequence and returns those that go on.
func (m *Model) extend(live []*sequence, t int, opt *GenerateOptions, step stepper) ([]*sequence, error) {
	defer torchx.Scope()()
	logits, err := step(live)
	if err != nil {
		return nil, err
	}
	if opt.observe != nil {
		opt.observe(t, logits)
	}
	drawn, kept := torchx.SampleTokens(logits, torchx.SampleOptions{Temperature: opt.Temperature, TopP: opt.TopP, TopK: opt.TopK, RepetitionPenalty: opt.RepetitionPenalty},
		seenBy(live), m.suppressed(opt), uniforms(live, t, opt))
	if opt.scored {
		logp := torchx.Gather(torchx.LogSoftmax(logits.To(torchx.Float32), 1), 1, torchx.Reshape(m.int64s(drawn), len(drawn), 1)).Floats()
		for i, s := range live {
			s.logp += logp[i]
		}
	}
	var going []*sequence
	for i, s := range live {
		s.ids = append(s.ids, drawn[i])
		s.kept.Add(kept, i)
		if s.seen != nil {
			s.seen = append(s.seen, drawn[i])
		}
		if s.finished = !opt.IgnoreEOS && slices.Contains(opt.EOS, drawn[i]); !s.finished {
			going = append(going, s)
		}
	}
	return going, nil
}

func seenBy(live []*sequence) [][]int64 {
	if live[0].seen == nil {
		return nil
	}
	seen := make([][]int64, len(live))
	for i, s := range live {
		seen[i] = s.seen
	}
	return seen
}

// uniforms returns the number in [0, 1) that each sequence's token is drawn with; nil = greedy.
func uniforms(live []*sequence, t int, opt *GenerateOptions) []float64 {
	if opt.Temperature == 0 {
		return nil
	}
	u := make([]float64, len(live))
	for i, s := range live {
		stream := s.prompt
		if opt.Streams != nil {
			stream = opt.Streams[s.prompt]
		}
		u[i] = rng.New(int64(opt.Seed), "token", stream, s.sample, t).Float64()
	}
	return u
}

// suppressed lists the placeholders, which a model never wants to say and a prompt's pixels would be looked up for.
func (m *Model) suppressed(opt *GenerateOptions) []int64 {
	if opt.AllowPlaceholders || m.cfg.Vision == nil {
		return nil
	}
	var pads []int64
	for _, id := range []int64{m.cfg.ImageToken, m.cfg.VideoToken, m.cfg.VisionToken} {
		if id > 0 && id < int64(m.cfg.Vocab) {
			pads = append(pads, id)
		}
	}
	return pads
}

// uncached computes prompts and completions from the start.
func (m *Model) uncached(prompts []*processor.Prompt, live []*sequence) (torchx.Tensor, error) {
	groups := make([]Group, len(prompts))
	for i, p := range prompts {
		groups[i].Prompt = p
	}
	at := make([]int, len(live)) // of a sequence among the completions of its prompt
	for i, s := range live {
		at[i] = len(groups[s.prompt].Completions)
		groups[s.prompt].Completions = append(groups[s.prompt].Completions, s.ids)
	}
	in, err := m.pack(groups, true)
	if err != nil {
		return torchx.Tensor{}, err
	}
	m.fillMedia(in, &lora.Pass{})
	last := make([]int64, len(live))
	for i, s := range live {
		from := in.prompts[s.prompt]
		if len(s.ids) > 0 {
			from = in.answers[s.prompt][at[i]]
		}
		last[i] = int64(from.first + from.n - 1)
	}
	return m.logits(torchx.IndexSelect(m.forward(&in.rows, &lora.Pass{}), 0, m.int64s(last))), nil
}

// decoding is generation with a cache: rows of the prompts first, then MaxNewTokens rows for each sequence.
type decoding struct {
	m       *Model
	cache   *cache
	prompts []place       // rows of each prompt in the cache
	first   torchx.Tensor // [prompts, V] logits after the prompts
}

// prefillRows bounds the rows of one forward pass over prompts: activations, not the cache, grow with it.
const prefillRows = 8192

// prefill computes the prompts' keys and values and makes room for the sequences.
func (m *Model) prefill(prompts []*processor.Prompt, all []*sequence, maxNew int) (*decoding, error) {
	d := &decoding{m: m, cache: &cache{}}
	inputs := make([]*packed, len(prompts))
	total := 0
	for i, p := range prompts {
		in, err := m.pack([]Group{{Prompt: p}}, true)
		if err != nil {
			return nil, fmt.Errorf("prompt %d: %w", i, err)
		}
		inputs[i] = in
		d.prompts = append(d.prompts, place{total, len(in.ids), in.prompts[0].next})
		total += len(in.ids)
	}
	for i, s := range all {
		s.first, s.next = total+i*maxNew, d.prompts[s.prompt].next
	}
	total += len(all) * maxNew
	for range m.cfg.Layers {
		d.cache.k = append(d.cache.k, torchx.FullLike(m.params.Flat(), 0, m.dtype, total, m.cfg.KVHeads, m.cfg.HeadDim))
		d.cache.v = append(d.cache.v, torchx.FullLike(m.params.Flat(), 0, m.dtype, total, m.cfg.KVHeads, m.cfg.HeadDim))
	}
	var logits []torchx.Tensor
	for from := 0; from < len(prompts); {
		to, n := from+1, len(inputs[from].ids)
		for to < len(prompts) && n+len(inputs[to].ids) <= prefillRows {
			n += len(inputs[to].ids)
			to++
		}
		logits = append(logits, d.fill(inputs[from:to], d.prompts[from:to]))
		from = to
	}
	d.first = torchx.Cat(0, logits...)
	return d, nil
}

// fill runs some prompts through the decoder and returns the logits after each [prompts, V].
func (d *decoding) fill(inputs []*packed, places []place) torchx.Tensor {
	defer torchx.Scope()()
	in := &packed{}
	var at, last []int64
	for i, p := range inputs {
		row, to := len(in.ids), places[i].first
		for _, r := range p.mediaAt {
			in.mediaAt = append(in.mediaAt, int64(row)+r)
		}
		in.ids, in.places, in.pictures = append(in.ids, p.ids...), append(in.places, p.places...), append(in.pictures, p.pictures...)
		in.spans = append(in.spans, torchx.Span{Q: row, QLen: len(p.ids), Own: to, OwnLen: len(p.ids), Causal: true})
		for k := range p.ids {
			at = append(at, int64(to+k))
		}
		last = append(last, int64(row+len(p.ids)-1))
	}
	m := d.m
	m.fillMedia(in, &lora.Pass{})
	d.cache.at, in.cache = m.int64s(at), d.cache
	hidden := torchx.IndexSelect(m.forward(&in.rows, &lora.Pass{}), 0, m.int64s(last))
	return torchx.Keep(m.logits(hidden))
}

// step computes the logits of the live sequences' next tokens, each from its last one and the cache.
func (d *decoding) step(live []*sequence) (torchx.Tensor, error) {
	m := d.m
	if len(live[0].ids) == 0 {
		from := make([]int64, len(live))
		for i, s := range live {
			from[i] = int64(s.prompt)
		}
		return torchx.IndexSelect(d.first, 0, m.int64s(from)), nil
	}
	in := &rows{cache: d.cache}
	at := make([]int64, len(live))
	for i, s := range live {
		t := len(s.ids) - 1 // its place in the completion
		at[i] = int64(s.first + t)
		p := s.next + t
		in.ids, in.places = append(in.ids, s.ids[t]), append(in.places, position{p, p, p})
		prompt := d.prompts[s.prompt]
		in.spans = append(in.spans, torchx.Span{Q: i, QLen: 1, Prefix: prompt.first, PrefixLen: prompt.n, Own: s.first, OwnLen: t + 1, Causal: true})
	}
	d.cache.at = m.int64s(at)
	return m.logits(m.forward(in, &lora.Pass{})), nil
}
