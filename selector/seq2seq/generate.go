package seq2seq

import (
	"fmt"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
)

// GenerateOptions says how completions are drawn.
type GenerateOptions = tokens.GenerateOptions

// Completion is what a source was answered with, without the start token.
type Completion = tokens.Completion

// Generate is tokens.Generate of this model.
func (m *Model) Generate(sources [][]int64, n int, opt GenerateOptions) ([][]Completion, error) {
	return tokens.Generate[[]int64](m, sources, n, opt)
}

func (m *Model) Begin(sources [][]int64, all []*tokens.Sequence, opt *GenerateOptions) (tokens.Step, error) {
	if err := m.settle(sources, all, opt); err != nil {
		return nil, err
	}
	return m.prefill(sources, len(all), opt.MaxNewTokens).step, nil
}

// settle fills what the options leave to the model and refuses what cannot be done.
func (m *Model) settle(sources [][]int64, all []*tokens.Sequence, opt *GenerateOptions) error {
	if p := m.cfg.Positions; p > 0 && opt.MaxNewTokens > p {
		return fmt.Errorf("generate: max_new_tokens=%d, but the model has %d positions", opt.MaxNewTokens, p)
	}
	for i, ids := range sources {
		if err := m.fits(ids, "source"); err != nil {
			return fmt.Errorf("generate: source %d: %w", i, err)
		}
	}
	for _, list := range []struct{ of, model *[]int64 }{{&opt.EOS, &m.generation.EOS}, {&opt.First, &m.generation.ForcedBOS},
		{&opt.Last, &m.generation.ForcedEOS}} {
		if *list.of == nil {
			*list.of = *list.model
		}
		if err := m.Known(*list.of, " of eos, first or last"); err != nil {
			return fmt.Errorf("generate: %w", err)
		}
	}
	for _, s := range all {
		s.Before = []int64{m.generation.Start}
	}
	return nil
}

// cache holds keys and values: of the sources, computed once, and of the sequences' tokens so far, room for max each.
type cache struct {
	*tokens.Cache
	crossK, crossV []torchx.Tensor // a layer each: [source rows, H, D]
	bias           *bias           // T5: of the distances that fit in max
	max            int
}

// decoding is generation with a cache.
type decoding struct {
	m       *Model
	cache   *cache
	sources []torchx.Span // the rows of each source, as Own, by tokens.Sequence.Place
}

// prefillRows bounds the rows of one forward pass over sources: activations, not the cache, grow with it.
const prefillRows = 8192

// newDecoding makes room for n sequences.
func (m *Model) newDecoding(n, maxNew int) *decoding {
	s := m.cfg.Decoder
	d := &decoding{m: m, cache: &cache{Cache: m.NewCache(s.Layers, n*maxNew, s.Heads, s.HeadDim), max: maxNew}}
	if t, ok := m.net.(*t5); ok {
		d.cache.bias = t.distanceBias("decoder", maxNew)
	}
	return d
}

// prefill encodes the sources and makes room for n sequences.
func (m *Model) prefill(sources [][]int64, n, maxNew int) *decoding {
	d, row := m.newDecoding(n, maxNew), 0
	for _, ids := range sources {
		d.sources = append(d.sources, torchx.Span{Own: row, OwnLen: len(ids)})
		row += len(ids)
	}
	keys := make([][]torchx.Tensor, 2*m.cfg.Decoder.Layers)
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
	for i := 0; i < len(keys); i += 2 {
		c.crossK, c.crossV = append(c.crossK, joined(keys[i])), append(c.crossV, joined(keys[i+1]))
	}
	return d
}

// slotted is decoding in slots: as many places for encoded sources, each as long as the longest.
type slotted struct {
	*decoding
	asked   [][]int64
	longest int
}

// BeginSlots implements tokens.Slotted.
func (m *Model) BeginSlots(sources [][]int64, all []*tokens.Sequence, places, slots int,
	opt *GenerateOptions) (tokens.SlotDecoding, error) {
	if err := m.settle(sources, all, opt); err != nil {
		return nil, err
	}
	d := &slotted{m.newDecoding(slots, opt.MaxNewTokens), sources, 0}
	for _, ids := range sources {
		d.longest = max(d.longest, len(ids))
	}
	d.sources = make([]torchx.Span, places)
	s := m.cfg.Decoder
	cross := m.NewCache(s.Layers, places*d.longest, s.Heads, s.HeadDim)
	d.cache.crossK, d.cache.crossV = cross.K, cross.V
	return d, nil
}

// Fill implements tokens.SlotDecoding.
func (d *slotted) Fill(source, place int) error {
	defer torchx.Scope()()
	ids, first := d.asked[source], place*d.longest
	d.sources[place] = torchx.Span{Own: first, OwnLen: len(ids)}
	in := &rows{side: "encoder"}
	in.add(ids, false)
	at := d.m.Int64s(list.Map(stat.Indices(len(ids)), func(k int) int64 { return int64(first + k) }))
	for i, x := range d.m.crossKeys(in) {
		torchx.WriteRowsAt([][]torchx.Tensor{d.cache.crossK, d.cache.crossV}[i%2][i/2], at, x)
	}
	return nil
}

func (d *slotted) Step(live []*tokens.Sequence) (torchx.Tensor, error) { return d.step(live) }

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
func (d *decoding) step(live []*tokens.Sequence) (torchx.Tensor, error) {
	m, c := d.m, d.cache
	in := &rows{side: "decoder", cache: c}
	at := make([]int64, len(live))
	for i, s := range live {
		last, t := m.generation.Start, len(s.IDs)
		if t > 0 {
			last = s.IDs[t-1]
		}
		first := s.Slot * c.max
		at[i] = int64(first + t)
		in.ids, in.at = append(in.ids, last), append(in.at, int64(t))
		in.self = append(in.self, torchx.Span{Q: i, QLen: 1, Own: first, OwnLen: t + 1, Causal: true})
		source := d.sources[s.Place]
		source.Q, source.QLen = i, 1
		in.cross = append(in.cross, source)
	}
	c.At = m.Int64s(at)
	return m.Logits(m.scaled(m.run(in, torchx.Tensor{}, &lora.Pass{}))), nil
}
