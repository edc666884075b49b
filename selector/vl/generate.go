package vl

import (
	"fmt"

	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl/processor"
)

// GenerateOptions says how completions are drawn. Placeholders of images and videos are Suppressed where it is nil.
type GenerateOptions = tokens.GenerateOptions

// Completion is what a prompt was answered with.
type Completion = tokens.Completion

// Generate is tokens.Generate of this model.
func (m *Model) Generate(prompts []*processor.Prompt, n int, opt GenerateOptions) ([][]Completion, error) {
	return tokens.Generate[*processor.Prompt](m, prompts, n, opt)
}

// Begin computes the prompts' keys and values, which their completions share.
func (m *Model) Begin(prompts []*processor.Prompt, all []*tokens.Sequence, opt *GenerateOptions) (tokens.Step, error) {
	m.settle(prompts, all, opt)
	c, err := m.prefill(prompts, len(all), opt.MaxNewTokens)
	if err != nil {
		return nil, err
	}
	return c.step, nil
}

// settle fills what the options leave to the model.
func (m *Model) settle(prompts []*processor.Prompt, all []*tokens.Sequence, opt *GenerateOptions) {
	if opt.EOS == nil {
		opt.EOS = m.EOS()
	}
	if opt.Suppressed == nil {
		opt.Suppressed = m.placeholders()
	}
	for _, s := range all {
		s.Before = prompts[s.Prompt].IDs
	}
}

// placeholders lists the tokens that stand for pixels, which a model never wants to say.
func (m *Model) placeholders() []int64 {
	if m.cfg.Vision == nil {
		return nil
	}
	pads := []int64{m.cfg.ImageToken, m.cfg.VideoToken, m.cfg.VisionToken}
	return list.Filter(pads, func(id int64) bool { return id > 0 && id < int64(m.cfg.Vocab) })
}

// decoding is generation with a cache: rows of the prompts first, then MaxNewTokens rows for each sequence.
type decoding struct {
	m       *Model
	cache   *tokens.Cache
	prompts []place       // rows of each prompt in the cache, by tokens.Sequence.Place
	total   int           // rows of all prompts
	max     int           // rows of a sequence
	lanes   []lane        // of each sequence of Shared; nil: see lane
	first   torchx.Tensor // [prompts, V] logits after the prompts
}

// prefillRows bounds the rows of one forward pass over prompts: activations, not the cache, grow with it.
const prefillRows = 8192

// prefill computes the prompts' keys and values and makes room for n sequences.
func (m *Model) prefill(prompts []*processor.Prompt, n, maxNew int) (*decoding, error) {
	if err := m.fitWindow(prompts, maxNew); err != nil {
		return nil, err
	}
	d := &decoding{m: m, max: maxNew, prompts: make([]place, len(prompts))}
	for _, p := range prompts {
		d.total += len(p.IDs)
	}
	d.cache = m.newCache(d.total + n*maxNew)
	var logits []torchx.Tensor
	for from, row := 0, 0; from < len(prompts); {
		to, rows := from+1, len(prompts[from].IDs)
		for to < len(prompts) && rows+len(prompts[to].IDs) <= prefillRows {
			rows += len(prompts[to].IDs)
			to++
		}
		after, err := d.fill(prompts[from:to], from, from, row)
		if err != nil {
			return nil, err
		}
		logits = append(logits, after)
		from, row = to, row+rows
	}
	d.first = torchx.Cat(0, logits...)
	return d, nil
}

// fitWindow refuses prompts that leave no room for so many tokens.
func (m *Model) fitWindow(prompts []*processor.Prompt, maxNew int) error {
	for i, p := range prompts {
		if err := m.inWindow(len(p.IDs) + maxNew); err != nil {
			return fmt.Errorf("prompt %d: %w", i, err)
		}
	}
	return nil
}

// slotted is decoding in slots: as many places for prompts, each as long as the longest, then MaxNewTokens rows for each slot.
type slotted struct {
	decoding
	asked   []*processor.Prompt
	longest int
}

// BeginSlots implements tokens.Slotted.
func (m *Model) BeginSlots(prompts []*processor.Prompt, all []*tokens.Sequence, places, slots int,
	opt *GenerateOptions) (tokens.SlotDecoding, error) {
	m.settle(prompts, all, opt)
	if err := m.fitWindow(prompts, opt.MaxNewTokens); err != nil {
		return nil, err
	}
	d := &slotted{decoding{m: m, max: opt.MaxNewTokens, prompts: make([]place, places)}, prompts, 0}
	for _, p := range prompts {
		d.longest = max(d.longest, len(p.IDs))
	}
	d.total = places * d.longest
	d.cache = m.newCache(d.total + slots*d.max)
	d.first = torchx.FullLike(m.Params().Flat(), 0, torchx.Float32, places, m.cfg.Vocab)
	return d, nil
}

