package seq2seq

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
)

// finalBias is BART's constant added to all logits: never trained, and zero where a folder has none.
const finalBias = "final_logits_bias"

func sides() []string { return []string{"encoder", "decoder"} }

// weightNames lists the tensors of a model under their names in the published folders (spec §12), in the order of the
// computation, with their shapes. A tied table appears once. BART's final_logits_bias is not among them.
func (c *Config) weightNames() []torchx.Spec {
	var b tokens.Builder
	(&Model{cfg: c}).build(&b)
	return b.Specs
}

func (c *Config) stack(side string) Stack {
	if side == "encoder" {
		return c.Encoder
	}
	return c.Decoder
}

// embedding is the name of the table that encoder, decoder and a tied head share.
func (c *Config) embedding() string {
	if c.Kind == kindT5 {
		return "shared.weight"
	}
	return "model.shared.weight"
}

// aliases lists the names under which folders hold a tensor, the usual one first: BART saved from its bare model lacks the
// prefix, and of tied tensors any one may be there alone.
func (c *Config) aliases(name string) []string {
	names := []string{name}
	if name == c.embedding() {
		prefix, _ := strings.CutSuffix(name, "shared.weight")
		names = append(names, prefix+"encoder.embed_tokens.weight", prefix+"decoder.embed_tokens.weight")
		if c.Tied {
			names = append(names, "lm_head.weight")
		}
	}
	if c.Kind == kindBART {
		for _, n := range slices.Clone(names) {
			if bare, ok := strings.CutPrefix(n, "model."); ok {
				names = append(names, bare)
			}
		}
	}
	return names
}

// stray reports whether folders may hold a tensor that the model does not need: copies of the shared table, a table of
// old T5 checkpoints that nobody reads, and version marks.
func (c *Config) stray(name string) bool {
	return slices.Contains(c.aliases(c.embedding()), name) || strings.HasSuffix(name, "coder.version") ||
		c.Kind == kindT5 && name == "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
}

// find returns the folder's tensor of a weight, under whatever name it lies there.
func (c *Config) find(folder *hffolder.Folder, name string) (tensorfile.Tensor, string, bool) {
	for _, alias := range c.aliases(name) {
		if t, ok := folder.Tensor(alias); ok {
			return t, alias, true
		}
	}
	return tensorfile.Tensor{}, name, false
}

// settleHead looks whether the folder holds a head of its own beside the shared table. transformers takes such a head
// whatever config.json says, and writes tie_word_embeddings = true for every T5 since version 5.
func (c *Config) settleHead(folder *hffolder.Folder) error {
	_, table, _ := c.find(folder, c.embedding())
	if folder.Differ("lm_head.weight", table) {
		if c.Kind == kindBART {
			return fmt.Errorf("%s: lm_head.weight differs from %s: want BART's head to be its embedding", folder.Path, table)
		}
		c.Tied = false
	}
	return nil
}

// checkFolder names the tensors that are missing or not expected, and those of another shape.
func (c *Config) checkFolder(folder *hffolder.Folder) error {
	var want []hffolder.Want
	for _, s := range c.weightNames() {
		_, name, _ := c.find(folder, s.Name)
		want = append(want, hffolder.Want{Name: name, Shape: s.Shape})
	}
	if _, ok := folder.Tensor(finalBias); ok && c.Kind == kindBART {
		want = append(want, hffolder.Want{Name: finalBias, Shape: []int{1, c.Vocab}})
	}
	return folder.Check(want, c.stray)
}

// tunedAll is what checkpoints call the parts that are trained whole, where all weights are.
func tunedAll() []string { return []string{"all"} }

// layout says what of the model is trained under these options.
func (c *Config) layout(o Options) tokens.Layout {
	l := tokens.Layout{Names: names(), Config: c.Raw, FileType: c.DType, Vocab: c.Vocab, All: c.weightNames(), Linears: c.linears(),
		Targets: c.targets(), TaskType: "SEQ_2_SEQ_LM", NoFloat16: true, Tuned: func(string) bool { return o.TuneAll || o.Path == nil }}
	if o.TuneAll {
		l.Parts = tunedAll()
	}
	l.Find = func(folder *hffolder.Folder, name string) tensorfile.Tensor {
		t, _, _ := c.find(folder, name)
		return t
	}
	return l
}

// linears lists the layers that adapters can be put on: all but tables and the head.
func (c *Config) linears() []lora.Linear {
	return lora.Linears(c.weightNames(), func(name string) bool { // tables are looked up row by row
		return name == "lm_head" || strings.HasSuffix(name, "shared") || strings.HasSuffix(name, "relative_attention_bias") ||
			strings.HasSuffix(name, "embed_positions")
	})
}

// targets are the modules that adapters go on where the options name none.
func (c *Config) targets() []string {
	if c.Kind == kindT5 {
		return []string{"q", "v"}
	}
	return []string{"q_proj", "v_proj"}
}

// startStd is the standard deviation of a matrix at the start: one for all in BART; in T5, whose attention has no
// scale and whose tied head divides by √d_model, that which keeps all sums of order one (Raffel et al. 2020, as Mesh
// TensorFlow has it).
func (c *Config) startStd(spec torchx.Spec) float64 {
	if c.Kind == kindBART {
		return c.InitStd
	}
	name, width := spec.Name, float64(c.Width)
	switch {
	case name == "shared.weight" || name == "lm_head.weight":
		return c.InitStd
	case strings.HasSuffix(name, ".q.weight"):
		return c.InitStd / math.Sqrt(width*float64(c.Encoder.HeadDim))
	case strings.HasSuffix(name, ".relative_attention_bias.weight"):
		return c.InitStd / math.Sqrt(width)
	}
	return c.InitStd / math.Sqrt(float64(spec.Shape[len(spec.Shape)-1])) // of the inputs: d_model, the inner width, or d_ff
}

func sqrt(n int) float64 { return math.Sqrt(float64(n)) }
