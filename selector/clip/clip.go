// Package clip computes the embeddings of CLIP (Radford et al. 2021, arXiv:2103.00020) from unchanged Hugging Face folders:
// pictures and texts become unit vectors whose products are similarities.
//
//	e, err := clip.Open("clip-vit-base-patch32", "float32", "cpu")
//	rows := e.Images(pictures)                  // []float32 [len(pictures), e.Dim]
//	rows = e.Texts(ids)                         // ids of e.Tokens(text)
//
// Pixels are those of transformers' processor over Pillow, bit for bit; tokens those of its fast tokenizer. Texts are not
// padded: the rows of a batch are packed, and attention knows where each text begins.
package clip

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/digest"
	"fulcrum/internal/hffolder"
	"fulcrum/internal/list"
	"fulcrum/internal/regular"
	"fulcrum/internal/stat"
	"fulcrum/internal/tokenizer"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/vl/pixels"
	"fulcrum/selector/weights"
)

// Encoder is a frozen CLIP model. Its methods are not for concurrent use, except Picture and Tokens.
type Encoder struct {
	Dim    int    // of an embedding
	Digest string // of configuration, weights, pixels and tokens: equal digests mean equal embeddings, but for rounding

	cfg         *Config
	process     *processor
	text        *tokenizer.Tokenizer
	dtype       torchx.DType
	device      string
	frozen      *weights.Frozen
	towerOf     map[string]*tower // text_model, vision_model
	close       int64             // the token that ends a text
	fingerprint string            // of the weights
}

// tower is the weights of one transformer: norms before, biases everywhere.
type tower struct {
	Tower
	layers       []layer
	tokens       torchx.Tensor // text: their embeddings
	class, patch torchx.Tensor // vision: the first row, and what makes rows of pixels
	places       torchx.Tensor // the embeddings of positions
	first        norm          // vision: before the layers
	last         norm          // of the pooled row
	out          torchx.Tensor
}

type layer struct {
	norm1, norm2 norm
	q, k, v, o   lora.Layer
	fc1, fc2     lora.Layer
}

// linear is a linear layer by the end of its name.
type linear struct {
	name string
	*lora.Layer
}

// linears lists the layers that can be adapted.
func (l *layer) linears() []linear {
	return []linear{{"self_attn.q_proj", &l.q}, {"self_attn.k_proj", &l.k}, {"self_attn.v_proj", &l.v}, {"self_attn.out_proj", &l.o},
		{"mlp.fc1", &l.fc1}, {"mlp.fc2", &l.fc2}}
}

type norm struct{ weight, bias torchx.Tensor }

// Open reads a folder to the device. dtype is float32 or bfloat16, the type of the computation; embeddings are float32.
func Open(path, dtype, device string) (*Encoder, error) {
	folder, err := hffolder.Open(path)
	if err != nil {
		return nil, err
	}
	types := map[string]torchx.DType{"float32": torchx.Float32, "bfloat16": torchx.BFloat16, "float64": torchx.Float64} // the last for tests
	e := &Encoder{frozen: weights.NewFrozen(folder), device: device, dtype: types[dtype]}
	if err := e.open(path, folder); err != nil {
		e.Free()
		return nil, err
	}
	return e, nil
}

func (e *Encoder) open(path string, folder *hffolder.Folder) error {
	var err error
	if e.cfg, err = ParseConfig(folder.Config); err != nil {
		return fmt.Errorf("%s: config.json: %w", path, err)
	}
	if e.process, err = openProcessor(path, e.cfg.Vision); err != nil {
		return err
	}
	if e.text, err = tokenizer.Open(path); err != nil {
		return err
	}
	before, after := e.text.Special()
	if len(before) != 1 || len(after) != 1 {
		return fmt.Errorf("%s: the tokenizer puts %d and %d tokens around a text: want one before and one after", path, len(before), len(after))
	}
	if n := e.text.Size(); n > e.cfg.Text.Vocab {
		return fmt.Errorf("%s: the tokenizer has %d tokens, the model %d", path, n, e.cfg.Text.Vocab)
	}
	e.close, e.Dim = after[0], e.cfg.Projection
	for key, n := range map[string]int{"text_config.num_hidden_layers": e.cfg.Text.Layers,
		"vision_config.num_hidden_layers": e.cfg.Vision.Layers} {
		if err := folder.CheckLayers(key, n); err != nil {
			return err
		}
	}
	names := []string{"text_model", "vision_model"}
	var wants []hffolder.Want
	for _, name := range names {
		e.cfg.tower(name, func(name string, shape ...int) (none torchx.Tensor) {
			wants = append(wants, hffolder.Want{Name: name, Shape: shape})
			return none
		})
	}
	e.fingerprint = folder.Fingerprint()
	known := func(name string) bool { return name == "logit_scale" || strings.HasSuffix(name, ".position_ids") }
	if err := folder.Check(wants, known); err != nil {
		return err
	}
	for _, w := range wants {
		t, _ := folder.Tensor(w.Name)
		e.frozen.Place(w.Name, t, e.dtype, e.device)
	}
	e.frozen.Placed()
	e.towerOf = map[string]*tower{}
	for _, name := range names {
		e.towerOf[name] = e.cfg.tower(name, func(name string, _ ...int) torchx.Tensor { return e.frozen.Tensors[name] })
	}
	parts := [][]byte{[]byte(e.fingerprint), fmt.Append(nil, *e.cfg, *e.process)}
	for _, name := range []string{"tokenizer.json", "vocab.json", "merges.txt"} {
		data, err := regular.ReadOptional(filepath.Join(path, name))
		if err != nil {
			return err
		}
		parts = append(parts, data)
	}
	e.Digest = digest.Of(parts...)[:32]
	return nil
}

