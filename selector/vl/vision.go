package vl

import (
	"fmt"
	"math"

	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl/pixels"
)

// tower is the vision tower's weights (spec §6). Its linear layers have biases, the patch embedding has none.
type tower struct {
	patch  torchx.Tensor // [d, 3, 2, 14, 14]
	blocks []visionBlock
	normQ  torchx.Tensor
	merge0 lora.Layer
	merge2 lora.Layer
}

type visionBlock struct {
	norm1, norm2   torchx.Tensor
	qkv, proj      lora.Layer
	gate, up, down lora.Layer
}

// visionEps is fixed, whatever the configuration says of the decoder's.
const visionEps = 1e-6

// tower puts the vision tower together.
func (c *Config) tower(b *tokens.Builder) *tower {
	v := c.Vision
	d, cell := v.Hidden, v.Cell()*v.Hidden
	t := &tower{patch: b.Tensor("visual.patch_embed.proj.weight", d, v.Channels, v.TemporalPatch, v.Patch, v.Patch)}
	for i := range v.Depth {
		name := fmt.Sprintf("visual.blocks.%d.", i)
		t.blocks = append(t.blocks, visionBlock{
			norm1: b.Tensor(name+"norm1.weight", d), norm2: b.Tensor(name+"norm2.weight", d),
			qkv: b.Linear(name+"attn.qkv", d, 3*d, true), proj: b.Linear(name+"attn.proj", d, d, true),
			gate: b.Linear(name+"mlp.gate_proj", d, v.Intermediate, true), up: b.Linear(name+"mlp.up_proj", d, v.Intermediate, true),
			down: b.Linear(name+"mlp.down_proj", v.Intermediate, d, true),
		})
	}
	t.normQ = b.Tensor("visual.merger.ln_q.weight", d)
	t.merge0, t.merge2 = b.Linear("visual.merger.mlp.0", cell, cell, true), b.Linear("visual.merger.mlp.2", cell, v.Out, true)
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
	angles   []float32     // [R, d_h/2] in the original order
	windows  []torchx.Span // what rows attend to in most blocks
	frames   []torchx.Span // what rows attend to in full blocks
}

