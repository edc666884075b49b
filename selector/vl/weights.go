package vl

import (
	"strings"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/list"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
)

// weightNames lists the tensors of a model under their names in the published folders, in the order of the computation
// (spec §11), with their shapes.
func (c *Config) weightNames() []torchx.Spec {
	var b tokens.Builder
	if c.Vision != nil {
		c.tower(&b)
	}
	c.decoder(&b)
	return b.Specs
}

// layout says what of the model is trained under these options.
func (c *Config) layout(o Options) tokens.Layout {
	l := tokens.Layout{Names: names(), Config: c.Raw, FileType: c.DType, Vocab: c.Vocab, All: c.weightNames(), Linears: c.linears(),
		Tuned: o.tuned, Parts: o.tunedParts()}
	if c.Vision != nil && c.Vision.Side > 0 { // a class without an older layout
		l.InFolder = hffolder.Newer
	}
	return l
}

// linears lists the layers that adapters can be put on: all but the embedding and the head, whose logits are never computed as
// a whole.
func (c *Config) linears() []lora.Linear {
	all := lora.Linears(c.weightNames(), func(name string) bool {
		return name == "model.embed_tokens" || name == "lm_head" || name == "visual.pos_embed"
	})
	for i := range all {
		if c.Vision != nil {
			all[i].Public = hffolder.Newer(all[i].Name)
		}
	}
	return all
}

// tunedParts lists the whole parts of a folder's model that are trained.
func (o Options) tunedParts() []string {
	on := list.Filter(o.parts(), func(p tunedPart) bool { return *p.on })
	return list.Map(on, func(p tunedPart) string { return p.name })
}

type tunedPart struct {
	name string
	on   *bool
}

// parts are the parts of a folder's model that can be trained whole, as checkpoints call them.
func (o *Options) parts() []tunedPart {
	return []tunedPart{{"llm", &o.TuneMMLLM}, {"vision", &o.TuneMMVision}, {"mlp", &o.TuneMMMLP}}
}

// tuned reports whether a weight, as opposed to an adapter of it, is trained.
func (o Options) tuned(name string) bool {
	switch {
	case o.Path == nil:
		return true
	case strings.HasPrefix(name, "visual.merger."):
		return o.TuneMMMLP
	case strings.HasPrefix(name, "visual."):
		return o.TuneMMVision
	}
	return o.TuneMMLLM
}
