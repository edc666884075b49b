package vl

import (
	"fmt"
	"math"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/recent"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl/pixels"
)

// tower is the vision tower's weights (spec §6). Its linear layers have biases.
type tower struct {
	patch, patchBias torchx.Tensor // [d, 3, 2, 14, 14]; [d] or none
	table            torchx.Tensor // [side², d] of places, or none
	blocks           []visionBlock
	merger           merger
	deep             []merger // behind the blocks of Deep
}

type visionBlock struct {
	norm1, norm2   visionNorm
	qkv, proj      lora.Layer
	gate, up, down lora.Layer // a plain tower has no gate
}

// visionNorm is RMSNorm, or with a bias LayerNorm.
type visionNorm struct{ weight, bias torchx.Tensor }

// merger makes one vector of a cell's patches.
type merger struct {
	norm          visionNorm
	whole         bool // the norm is of a cell, not of each of its patches
	first, second lora.Layer
}

// visionEps is fixed, whatever the configuration says of the decoder's.
const visionEps = 1e-6

// tower puts the vision tower together.
func (c *Config) tower(b *tokens.Builder) *tower {
	v := c.Vision
	d, cell, of := v.Hidden, v.Cell()*v.Hidden, v.names
	norm := func(name string, width int) (n visionNorm) {
		if n.weight = b.Tensor(name+".weight", width); of.plain {
			n.bias = b.Tensor(name+".bias", width)
		}
		return n
	}
	t := &tower{patch: b.Tensor("visual.patch_embed.proj.weight", d, v.Channels, v.TemporalPatch, v.Patch, v.Patch)}
	if of.places {
		t.patchBias = b.Tensor("visual.patch_embed.proj.bias", d)
		t.table = b.Tensor("visual.pos_embed.weight", v.Side*v.Side, d)
	}
	for i := range v.Depth {
		name := fmt.Sprintf("visual.blocks.%d.", i)
		block := visionBlock{norm1: norm(name+"norm1", d), norm2: norm(name+"norm2", d),
			qkv: b.Linear(name+"attn.qkv", d, 3*d, true), proj: b.Linear(name+"attn.proj", d, d, true)}
		parts := []lora.Linear{{Name: name + "mlp." + of.up, In: d, Out: v.Intermediate},
			{Name: name + "mlp." + of.down, In: v.Intermediate, Out: d}}
		if !of.plain {
			parts = append([]lora.Linear{{Name: name + "mlp.gate_proj", In: d, Out: v.Intermediate}}, parts...)
		}
		mlp := b.Padded(parts...)
		if block.up, block.down = mlp[len(mlp)-2], mlp[len(mlp)-1]; !of.plain {
			block.gate = mlp[0]
		}
		t.blocks = append(t.blocks, block)
	}
	merge := func(name string, width int) merger {
		return merger{norm: norm(name+of.norm, width), whole: width == cell, first: b.Linear(name+of.first, cell, cell, true),
			second: b.Linear(name+of.second, cell, v.Out, true)}
	}
	t.merger = merge("visual.merger.", d)
	t.deep = list.Make(len(v.Deep), func(i int) merger { return merge(fmt.Sprintf("visual.deepstack_merger_list.%d.", i), cell) })
	return t
}

// layout is how the patches of some images and videos are arranged for the tower. Patches come in merged cells of 2×2,
// four rows each; windows tile the cells of a frame pair, and rows are put in window order, so that both windows and
// frame pairs are contiguous.
type layout struct {
	rows     int           // R
	order    []int64       // [cells] the cell at each place of the window order: HF's window_index
	inverse  []int64       // [cells] the place of each cell
	rowOrder []int64       // [R] order, row by row
	places   [][2]int      // [R] row and column in the original order
	windows  []torchx.Span // what rows attend to in most blocks
	frames   []torchx.Span // what rows attend to in full blocks
}

