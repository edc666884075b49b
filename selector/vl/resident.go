package vl

import (
	"fmt"

	"fulcrum/internal/list"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl/processor"
)

// resident is decoding with its state on the device: what changes from step to step are numbers in tensors that stay where
// they are. It implements tokens.Decoding.
type resident struct {
	*decoding // with the weights in the type of computation

	prompt []int64 // [R] the prompt of each row
	shared int     // so many rows in a row have each prompt; 1: prompts are looked up row by row

	place torchx.Tensor // [R] int64 position of the token in work, the same on all axes: completions are text
	row   torchx.Tensor // [R] int64 where its key and value go
	spans torchx.DecodeSpans

	cos, sin torchx.Tensor // [positions, D/2]
}

func (m *Model) BeginResident(prompts []*processor.Prompt, all []*tokens.Sequence, opt *GenerateOptions) (tokens.Decoding, error) {
	m.settle(prompts, all, opt)
	d, err := m.cast().prefill(prompts, len(all), opt.MaxNewTokens)
	if err != nil {
		return nil, err
	}
	r := &resident{decoding: d, shared: len(all) / len(prompts)}
	n := len(all)
	place, row, own, none := make([]int64, n), make([]int64, n), make([]int32, n), make([]int32, n)
	top := 0
	for i, s := range all {
		p, first := d.prompts[s.Prompt], d.total+s.Index*d.max
		r.prompt = append(r.prompt, int64(s.Prompt))
		place[i], row[i], own[i] = int64(p.next), int64(first), int32(first)
		top = max(top, p.next+d.max)
	}
	r.place, r.row = m.Int64s(place), m.Int64s(row)
	r.spans.Own, r.spans.OwnLen, r.spans.MaxOwn = r.starts(own), m.OnDevice(torchx.From(none, n)), d.max
	r.spans.Fast = opt.Kernel == "fast"
	r.takePrompts()
	r.turnUpTo(top)
	return r, nil
}

// turnUpTo makes the angles of so many positions.
func (r *resident) turnUpTo(n int) {
	rope, half := r.m.rope, r.m.cfg.HeadDim/2
	rope.grow(n)
	r.cos = r.m.OnDevice(torchx.From(rope.cos[:n*half], n, half))
	r.sin = r.m.OnDevice(torchx.From(rope.sin[:n*half], n, half))
}

// residentSlots is resident decoding whose rows begin at different times: prompt says the place of each row's.
type residentSlots struct {
	*resident
	in *slotted
}

// BeginResidentSlots implements tokens.SlottedResident.
func (m *Model) BeginResidentSlots(prompts []*processor.Prompt, all []*tokens.Sequence, places, slots int,
	opt *GenerateOptions) (tokens.SlotsOnDevice, error) {
	in, err := m.cast().BeginSlots(prompts, all, places, slots, opt)
	if err != nil {
		return nil, err
	}
	d := in.(*slotted)
	r := &residentSlots{&resident{decoding: &d.decoding, prompt: make([]int64, slots), shared: 1}, d}
	top := 0
	for i, p := range prompts {
		_, next, err := m.standing(p)
		if err != nil {
			return nil, fmt.Errorf("prompt %d: %w", i, err)
		}
		top = max(top, next+d.max)
	}
	none := make([]int32, slots)
	r.place, r.row = m.Int64s(r.prompt), m.Int64s(r.prompt)
	r.spans = torchx.DecodeSpans{Own: r.starts(none), OwnLen: m.OnDevice(torchx.From(none, slots)), MaxOwn: d.max,
		Prefix: r.starts(none), PrefixLen: m.OnDevice(torchx.From(none, slots)), MaxPrefix: d.longest, Fast: opt.Kernel == "fast"}
	r.turnUpTo(top)
	return r, nil
}

func (r *residentSlots) Fill(prompt, place int) error { return r.in.Fill(prompt, place) }

func (r *residentSlots) FirstOf(of []*tokens.Sequence) torchx.Tensor {
	return torchx.IndexSelect(r.first, 0, r.m.Int64s(list.Map(of, func(s *tokens.Sequence) int64 { return int64(s.Place) })))
}