// Fill implements tokens.SlotDecoding.
func (d *slotted) Fill(prompt, place int) error {
	defer torchx.Scope()()
	after, err := d.fill(d.asked[prompt:prompt+1], prompt, place, place*d.longest)
	if err == nil {
		torchx.WriteRowsAt(d.first, d.m.Int64s([]int64{int64(place)}), after)
	}
	return err
}

func (d *slotted) Step(live []*tokens.Sequence) (torchx.Tensor, error) { return d.step(live) }

func (m *Model) newCache(rows int) *tokens.Cache {
	return m.NewCache(m.cfg.Layers, rows, m.cfg.KVHeads, m.cfg.HeadDim)
}

// fill runs some prompts through the decoder and returns the logits after each [prompts, V]. first is the number of the first one, which
// goes to d.prompts[to] and to this row of the cache.
func (d *decoding) fill(prompts []*processor.Prompt, first, to, row int) (torchx.Tensor, error) {
	defer torchx.Scope()()
	m := d.m
	in, err := m.pack(list.Map(prompts, func(p *processor.Prompt) Group { return Group{Prompt: p} }), first)
	if err != nil {
		return torchx.Tensor{}, err
	}
	var last []int64
	for i, p := range in.prompts {
		in.spans[i].Own += row
		last = append(last, int64(p.first+p.n-1))
		d.prompts[to+i] = place{row + p.first, p.n, p.next}
	}
	m.fillMedia(in, &lora.Pass{})
	at := list.Map(stat.Indices(len(in.ids)), func(k int) int64 { return int64(row + k) })
	d.cache.At, in.cache = m.Int64s(at), d.cache
	hidden := torchx.IndexSelect(m.forward(&in.rows, &lora.Pass{}), 0, m.Int64s(last))
	return torchx.Keep(m.Logits(hidden)), nil
}

// lane returns where a sequence's keys lie: without lanes the prompt is the trunk of its completions.
func (d *decoding) lane(s *tokens.Sequence) lane {
	if d.lanes != nil {
		return d.lanes[s.Index]
	}
	prompt := d.prompts[s.Place]
	return lane{prompt, place{first: d.total + s.Slot*d.max}, prompt.next}
}

// step computes the logits of the live sequences' next tokens, each from its last one and the cache. Those that have none yet come last.
func (d *decoding) step(live []*tokens.Sequence) (torchx.Tensor, error) {
	m := d.m
	in := &rows{cache: d.cache}
	var at, from []int64
	for i, s := range live {
		if len(s.IDs) == 0 {
			from = append(from, int64(s.Place))
			continue
		}
		t := len(s.IDs) - 1 // its place in the completion
		l := d.lane(s)
		at = append(at, int64(l.own.first+l.own.n+t))
		p := l.next + t
		in.ids, in.places = append(in.ids, s.IDs[t]), append(in.places, position{p, p, p})
		in.spans = append(in.spans, torchx.Span{Q: i, QLen: 1, Prefix: l.trunk.first, PrefixLen: l.trunk.n, Own: l.own.first,
			OwnLen: l.own.n + t + 1, Causal: true})
	}
	var logits []torchx.Tensor
	if len(at) > 0 {
		d.cache.At = m.Int64s(at)
		logits = append(logits, m.Logits(m.forward(in, &lora.Pass{})))
	}
	if len(from) > 0 {
		logits = append(logits, torchx.IndexSelect(d.first, 0, m.Int64s(from)))
	}
	if len(logits) == 1 {
		return logits[0], nil
	}
	return torchx.Cat(0, logits...), nil
}

// GenerationConfig holds the keys of a folder's generation_config.json, or else of config.json; nil for a missing key.
type GenerationConfig = tokens.Ending

// parseGeneration reads either file.
func parseGeneration(raw []byte) (g GenerationConfig, err error) {
	var keys tokens.EndingKeys
	if err := jsonwords.Unmarshal(raw, &keys); err != nil {
		return g, err
	}
	return keys.Parse(raw)
}

// Generation returns what the model's folder says of generation.
func (m *Model) Generation() GenerationConfig { return m.generation }

// EOS returns the ids that end a completion: generation_config.json's, else config.json's.
func (m *Model) EOS() []int64 {
	if m.generation.EOS != nil {
		return m.generation.EOS
	}
	return m.cfg.EOS
}

// EndAt takes the processor's ids for a model whose folder names none that end a completion.
func (m *Model) EndAt(ids []int64) error {
	if len(m.EOS()) > 0 {
		return nil
	}
	m.generation.EOS = ids
	return m.Known(ids, " that ends a completion")
}