// layout computes the arrangement for these grids (spec §6, steps 2 and 3).
func (v *Vision) layout(grids []grid) *layout {
	l := &layout{}
	side := v.Window / (v.Patch * v.Merge) // in cells
	if side == 0 {                         // no windows: one holds all
		for _, g := range grids {
			side = max(side, g.h, g.w)
		}
	}
	span := func(from, n int) torchx.Span { return torchx.Span{Q: from, QLen: n, Own: from, OwnLen: n} }
	cell, firstCell := v.Cell(), 0
	for _, g := range grids {
		rows, cols := g.h/v.Merge, g.w/v.Merge
		for range g.t {
			l.frames = append(l.frames, span(firstCell*cell, g.h*g.w))
			for i := range rows * cols * cell {
				l.places = append(l.places, [2]int{i/cell/cols*v.Merge + i%cell/v.Merge, i/cell%cols*v.Merge + i%v.Merge})
			}
			for top := 0; top < rows; top += side {
				for left := 0; left < cols; left += side {
					first := len(l.order)
					for y := top; y < min(top+side, rows); y++ {
						for x := left; x < min(left+side, cols); x++ {
							l.order = append(l.order, int64(firstCell+y*cols+x))
						}
					}
					l.windows = append(l.windows, span(first*cell, (len(l.order)-first)*cell))
				}
			}
			firstCell += rows * cols
		}
	}
	l.rows = firstCell * cell
	l.inverse = make([]int64, firstCell)
	for at, c := range l.order {
		l.inverse[c] = int64(at)
		for k := range cell {
			l.rowOrder = append(l.rowOrder, c*int64(cell)+int64(k))
		}
	}
	return l
}

// rotation returns cosines and sines of the angles in window order, [R, d_h/2] each: a half of the angles turns with the row of a
// patch, the other with its column.
func (v *Vision) rotation(l *layout) (cos, sin []float32) {
	inv, size := frequencies(v.RopeTheta, v.Hidden/v.Heads/4), 0
	for _, p := range l.places {
		size = max(size, p[0]+1, p[1]+1)
	}
	c, s := make([]float32, 0, size*len(inv)), make([]float32, 0, size*len(inv)) // of every coordinate
	for at := range size {
		for _, f := range inv {
			y, x := math.Sincos(float64(float32(at) * f))
			c, s = append(c, float32(x)), append(s, float32(y))
		}
	}
	n := len(inv)
	cos, sin = make([]float32, 0, 2*n*l.rows), make([]float32, 0, 2*n*l.rows)
	for _, r := range l.rowOrder {
		for _, at := range l.places[r] {
			cos, sin = append(cos, c[at*n:(at+1)*n]...), append(sin, s[at*n:(at+1)*n]...)
		}
	}
	return cos, sin
}

// see turns rows of pixels into the vectors that replace the placeholders: one for each merged cell, [cells, H], in the order of the
// cells, or [cells, (1+deep)·H] with those that are added behind the decoder's first layers; p is a pass over them. trace, which may
// be nil, is shown the intermediate results.
func (m *Model) see(pictures []pixels.Patches, p *lora.Pass, trace func(name string, x torchx.Tensor)) torchx.Tensor {
	defer torchx.Scope()()
	v, t := m.cfg.Vision, m.vision
	show := func(name string, x torchx.Tensor) {
		if trace != nil {
			trace(name, x)
		}
	}
	l := v.layout(gridsOf(pictures))
	x := torchx.Linear(m.pixelRows(pictures), m.As(torchx.Reshape(t.patch, v.Hidden, v.PatchSize())), m.As(t.patchBias)) // [R, d]
	show("patch_embed", x)
	if v.Side > 0 {
		x = torchx.Add(x, m.places(pictures, l).To(m.DType))
	}
	x = torchx.IndexSelect(x, 0, m.Int64s(l.rowOrder))
	c, s := v.rotation(l)
	half := v.Hidden / v.Heads / 2
	cos, sin := m.OnDevice(torchx.From(c, l.rows, half)), m.OnDevice(torchx.From(s, l.rows, half))
	twice := m.opt.GradientCheckpointing && m.tunesVision
	if twice { // the backward pass needs them
		cos, sin = torchx.Keep(cos), torchx.Keep(sin)
	}
	patches := p.Times(v.Cell())
	var deep []torchx.Tensor
	for i := range t.blocks {
		spans := l.windows
		if v.Window == 0 || slices.Contains(v.FullBlocks, i) {
			spans = l.frames
		}
		block := func(x torchx.Tensor) torchx.Tensor { return m.visionBlock(i, x, cos, sin, spans, patches) }
		x = m.through(block, x, twice)
		show(fmt.Sprintf("block%d_windowed", i), x)
		if k := slices.Index(v.Deep, i); k >= 0 {
			deep = append(deep, m.merge(&t.deep[k], x, p))
		}
	}
	y := m.merge(&t.merger, x, p)
	show("merger_windowed", y)
	if len(deep) > 0 {
		y = torchx.Cat(1, append([]torchx.Tensor{y}, deep...)...)
	}
	return torchx.Keep(torchx.IndexSelect(y, 0, m.Int64s(l.inverse)))
}

