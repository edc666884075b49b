package vl

import (
	"fmt"

	"fulcrum/internal/list"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/vl/processor"
)

// Means returns for each text the mean of the decoder's rows over its tokens, after the final norm, [len(texts), hidden_size] in float32 on the
// host: what stands for a text where a language model is the encoder. An empty text is an error.
func (m *Model) Means(texts [][]int64) (rows []float32, err error) {
	defer torchx.Recover(&err)
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	in, err := m.pack(list.Map(texts, func(ids []int64) Group { return Group{Prompt: &processor.Prompt{IDs: ids}} }), 0)
	if err != nil {
		return nil, fmt.Errorf("embed: %w", err)
	}
	hidden := m.forward(&in.rows, &lora.Pass{}).To(torchx.Float32) // [N, H]
	means := list.Map(in.prompts, func(p place) torchx.Tensor { return torchx.Mean(torchx.Narrow(hidden, 0, p.first, p.n), 0) })
	return torchx.Data[float32](torchx.Cat(0, means...).ToDevice("cpu")), nil
}