func (e *Encoder) Free() { e.frozen.Free() }

// patches is how many a picture has.
func (t Tower) patches() int { return t.Image / t.Patch * (t.Image / t.Patch) }

// tower puts one transformer together from the tensors that get returns.
func (c *Config) tower(name string, get func(name string, shape ...int) torchx.Tensor) *tower {
	at, t := name+".embeddings.", &tower{Tower: c.Text}
	if name == "vision_model" {
		t.Tower = c.Vision
		t.Positions = t.patches() + 1
	}
	d := t.Hidden
	norm := func(n string) norm { return norm{get(n+".weight", d), get(n+".bias", d)} }
	t.places = get(at+"position_embedding.weight", t.Positions, d)
	if name == "text_model" {
		t.tokens, t.last = get(at+"token_embedding.weight", t.Vocab, d), norm("text_model.final_layer_norm")
		t.out = get("text_projection.weight", c.Projection, d)
	} else {
		t.class, t.patch = get(at+"class_embedding", d), get(at+"patch_embedding.weight", d, t.Channels, t.Patch, t.Patch)
		t.first, t.last = norm("vision_model.pre_layrnorm"), norm("vision_model.post_layernorm") // spelt so in every folder
		t.out = get("visual_projection.weight", c.Projection, d)
	}
	for i := range t.Layers {
		at := fmt.Sprintf("%s.encoder.layers.%d.", name, i)
		l := layer{norm1: norm(at + "layer_norm1"), norm2: norm(at + "layer_norm2")}
		for _, of := range l.linears() {
			in, out := d, d
			switch of.name {
			case "mlp.fc1":
				out = t.Intermediate
			case "mlp.fc2":
				in = t.Intermediate
			}
			*of.Layer = lora.Layer{Weight: get(at+of.name+".weight", out, in), Bias: get(at+of.name+".bias", out)}
		}
		t.layers = append(t.layers, l)
	}
	return t
}

func (t *tower) norm(x torchx.Tensor, n norm) torchx.Tensor {
	return torchx.LayerNorm(x, n.weight, n.bias, t.Eps)
}

// run passes packed rows x [N, d] through the layers and returns the projections of the rows at pooled, [B, Dim].
func (e *Encoder) run(t *tower, x torchx.Tensor, spans []torchx.Span, pooled []int64, p *lora.Pass) torchx.Tensor {
	lengths := list.Map(spans, func(s torchx.Span) int { return s.QLen })
	p = p.Over(lengths)
	for i := range t.layers {
		next := e.layer(t, &t.layers[i], x, spans, p)
		x.Free()
		x = next
	}
	x = torchx.IndexSelect(x, 0, torchx.From(pooled, len(pooled)).ToDevice(e.device)) // [B, d]
	return torchx.Linear(t.norm(x, t.last), t.out, torchx.Tensor{})
}

// layer is one layer: x [N, d] → [N, d].
func (e *Encoder) layer(t *tower, l *layer, x torchx.Tensor, spans []torchx.Span, p *lora.Pass) torchx.Tensor {
	defer torchx.Scope()()
	d := t.Hidden / t.Heads
	of := func(w *lora.Layer, y torchx.Tensor) torchx.Tensor { return w.Apply(y, e.dtype, p) }
	heads := func(w *lora.Layer, y torchx.Tensor) torchx.Tensor { return torchx.Reshape(of(w, y), -1, t.Heads, d) }
	y := t.norm(x, l.norm1)
	seen := torchx.Attend(heads(&l.q, y), heads(&l.k, y), heads(&l.v, y), spans, 1/math.Sqrt(float64(d))) // [N, H, d/H]
	x = torchx.Add(x, of(&l.o, torchx.Reshape(seen, -1, t.Hidden)))
	y = torchx.Activations()[t.Activation](of(&l.fc1, t.norm(x, l.norm2)))
	return torchx.Keep(torchx.Add(x, of(&l.fc2, y)))
}

