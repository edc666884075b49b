package seq2seq

import (
	"fmt"
	"math"
	"slices"

	"fulcrum/internal/rng"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
)

// GenerateOptions says how completions are drawn.
type GenerateOptions struct {
	SamplingOptions
	Seed    uint64
	Streams []int // [sources] names of the sources' random streams; nil = their positions

	EOS       []int64 // tokens that end a completion; nil = the model's
	IgnoreEOS bool    // go on to MaxNewTokens whatever is drawn
	ForcedBOS []int64 // the first token is one of these; nil = the model's, empty = free
	ForcedEOS []int64 // token number MaxNewTokens is one of these; nil = the model's, empty = free
	NoCache   bool    // compute everything again for each token: for tests of the cache

	scored bool // keep the log-probability of every token at temperature 1

	observe func(step int, logits torchx.Tensor) // tests look at what tokens were drawn from, before forced ones
}

// Completion is what a source was answered with, without the start token.
type Completion = tokens.Completion

// sequence is a completion in the making.
type sequence struct {
	source, sample int
	ids            []int64
	finished       bool
	logp           float64 // of its tokens, where scored
	kept           tokens.Kept
}

// Generate draws n completions of each source, which is encoded once. A sequence that has ended leaves the batch. Draws
// depend on (seed, stream of the source, sample, step) and on the logits of the sequence alone, whatever else is in the
// batch.
func (m *Model) Generate(sources [][]int64, n int, opt GenerateOptions) (out [][]Completion, err error) {
	defer torchx.Recover(&err)
	if err := m.canGenerate(sources, n, &opt); err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	var all []*sequence
	for i := range sources {
		for j := range n {
			all = append(all, &sequence{source: i, sample: j})
		}
	}
	step := func(live []*sequence) torchx.Tensor { return m.uncached(sources, live) }
	if !opt.NoCache {
		step = m.prefill(sources, all, opt.MaxNewTokens).step
	}
	live := slices.Clone(all)
	for t := 0; t < opt.MaxNewTokens && len(live) > 0; t++ {
		live = m.extend(live, t, &opt, step)
	}
	out = make([][]Completion, len(sources))
	for _, s := range all {
		out[s.source] = append(out[s.source], Completion{IDs: s.ids, Finished: s.finished, LogP: s.logp, Kept: s.kept.Mean()})
	}
	return out, nil
}

// canGenerate fills the options' defaults and refuses what cannot be done.
func (m *Model) canGenerate(sources [][]int64, n int, opt *GenerateOptions) error {
	if opt.MaxNewTokens < 1 || n < 1 || len(sources) == 0 {
		return fmt.Errorf("%d sources, %d samples, max_new_tokens=%d: want at least 1 of each", len(sources), n, opt.MaxNewTokens)
	}
	if opt.Streams != nil && len(opt.Streams) != len(sources) {
		return fmt.Errorf("%d random streams for %d sources", len(opt.Streams), len(sources))
	}
	if p := m.cfg.Positions; p > 0 && opt.MaxNewTokens > p {
		return fmt.Errorf("max_new_tokens=%d, but the model has %d positions", opt.MaxNewTokens, p)
	}
	for i, ids := range sources {
		if err := m.fits(ids, "source"); err != nil {
			return fmt.Errorf("source %d: %w", i, err)
		}
	}
	for _, list := range []struct{ of, model *[]int64 }{{&opt.EOS, &m.generation.EOS}, {&opt.ForcedBOS, &m.generation.ForcedBOS}, {&opt.ForcedEOS, &m.generation.ForcedEOS}} {
		if *list.of == nil {
			*list.of = *list.model
		}
		for _, id := range *list.of {
			if id < 0 || id >= int64(m.cfg.Vocab) {
				return fmt.Errorf("token id %d, want 0 … %d", id, m.cfg.Vocab-1)
			}
		}
	}
	return nil
}

// stepper returns the logits [len(live), V] that the next token of each sequence is drawn from.
type stepper func(live []*sequence) torchx.Tensor