// layout computes the arrangement for these grids (spec §6, steps 2 and 3).
func (v *Vision) layout(grids []grid) *layout {
	l := &layout{}
	side := v.Window / (v.Patch * v.Merge)        // in cells
	inv := frequencies(10000, v.Hidden/v.Heads/4) // a half of the angles turns with the row, the other with the column
	span := func(from, n int) torchx.Span { return torchx.Span{Q: from, QLen: n, Own: from, OwnLen: n} }
	cell, firstCell := v.Cell(), 0
	for _, g := range grids {
		rows, cols := g.h/v.Merge, g.w/v.Merge
		for range g.t {
			l.frames = append(l.frames, span(firstCell*cell, g.h*g.w))
			for i := range rows * cols * cell {
				y, x := i/cell/cols*v.Merge+i%cell/v.Merge, i/cell%cols*v.Merge+i%v.Merge
				for _, f := range inv {
					l.angles = append(l.angles, float32(y)*f)
				}
				for _, f := range inv {
					l.angles = append(l.angles, float32(x)*f)
				}
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

// rotation returns cosines and sines of the angles in window order, [R, d_h/2] each.
func (l *layout) rotation() (cos, sin []float32) {
	half := len(l.angles) / l.rows
	cos, sin = make([]float32, 0, len(l.angles)), make([]float32, 0, len(l.angles))
	for _, r := range l.rowOrder {
		for _, a := range l.angles[int(r)*half : (int(r)+1)*half] {
			s, c := math.Sincos(float64(a))
			cos, sin = append(cos, float32(c)), append(sin, float32(s))
		}
	}
	return cos, sin
}

// see turns rows of pixels into the vectors that replace the placeholders: one for each merged cell, [cells, H], in the
// order of the cells; p is a pass over them. trace, which may be nil, is shown the intermediate results.
func (m *Model) see(pictures []pixels.Patches, p *lora.Pass, trace func(name string, x torchx.Tensor)) torchx.Tensor {
	defer torchx.Scope()()
	v, t := m.cfg.Vision, m.vision
	show := func(name string, x torchx.Tensor) {
		if trace != nil {
			trace(name, x)
		}
	}
	l := v.layout(gridsOf(pictures))
	x := torchx.Linear(m.pixelRows(pictures), m.As(torchx.Reshape(t.patch, v.Hidden, v.PatchSize())), torchx.Tensor{}) // [R, d]
	show("patch_embed", x)
	x = torchx.IndexSelect(x, 0, m.Int64s(l.rowOrder))
	c, s := l.rotation()
	half := v.Hidden / v.Heads / 2
	cos, sin := m.OnDevice(torchx.From(c, l.rows, half)), m.OnDevice(torchx.From(s, l.rows, half))
	twice := m.opt.GradientCheckpointing && m.tunesVision
	if twice { // the backward pass needs them
		cos, sin = torchx.Keep(cos), torchx.Keep(sin)
	}
	patches := p.Times(v.Cell())
	for i := range t.blocks {
		spans := l.windows
		if v.full(i) {
			spans = l.frames
		}
		block := func(x torchx.Tensor) torchx.Tensor { return m.visionBlock(i, x, cos, sin, spans, patches) }
		x = m.through(block, x, twice)
		show(fmt.Sprintf("block%d_windowed", i), x)
	}
	y := torchx.RMSNorm(x, m.As(t.normQ), visionEps)
	y = torchx.Reshape(y, len(l.order), v.Cell()*v.Hidden) // four rows are one cell
	y = m.Apply(&t.merge2, torchx.GELU(m.Apply(&t.merge0, y, p)), p)
	show("merger_windowed", y)
	return torchx.Keep(torchx.IndexSelect(y, 0, m.Int64s(l.inverse)))
}

// visionBlock is one block: x [R, d] → [R, d].
func (m *Model) visionBlock(i int, x, cos, sin torchx.Tensor, spans []torchx.Span, p *lora.Pass) torchx.Tensor {
	defer torchx.Scope()()
	v, b := m.cfg.Vision, &m.vision.blocks[i]
	n, d := x.Shape()[0], v.Hidden
	y := m.Apply(&b.qkv, torchx.RMSNorm(x, m.As(b.norm1), visionEps), p) // [R, 3d]
	head := func(part int) torchx.Tensor {
		return torchx.Reshape(torchx.Narrow(y, 1, part*d, d), n, v.Heads, d/v.Heads)
	}
	seen := torchx.Attend(torchx.Rope(head(0), cos, sin), torchx.Rope(head(1), cos, sin), torchx.Contiguous(head(2)), spans,
		1/math.Sqrt(float64(d/v.Heads)))
	x = torchx.Add(x, m.Apply(&b.proj, torchx.Reshape(seen, n, d), p))
	y = torchx.RMSNorm(x, m.As(b.norm2), visionEps)
	x = torchx.Add(x, m.Apply(&b.down, torchx.SwiGLU(m.Apply(&b.gate, y, p), m.Apply(&b.up, y, p)), p))
	return torchx.Keep(x)
}

// pixelRows returns the rows of all pictures [R, 1176] on the device.
func (m *Model) pixelRows(pictures []pixels.Patches) torchx.Tensor {
	parts := make([]torchx.Tensor, len(pictures))
	for i, p := range pictures {
		parts[i] = torchx.From(p.Data, p.Rows, m.cfg.Vision.PatchSize())
	}
	return m.OnDevice(torchx.Cat(0, parts...)).To(m.DType)
}

func gridsOf(pictures []pixels.Patches) []grid {
	grids := make([]grid, len(pictures))
	for i, p := range pictures {
		grids[i] = grid{p.Grid[0], p.Grid[1], p.Grid[2], p.SecondsPerGrid}
	}
	return grids
}

// look returns the vectors of pictures, one tensor [cells, H] each. Where nothing of the tower is trained they are
// computed once per content, without a graph, and shared by clones, steps and the completions of a group.
func (m *Model) look(pictures []pixels.Patches, p *lora.Pass) []torchx.Tensor {
	out := make([]torchx.Tensor, len(pictures))
	if m.tunesVision {
		all, at := m.see(pictures, p, nil), 0
		for i, g := range gridsOf(pictures) {
			n := g.t * g.h * g.w / m.cfg.Vision.Cell()
			out[i] = torchx.Narrow(all, 0, at, n)
			at += n
		}
		return out
	}
	defer torchx.NoGrad()()
	for i, picture := range pictures {
		kept, ok := m.features.get(picture.Key)
		if !ok {
			kept = m.see(pictures[i:i+1], p, nil)
			m.features.put(picture.Key, kept)
		}
		out[i] = kept
	}
	return out
}