// merge makes a vector [cells, H] of the rows x [R, d] of each cell, four of which lie together.
func (m *Model) merge(of *merger, x torchx.Tensor, p *lora.Pass) torchx.Tensor {
	cell := m.cfg.Vision.Cell() * m.cfg.Vision.Hidden
	if of.whole {
		x = torchx.Reshape(x, -1, cell)
	}
	y := torchx.Reshape(m.norm(of.norm, x), -1, cell)
	return m.Apply(&of.second, torchx.GELU(m.Apply(&of.first, y, p)), p)
}

func (m *Model) norm(n visionNorm, x torchx.Tensor) torchx.Tensor {
	if n.bias.Nil() {
		return torchx.RMSNorm(x, m.As(n.weight), visionEps)
	}
	return torchx.LayerNorm(x, m.As(n.weight), m.As(n.bias), visionEps)
}

// places returns what the table of places adds to each patch [R, d].
func (m *Model) places(pictures []pixels.Patches, l *layout) torchx.Tensor {
	at, share := m.cfg.Vision.corners(gridsOf(pictures), l.places)
	var sum torchx.Tensor
	for k := range at {
		part := torchx.IndexSelect(m.As(m.vision.table), 0, m.Int64s(at[k]))
		part = torchx.Mul(part, m.OnDevice(torchx.From(share[k], len(share[k]), 1)))
		if k > 0 {
			part = torchx.Add(sum, part)
		}
		sum = part
	}
	return sum
}

// visionBlock is one block: x [R, d] → [R, d].
func (m *Model) visionBlock(i int, x, cos, sin torchx.Tensor, spans []torchx.Span, p *lora.Pass) torchx.Tensor {
	defer torchx.Scope()()
	v, b := m.cfg.Vision, &m.vision.blocks[i]
	n, d := x.Shape()[0], v.Hidden
	y := m.Apply(&b.qkv, m.norm(b.norm1, x), p) // [R, 3d]
	head := func(part int) torchx.Tensor {
		return torchx.Reshape(torchx.Narrow(y, 1, part*d, d), n, v.Heads, d/v.Heads)
	}
	seen := torchx.Attend(torchx.Rope(head(0), cos, sin), torchx.Rope(head(1), cos, sin), torchx.Contiguous(head(2)), spans,
		1/math.Sqrt(float64(d/v.Heads)))
	x = torchx.Add(x, m.Apply(&b.proj, torchx.Reshape(seen, n, d), p))
	y = m.norm(b.norm2, x)
	if wide := m.Apply(&b.up, y, p); v.names.plain {
		y = torchx.Activations()[v.Activation](wide)
	} else {
		y = torchx.Gated(v.Activation, m.Apply(&b.gate, y, p), wide)
	}
	return torchx.Keep(torchx.Add(x, m.Apply(&b.down, y, p)))
}