// extend draws the next token of each live sequence and returns those that go on.
func (m *Model) extend(live []*sequence, t int, opt *GenerateOptions, step stepper) []*sequence {
	defer torchx.Scope()()
	logits := step(live)
	if opt.observe != nil {
		opt.observe(t, logits)
	}
	last := t+1 == opt.MaxNewTokens && len(opt.ForcedEOS) > 0
	drawnFrom, free := logits, true
	switch {
	case last:
		free = false
		drawnFrom = forced(len(live), m.cfg.Vocab, opt.ForcedEOS)
	case t == 0 && len(opt.ForcedBOS) > 0:
		free = false
		drawnFrom = forced(len(live), m.cfg.Vocab, opt.ForcedBOS)
	}
	drawn, kept := torchx.SampleTokens(drawnFrom, torchx.SampleOptions{Temperature: opt.Temperature, TopP: opt.TopP, TopK: opt.TopK, RepetitionPenalty: opt.RepetitionPenalty},
		m.said(live, opt), nil, uniforms(live, t, opt))
	if opt.scored {
		logp := torchx.Gather(torchx.LogSoftmax(logits.To(torchx.Float32), 1), 1, torchx.Reshape(m.int64s(drawn), len(drawn), 1)).Floats()
		for i, s := range live {
			s.logp += logp[i]
		}
	}
	var going []*sequence
	for i, s := range live {
		s.ids = append(s.ids, drawn[i])
		if free {
			s.kept.Add(kept, i)
		}
		ended := !opt.IgnoreEOS && slices.Contains(opt.EOS, drawn[i])
		s.finished = ended && !last
		if !ended {
			going = append(going, s)
		}
	}
	return going
}

// said are the decoder's inputs so far, where the repetition penalty asks for them.
func (m *Model) said(live []*sequence, opt *GenerateOptions) [][]int64 {
	if opt.RepetitionPenalty == 0 || opt.RepetitionPenalty == 1 {
		return nil
	}
	out := make([][]int64, len(live))
	for i, s := range live {
		out[i] = append([]int64{m.generation.Start}, s.ids...)
	}
	return out
}

// forced returns logits [rows, vocabulary] that leave only some ids, all alike.
func forced(rows, vocabulary int, ids []int64) torchx.Tensor {
	row := make([]float32, vocabulary)
	for i := range row {
		row[i] = float32(math.Inf(-1))
	}
	for _, id := range ids {
		row[id] = 0
	}
	return torchx.Contiguous(torchx.Expand(torchx.From(row, 1, vocabulary), rows, vocabulary))
}

// uniforms returns the number in [0, 1) that each sequence's token is drawn with; nil = greedy.
func uniforms(live []*sequence, t int, opt *GenerateOptions) []float64 {
	if opt.Temperature == 0 {
		return nil
	}
	u := make([]float64, len(live))
	for i, s := range live {
		stream := s.source
		if opt.Streams != nil {
			stream = opt.Streams[s.source]
		}
		u[i] = rng.New(int64(opt.Seed), "token", stream, s.sample, t).Float64()
	}
	return u
}

// uncached computes sources and completions from the start.
func (m *Model) uncached(sources [][]int64, live []*sequence) torchx.Tensor {
	in := &packed{sources: &rows{side: "encoder"}, completions: &rows{side: "decoder"}}
	dec := in.completions
	var last []int64
	for _, s := range live {
		source := in.sources.add(sources[s.source], false)
		first := dec.add(append([]int64{m.generation.Start}, s.ids...), true)
		dec.cross = append(dec.cross, torchx.Span{Q: first, QLen: len(s.ids) + 1, Own: source, OwnLen: len(sources[s.source])})
		last = append(last, int64(len(dec.ids)-1))
	}
	hidden := m.run(dec, m.run(in.sources, torchx.Tensor{}, &lora.Pass{}), &lora.Pass{})
	return m.logits(m.scaled(torchx.IndexSelect(hidden, 0, m.int64s(last))))
}

// cache holds keys and values: of the sources, computed once, and of the sequences' tokens so far, room for max each.
type cache struct {
	k, v           []torchx.Tensor // a layer each: [sequences·max, H, D]
	crossK, crossV []torchx.Tensor // a layer each: [source rows, H, D]
	at             torchx.Tensor   // [sequences] int64: where the keys and values of this step go
	bias           *bias           // T5: of the distances that fit in max
	max            int
}

// store keeps the keys and values of layer i and returns all of them.
func (c *cache) store(i int, k, v torchx.Tensor) (allK, allV torchx.Tensor) {
	torchx.WriteRowsAt(c.k[i], c.at, k)
	torchx.WriteRowsAt(c.v[i], c.at, v)
	return c.k[i], c.v[i]
}

// decoding is generation with a cache.
type decoding struct {
	m       *Model
	cache   *cache
	sources []torchx.Span // the rows of each source, as Own
	kept    []*sequence   // whose keys and values the cache holds, in order
}

