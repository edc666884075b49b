package clip

import (
	"fmt"
	"math"
	"slices"

	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/pointer"
)

// Adapted computes the rows of a table of embeddings, where and when they are wanted, by a CLIP model with low-rank adapters that are
// among a policy's parameters.
//
// On a CPU passes without gradient encode each picture and each text by itself. Its embedding then depends on the adapters and on
// nothing else, to the last bit, so that it may be remembered until the adapters change, and a resumed run computes what an
// uninterrupted one had remembered. With gradient a few are encoded together, which takes two thirds of the time.
type Adapted struct {
	*corpus
	params *torchx.Params
	towers map[string]*tower
}

// corpus is what a policy and its clones share: weights, and what the rows are about.
type corpus struct {
	encoder   *Encoder
	options   pointer.ClipOptions
	linears   []lora.Linear
	modules   []lora.Module
	sides     []side
	generator *torchx.Generator
	atOnce    int               // items that are encoded together; their layers' results are in memory at the same time
	pixels    map[int][]float32 // of pictures, as many as options.CacheMiB holds
	memos     []*memo           // the latest first
}

// side is the part of the rows that one tower computes.
type side struct {
	tower    string
	item     []int     // of each row
	pictures []string  // of each item, or
	texts    [][]int64 //
}

// memo is the embeddings by some adapters, by side and item.
type memo struct {
	factors []float32
	rows    map[[2]int][]float32
}

// mostMemos serves the policy, its old self and the reference.
const mostMemos = 3

// OpenAdapted opens the model for the rows of a table: row i is about pictures[i] and texts[i], of which the modality may need one
// only. dtype is float32, or float64 for gradient checks.
func OpenAdapted(o pointer.ClipOptions, pictures, texts []string, dtype, device string) (*Adapted, error) {
	e, err := Open(*o.Path, dtype, device)
	if err != nil {
		return nil, fmt.Errorf("selector.clip.path: %w", err)
	}
	c := &corpus{encoder: e, options: o, atOnce: 8, pixels: map[int][]float32{}}
	if device != "cpu" {
		c.atOnce = DefaultOptions().Batch
	}
	if o.Modality != "text" {
		s := side{tower: "vision_model"}
		s.item, s.pictures = distinct(pictures)
		c.sides = append(c.sides, s)
	}
	if o.Modality != "image" {
		s := side{tower: "text_model"}
		var all []string
		s.item, all = distinct(texts)
		for _, text := range all {
			ids, _ := e.Tokens(text)
			s.texts = append(s.texts, ids)
		}
		c.sides = append(c.sides, s)
	}
	for _, s := range c.sides {
		e.towerOf[s.tower].eachLinear(s.tower, func(module string, l *lora.Layer) {
			shape := l.Weight.Shape()
			c.linears = append(c.linears, lora.Linear{Name: module, In: shape[1], Out: shape[0]})
		})
	}
	if c.modules, err = o.LoRA.Config().Select(c.linears); err != nil {
		e.Free()
		return nil, fmt.Errorf("selector.clip.lora.target_modules: %w", err)
	}
	c.generator = torchx.NewGenerator(0, device)
	e.frozen.AtFree = c.generator.Free
	return &Adapted{corpus: c}, nil
}

// distinct returns the values of rows without repetitions, and which of them each row has.
func distinct(rows []string) (item []int, values []string) {
	at := map[string]int{}
	for _, v := range rows {
		if _, ok := at[v]; !ok {
			at[v] = len(values)
			values = append(values, v)
		}
		item = append(item, at[v])
	}
	return item, values
}

// eachLinear calls f for the linear layers of a tower of that name.
func (t *tower) eachLinear(name string, f func(module string, l *lora.Layer)) {
	for i := range t.layers {
		for _, l := range t.layers[i].linears() {
			f(fmt.Sprintf("%s.encoder.layers.%d.%s", name, i, l.name), l.Layer)
		}
	}
}

// Adapters counts the adapted layers.
func (c *corpus) Adapters() int { return len(c.modules) }

// Dim is the width of a row.
func (c *corpus) Dim() int { return c.encoder.Dim * len(c.sides) }

// Fingerprint identifies the weights without adapters.
func (c *corpus) Fingerprint() string { return c.encoder.fingerprint }

// Specs lists the adapters among a policy's parameters, by PEFT's names.
func (c *corpus) Specs() []torchx.Spec { return lora.Specs(c.modules) }

// Start fills fresh adapters: A depends on the seed and the module's name, B is zero.
func (c *corpus) Start(params *torchx.Params, seed int64) error {
	modules := map[string]lora.Module{}
	for _, m := range c.modules {
		modules[m.Name] = m
	}
	return lora.Start(params, c.linears, modules, nil, seed)
}

// Over returns the model with the adapters among params. It shares all else with a.
func (a *Adapted) Over(params *torchx.Params) pointer.Embedder {
	out := &Adapted{corpus: a.corpus, params: params, towers: map[string]*tower{}}
	if a.params != nil {
		a.encoder.frozen.Hold()
	}
	for _, s := range a.sides {
		t := *a.encoder.towerOf[s.tower]
		t.layers = slices.Clone(t.layers)
		t.eachLinear(s.tower, func(module string, l *lora.Layer) {
			if i := slices.IndexFunc(a.modules, func(m lora.Module) bool { return m.Name == module }); i >= 0 {
				l.Adapt(a.modules[i], params)
			}
		})
		out.towers[s.tower] = &t
	}
	return out
}