// pixelRows returns the rows of all pictures [R, 1176] on the device. On CUDA they are copied to it while it computes.
func (m *Model) pixelRows(pictures []pixels.Patches) torchx.Tensor {
	var up torchx.Upload
	parts := make([]torchx.Tensor, len(pictures))
	for i, p := range pictures {
		torchx.Put(&up, &parts[i], p.Data, p.Rows, m.cfg.Vision.PatchSize())
	}
	up.Send(m.Params().Flat())
	return torchx.Cat(0, parts...).To(m.DType)
}

func gridsOf(pictures []pixels.Patches) []grid {
	return list.Map(pictures, func(p pixels.Patches) grid { return grid{p.Grid[0], p.Grid[1], p.Grid[2], p.SecondsPerGrid} })
}

// look returns the vectors of pictures, one tensor [cells, H] each. Where nothing of the tower is trained they are
// computed once per content, without a graph, and shared by clones, steps and the completions of a group.
func (m *Model) look(pictures []pixels.Patches, p *lora.Pass) []torchx.Tensor {
	if m.tunesVision {
		return m.split(m.see(pictures, p, nil), pictures)
	}
	most := 0 // each picture alone: products of another number of rows may differ in the last bit, in a resumed run too
	if m.Params().Flat().OnCUDA() && !torchx.Deterministic() {
		most = visionRows
	}
	return m.remembered(pictures, p, most)
}

// remembered returns the vectors of pictures by a frozen tower: the known ones, and the others after
// passes over so many rows, or a single picture.
func (m *Model) remembered(pictures []pixels.Patches, p *lora.Pass, most int) []torchx.Tensor {
	defer torchx.NoGrad()()
	out := make([]torchx.Tensor, len(pictures))
	var fresh []int // not known yet, the first of each content
	first := map[string]int{}
	for i, picture := range pictures {
		var known bool
		if out[i], known = m.features.Get(picture.Key); known {
			continue
		}
		if _, twice := first[picture.Key]; !twice || picture.Key == "" {
			first[picture.Key] = i
			fresh = append(fresh, i)
		}
	}
	for len(fresh) > 0 {
		n, rows := 0, 0
		for n < len(fresh) && (n == 0 || rows+pictures[fresh[n]].Rows <= most) { // the first one in any case
			rows += pictures[fresh[n]].Rows
			n++
		}
		pass := list.Map(fresh[:n], func(i int) pixels.Patches { return pictures[i] })
		vectors := m.see(pass, p, nil)
		for k, x := range m.split(vectors, pass) {
			if key := pass[k].Key; key != "" {
				if n > 1 {
					x = torchx.Scale(x, 1) // memory of its own: pictures are forgotten one by one
				}
				m.features.Put(key, torchx.Own(x))
			}
			out[fresh[k]] = x
		}
		fresh = fresh[n:]
	}
	for i, picture := range pictures {
		if out[i].Nil() {
			out[i] = out[first[picture.Key]]
		}
	}
	return out
}

// split cuts the vectors of pictures apart.
func (m *Model) split(all torchx.Tensor, pictures []pixels.Patches) []torchx.Tensor {
	if len(pictures) == 1 {
		return []torchx.Tensor{all}
	}
	out, at := make([]torchx.Tensor, len(pictures)), 0
	for i, g := range gridsOf(pictures) {
		n := g.t * g.h * g.w / m.cfg.Vision.Cell()
		out[i] = torchx.Narrow(all, 0, at, n)
		at += n
	}
	return out
}

// visionRows bounds the rows of one pass over pictures on CUDA: activations grow with it, half a GB in the 3B model's tower.
const visionRows = 32768

// featureBytes bounds the vectors that are remembered while the tower is frozen: 60 thousand of the 3B model in bfloat16.
const featureBytes = 256 << 20

// features remembers the vectors of pictures by their content, which it owns. Those that it had are valid until Trim, which is called
// when no vectors are in use: libtorch keeps what a graph needs.
type features = recent.Cache[string, torchx.Tensor]