// prefillRows bounds the rows of one forward pass over sources: activations, not the cache, grow with it.
const prefillRows = 8192

// prefill encodes the sources and makes room for the sequences.
func (m *Model) prefill(sources [][]int64, all []*sequence, maxNew int) *decoding {
	d := &decoding{m: m, cache: &cache{max: maxNew}, kept: slices.Clone(all)}
	heads, dim := m.cfg.Decoder.Heads, m.cfg.Decoder.HeadDim
	row := 0
	for _, ids := range sources {
		d.sources = append(d.sources, torchx.Span{Own: row, OwnLen: len(ids)})
		row += len(ids)
	}
	layers := m.cfg.Decoder.Layers
	keys := make([][]torchx.Tensor, 2*layers)
	for from := 0; from < len(sources); {
		in, longest := &rows{side: "encoder"}, 0
		to := from
		for ; to < len(sources); to++ {
			longest = max(longest, len(sources[to]))
			if to > from && (to+1-from)*longest > prefillRows {
				break
			}
			in.add(sources[to], false)
		}
		from = to
		for i, t := range m.crossKeys(in) {
			keys[i] = append(keys[i], t)
		}
	}
	c := d.cache
	for i := range layers {
		c.crossK, c.crossV = append(c.crossK, joined(keys[2*i])), append(c.crossV, joined(keys[2*i+1]))
		c.k = append(c.k, torchx.FullLike(m.params.Flat(), 0, m.dtype, len(all)*maxNew, heads, dim))
		c.v = append(c.v, torchx.FullLike(m.params.Flat(), 0, m.dtype, len(all)*maxNew, heads, dim))
	}
	if t, ok := m.net.(*t5); ok {
		c.bias = t.distanceBias("decoder", maxNew)
	}
	return d
}

// crossKeys encodes some sources and returns the keys and values that each layer of the decoder reads: two a layer.
func (m *Model) crossKeys(in *rows) (out []torchx.Tensor) {
	defer torchx.Scope()()
	memory := m.run(in, torchx.Tensor{}, &lora.Pass{})
	for i := range m.cfg.Decoder.Layers {
		a := m.net.cross(i)
		out = append(out, torchx.Keep(m.split(a, &a.k, memory, &lora.Pass{})), torchx.Keep(m.split(a, &a.v, memory, &lora.Pass{})))
	}
	return out
}

// joined is the rows of several tensors, which it lets go of.
func joined(parts []torchx.Tensor) torchx.Tensor {
	if len(parts) == 1 {
		return parts[0]
	}
	all := torchx.Cat(0, parts...)
	for _, x := range parts {
		x.Free()
	}
	return all
}

// step computes the logits of the live sequences' next tokens, each from its last one and the cache.
func (d *decoding) step(live []*sequence) torchx.Tensor {
	d.keep(live)
	m, c := d.m, d.cache
	t := len(live[0].ids) // all are equally long
	in := &rows{side: "decoder", cache: c}
	at := make([]int64, len(live))
	for i, s := range live {
		last := m.generation.Start
		if t > 0 {
			last = s.ids[t-1]
		}
		at[i] = int64(i*c.max + t)
		in.ids, in.at = append(in.ids, last), append(in.at, int64(t))
		in.self = append(in.self, torchx.Span{Q: i, QLen: 1, Own: i * c.max, OwnLen: t + 1, Causal: true})
		source := d.sources[s.source]
		source.Q, source.QLen = i, 1
		in.cross = append(in.cross, source)
	}
	c.at = m.int64s(at)
	return m.logits(m.scaled(m.run(in, torchx.Tensor{}, &lora.Pass{})))
}

// keep drops the keys and values of sequences that have ended.
func (d *decoding) keep(live []*sequence) {
	if len(live) == len(d.kept) {
		return
	}
	var from []int64
	for i, s := range d.kept {
		if len(from) < len(live) && s == live[len(from)] {
			from = append(from, int64(i))
		}
	}
	index, c := d.m.int64s(from), d.cache
	for _, list := range [][]torchx.Tensor{c.k, c.v} {
		for i, x := range list {
			shape := x.Shape()
			rows := torchx.IndexSelect(torchx.Reshape(x, len(d.kept), -1), 0, index)
			list[i] = torchx.Keep(torchx.Reshape(rows, -1, shape[1], shape[2])) // out of the step's scope
			x.Free()
		}
	}
	d.kept = slices.Clone(live)
}