// Free lets go of the model, which the last policy that holds it releases.
func (a *Adapted) Free() { a.encoder.Free() }

// Rows returns the embeddings [len(rows), Dim] of rows of the table: of unit length, with gradient to the adapters alone. Each
// picture and text is encoded once, and once more in the backward pass, which keeps none of the layers' results. train drops
// entries of the adapters' input by masks of the seed.
func (a *Adapted) Rows(rows []int64, train bool, seed uint64) torchx.Tensor {
	var parts []torchx.Tensor
	for i, s := range a.sides {
		at, items, index := map[int]int64{}, []int{}, make([]int64, len(rows))
		for k, row := range rows {
			item := s.item[row]
			if _, ok := at[item]; !ok {
				at[item] = int64(len(items))
				items = append(items, item)
			}
			index[k] = at[item]
		}
		p := lora.Pass{Seed: seed, Generator: a.generator}
		if train {
			p.Dropout = a.options.LoRA.Dropout
		}
		parts = append(parts, torchx.Embedding(a.units(i, items, p), torchx.From(index, len(index)).ToDevice(a.encoder.device)))
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return torchx.Scale(torchx.Cat(1, parts...), math.Sqrt2/2)
}

// units returns the embeddings [len(items), Dim] of items of a side.
func (a *Adapted) units(side int, items []int, p lora.Pass) torchx.Tensor {
	if a.encoder.device == "cpu" && p.Dropout == 0 && !torchx.GradEnabled() && a.encoder.dtype == torchx.Float32 {
		var rows []float32
		for known := a.memo(); len(items) > 0; items = items[1:] {
			rows = append(rows, known.row(a, side, items[0])...)
		}
		return torchx.From(rows, len(rows)/a.encoder.Dim, a.encoder.Dim)
	}
	var out []torchx.Tensor
	for part := range slices.Chunk(items, a.atOnce) {
		p.Queries = part
		pass := p
		out = append(out, torchx.Checkpoint(torchx.Zeros(1), func(torchx.Tensor) torchx.Tensor { return a.encode(side, part, &pass) }))
	}
	return torchx.Cat(0, out...)
}

// encode returns the unit embeddings [len(items), Dim] of items of a side.
func (a *Adapted) encode(side int, items []int, p *lora.Pass) torchx.Tensor {
	s := a.sides[side]
	var pictures [][]float32
	var texts [][]int64
	for _, i := range items {
		if s.texts != nil {
			texts = append(texts, s.texts[i])
		} else {
			pictures = append(pictures, a.picture(s.pictures, i))
		}
	}
	if s.texts != nil {
		return torchx.Normalize(a.encoder.texts(a.towers[s.tower], texts, p))
	}
	return torchx.Normalize(a.encoder.images(a.towers[s.tower], pictures, p))
}

// picture returns the pixels of picture i.
func (c *corpus) picture(paths []string, i int) []float32 {
	if p, ok := c.pixels[i]; ok {
		return p
	}
	p, err := c.encoder.Picture(paths[i])
	if err != nil {
		panic(&torchx.OpError{Op: "selector.clip", Msg: err.Error()})
	}
	if (len(c.pixels)+1)*len(p) <= c.options.CacheMiB<<18 {
		c.pixels[i] = p
	}
	return p
}

// memo returns the embeddings remembered for the adapters' present weights. sync
func (a *Adapted) memo() *memo {
	from, _ := a.params.Range(lora.KeyA(a.modules[0].Name))
	now := a.params.Values()[from:] // the adapters are the last parameters
	at := slices.IndexFunc(a.memos, func(m *memo) bool { return slices.Equal(m.factors, now) })
	m := &memo{factors: now, rows: map[[2]int][]float32{}}
	if at >= 0 {
		m = a.memos[at]
		a.memos = slices.Delete(a.memos, at, at+1)
	}
	a.memos = slices.Insert(a.memos, 0, m)
	a.memos = a.memos[:min(mostMemos, len(a.memos))]
	return m
}

// row returns the embedding of an item.
func (m *memo) row(a *Adapted, side, item int) []float32 {
	key := [2]int{side, item}
	if m.rows[key] == nil {
		defer torchx.Scope()()
		m.rows[key] = torchx.Data[float32](a.encode(side, []int{item}, &lora.Pass{}))
	}
	return m.rows[key]
}

// Check compares a table, of which row returns row i of n, with what the model makes without adapters, at some rows.
func (c *corpus) Check(n int, row func(i int) []float32) error {
	const looked, far = 8, 1e-3
	for i := 0; i < n; i += max(1, n/looked) {
		var ours []float32
		for _, s := range c.sides {
			var part []float32
			var err error
			if s.texts != nil {
				part, err = c.encoder.Texts([][]int64{s.texts[s.item[i]]})
			} else {
				part, err = c.encoder.Images([][]float32{c.picture(s.pictures, s.item[i])})
			}
			if err != nil {
				return err
			}
			ours = append(ours, part...)
		}
		theirs, square := row(i), 0.0
		for k, v := range ours {
			d := float64(v)/math.Sqrt(float64(len(c.sides))) - float64(theirs[k])
			square += d * d
		}
		if d := math.Sqrt(square); !(d < far) {
			return fmt.Errorf("row %d of data.embeddings is not what selector.clip.path makes of record %d (they are %.2g apart): want the "+
				"table of task=embed by this encoder in float32, of the same records, with embed.modality=%s", i, i, d, c.options.Modality)
		}
	}
	return nil
}