// alone takes the projections [B, Dim] of a model without adapters to the host, of unit length.
func (e *Encoder) alone(project func() torchx.Tensor) (rows []float32, err error) {
	defer torchx.Recover(&err)
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	return Unit(torchx.Data[float32](project().To(torchx.Float32).ToDevice("cpu")), e.Dim)
}

// Unit divides rows of dim numbers, in place, by their lengths, computed in float64. A row that is not finite is an error.
func Unit(rows []float32, dim int) ([]float32, error) {
	for row := range slices.Chunk(rows, dim) {
		sum := 0.0
		for _, v := range row {
			sum += float64(v) * float64(v)
		}
		length := math.Sqrt(sum)
		for i, v := range row {
			if row[i] = float32(float64(v) / length); row[i]-row[i] != 0 {
				return nil, errors.New("an embedding is not finite: are the weights those of the model?")
			}
		}
	}
	return rows, nil
}

// Picture returns the rows of pixels of a picture: what Images takes.
func (e *Encoder) Picture(path string) ([]float32, error) {
	img, err := pixels.Decode(path)
	if err != nil {
		return nil, err
	}
	return e.process.patches(pixels.ToRGB(img)), nil
}

// Images returns the embeddings of pictures, [len(pictures), Dim]. A row that is not finite is an error.
func (e *Encoder) Images(pictures [][]float32) ([]float32, error) {
	return e.alone(func() torchx.Tensor { return e.images(e.towerOf["vision_model"], pictures, &lora.Pass{}) })
}

// images returns the projections of pictures by a tower, [len(pictures), Dim].
func (e *Encoder) images(t *tower, pictures [][]float32, p *lora.Pass) torchx.Tensor {
	v := e.cfg.Vision
	n, width, B := v.patches()+1, 3*v.Patch*v.Patch, len(pictures)
	patches := torchx.From(slices.Concat(pictures...), B*(n-1), width).ToDevice(e.device).To(e.dtype)
	kernel := torchx.Reshape(t.patch, v.Hidden, width)
	x := torchx.Reshape(torchx.Linear(patches, kernel, torchx.Tensor{}), B, n-1, v.Hidden)
	class := torchx.Reshape(t.class, 1, 1, v.Hidden)
	x = torchx.Cat(1, torchx.Expand(class, B, 1, v.Hidden), x) // [B, n, d]
	x = torchx.Add(x, t.places)
	x = t.norm(torchx.Reshape(x, B*n, v.Hidden), t.first)
	spans, first := make([]torchx.Span, B), make([]int64, B)
	for i := range spans {
		spans[i] = torchx.Span{Q: i * n, QLen: n, Own: i * n, OwnLen: n}
		first[i] = int64(i * n)
	}
	return e.run(t, x, spans, first, p)
}

// Tokens returns the ids of a text, of at most the model's positions: a longer one loses its end, as in transformers, and cut
// is true.
func (e *Encoder) Tokens(text string) (ids []int64, cut bool) {
	ids = e.text.EncodeSpecial(text)
	most := e.cfg.Text.Positions
	if len(ids) <= most {
		return ids, false
	}
	return append(ids[:most-1], e.close), true
}

// Texts returns the embeddings of texts, [len(texts), Dim]. A row that is not finite is an error.
func (e *Encoder) Texts(texts [][]int64) ([]float32, error) {
	return e.alone(func() torchx.Tensor { return e.texts(e.towerOf["text_model"], texts, &lora.Pass{}) })
}

// texts returns the projections of texts by a tower, [len(texts), Dim].
func (e *Encoder) texts(t *tower, texts [][]int64, p *lora.Pass) torchx.Tensor {
	var at, pooled []int64
	var spans []torchx.Span
	for _, ids := range texts {
		from := len(at)
		at = append(at, list.Convert[int64](stat.Indices(len(ids)))...)
		spans = append(spans, torchx.Span{Q: from, QLen: len(ids), Own: from, OwnLen: len(ids), Causal: true})
		pooled = append(pooled, int64(from+e.pool(ids)))
	}
	look := func(table torchx.Tensor, index []int64) torchx.Tensor {
		return torchx.Embedding(table, torchx.From(index, len(index)).ToDevice(e.device)).To(e.dtype)
	}
	x := torchx.Add(look(t.tokens, slices.Concat(texts...)), look(t.places, at)) // [N, d]
	return e.run(t, x, spans, pooled, p)
}

// pool is the place of the token whose row stands for a text: its end. Folders that give eos_token_id as 2 mean the highest id.
func (e *Encoder) pool(ids []int64) int {
	if e.cfg.Text.EOS == legacyEOS {
		return slices.Index(ids, slices.Max(ids))
	}
	return max(0, slices.Index(ids, e.cfg.Text.EOS))
}
