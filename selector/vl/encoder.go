//go:build !core

package vl

import (
	"fmt"

	"fulcrum/internal/list"
	"fulcrum/internal/tokenizer"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/vl/processor"
)

// Encoder is a frozen language model that stands for a text by the mean of its last hidden states.
type Encoder struct {
	*Model
	text *tokenizer.Tokenizer
}

// OpenEncoder reads a folder to the device. dtype is that of the computation.
func OpenEncoder(path, dtype, device string) (*Encoder, error) {
	text, err := tokenizer.Open(path)
	if err != nil {
		return nil, err
	}
	opt := DefaultOptions()
	opt.Path, opt.DType, opt.LoRA.Enabled = &path, dtype, false
	model, err := Open(opt, device, 0, nil)
	return &Encoder{model, text}, err
}

// Tokens returns the ids of a text, of at most the model's positions: a longer one loses its end, and cut is true.
func (e *Encoder) Tokens(text string) (ids []int64, cut bool) {
	ids = e.text.EncodeSpecial(text)
	if most := e.cfg.Positions; most > 0 && len(ids) > most {
		return ids[:most], true
	}
	return ids, false
}

// Texts returns for each text the mean of the decoder's rows over its tokens, after the final norm, [len(texts), hidden_size] in float32 on
// the host. An empty text is an error.
func (e *Encoder) Texts(texts [][]int64) (rows []float32, err error) {
	defer torchx.Recover(&err)
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	in, err := e.pack(list.Map(texts, func(ids []int64) Group { return Group{Prompt: &processor.Prompt{IDs: ids}} }), 0)
	if err != nil {
		return nil, fmt.Errorf("embed: %w", err)
	}
	hidden := e.forward(&in.rows, &lora.Pass{}).To(torchx.Float32) // [N, H]
	means := list.Map(in.prompts, func(p place) torchx.Tensor { return torchx.Mean(torchx.Narrow(hidden, 0, p.first, p.n), 0) })
	return torchx.Data[float32](torchx.Cat(0, means...).ToDevice("cpu")), nil
}