// Put implements tokens.SlotsOnDevice.
func (r *residentSlots) Put(rows []int, of []*tokens.Sequence) {
	defer torchx.Scope()()
	n := len(of)
	place, row := make([]int64, n), make([]int64, n)
	own, prefix, length := make([]int32, n), make([]int32, n), make([]int32, n)
	for i, s := range of {
		l := r.lane(s)
		place[i], row[i], own[i] = int64(l.next), int64(l.own.first), int32(l.own.first)
		prefix[i], length[i], r.prompt[rows[i]] = int32(l.trunk.first), int32(l.trunk.n), int64(s.Place)
	}
	at := r.m.Int64s(list.Convert[int64](rows))
	torchx.WriteRowsAt(r.place, at, r.m.Int64s(place))
	torchx.WriteRowsAt(r.row, at, r.m.Int64s(row))
	write := func(to torchx.Tensor, x []int32) { torchx.WriteRowsAt(to, at, r.m.OnDevice(torchx.From(x, n))) }
	write(r.spans.Own, own)
	write(r.spans.OwnLen, make([]int32, n))
	write(r.spans.Prefix, prefix)
	write(r.spans.PrefixLen, length)
}

// cast returns the model with its weights in the type of computation, adapters of layers that are one product as one: under bfloat16
// those that are trained are float32, and layers would round them again for every token.
func (m *Model) cast() *Model {
	if m.DType == torchx.Float32 && !m.Joined {
		return m
	}
	out, w := *m, *m.Weights
	out.Weights = &w
	as := func(l *lora.Layer) *lora.Layer { return new(l.As(m.DType)) }
	out.text.layers = nil
	for _, l := range m.text.layers {
		c := decoderLayer{inputNorm: m.As(l.inputNorm), postNorm: m.As(l.postNorm), qNorm: m.As(l.qNorm), kNorm: m.As(l.kNorm),
			o: l.o.As(m.DType), down: l.down.As(m.DType), qkv: l.qkv.As(m.DType), gateUp: l.gateUp.As(m.DType), bare: l.bare}
		if c.qkv == nil {
			c.q, c.k, c.v = as(l.q), as(l.k), as(l.v)
		}
		if c.gateUp == nil {
			c.gate, c.up = as(l.gate), as(l.up)
		}
		out.text.layers = append(out.text.layers, c)
	}
	out.text.norm = m.As(m.text.norm)
	w.Head = m.As(m.Head)
	return &out
}

// takePrompts says what the rows see of the prompts: those of a group share them.
func (r *resident) takePrompts() {
	var first, length []int32
	for i := 0; i < len(r.prompt); i += r.shared {
		p := r.prompts[r.prompt[i]]
		first, length = append(first, int32(p.first)), append(length, int32(p.n))
		r.spans.MaxPrefix = max(r.spans.MaxPrefix, p.n)
	}
	r.spans.Prefix, r.spans.PrefixLen = r.starts(first), r.m.OnDevice(torchx.From(length, len(length)))
}

// starts returns the first keys of rows with a number behind them, which saves attention a copy in every layer.
func (r *resident) starts(first []int32) torchx.Tensor {
	return r.m.OnDevice(torchx.From(append(first, 0), len(first)+1))
}

func (r *resident) First() torchx.Tensor { return torchx.IndexSelect(r.first, 0, r.m.Int64s(r.prompt)) }

func (r *resident) Next(ids torchx.Tensor) torchx.Tensor {
	m := r.m
	torchx.Advance(r.spans.OwnLen, 1) // the token in work sees itself
	r.cache.At = r.row
	x := torchx.Embedding(m.text.embed, ids).To(m.DType)
	cos, sin := torchx.IndexSelect(r.cos, 0, r.place), torchx.IndexSelect(r.sin, 0, r.place)
	logits := m.Logits(m.layers(x, cos, sin, &rows{cache: r.cache, decode: &r.spans}, &lora.Pass{}))
	torchx.Advance(r.place, 1)
	torchx.Advance(r.row, 1)
	return logits
}

// Take implements tokens.Decoding. Keys and values stay where they are. A group that has lost rows no longer shares its prompt.
func (r *resident) Take(rows []int) {
	index := list.Convert[int64](rows)
	prompt := list.Map(rows, func(at int) int64 { return r.prompt[at] })
	n := len(r.prompt)
	for _, x := range []*torchx.Tensor{&r.place, &r.row, &r.spans.OwnLen} {
		r.m.Take(x, n, index)
	}
	r.m.Take(&r.spans.Own, n+1, append(index, 0))
	r.prompt, r.shared = prompt, 1
	r.spans.Prefix.Free()
	r.spans.PrefixLen.Free()
	r.takePrompts()
}
