package tokens

import (
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
)

// Model is a network whose actions are tokens. P is a prompt in the form that the network reads.
type Model[P any] interface {
	// Tensors returns the model's weights.
	Tensors() *Weights
	// Hidden returns the rows [n, width] that predict the tokens of all completions, in order and ready for the head, and
	// those tokens. Without any token to predict it may return an undefined tensor.
	Hidden(groups []Group[P], pass *lora.Pass) (hidden torchx.Tensor, targets []int64, err error)
	// Begin checks the prompts and fills the options that opt leaves to the model. It returns the function that computes the
	// logits of the next tokens; all lists the sequences, prompt by prompt.
	Begin(prompts []P, all []*Sequence, opt *GenerateOptions) (Step, error)
	// Clone returns a model with its own copy of the trained tensors. It shares the others.
	Clone() Model[P]
}

// LogProbs returns the log-probability of every token of every completion at temperature 1, without gradient: of
// groups[i], completion j, token k at [i][j][k].
func LogProbs[P any](m Model[P], groups []Group[P]) (out [][][]float64, err error) {
	defer torchx.Recover(&err)
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	logp, _ := score(m, "score", groups, 1, &lora.Pass{})
	var all []float64
	if !logp.Nil() {
		all = logp.Floats()
	}
	return ByCompletion(groups, all), nil
}

// score returns log-probability and entropy of every token of every completion [n]; undefined for n = 0.
func score[P any](m Model[P], op string, groups []Group[P], temperature float64, pass *lora.Pass) (logp, entropy torchx.Tensor) {
	hidden, targets, err := m.Hidden(groups, pass)
	if err != nil {
		m.Tensors().fail(op, "%v", err)
	}
	if len(targets) == 0 {
		return logp, entropy
	}
	return m.Tensors().TokenLogp(hidden, targets, temperature)
}
