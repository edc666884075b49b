// Package icl chooses in-context examples for a frozen vision-language model: Local asks one in this process how likely an
// answer is and what it would answer, Search grows beams of examples by such scores.
//
//	local, err := icl.NewLocal(model, processor, identity, options)
//	scores, err := local.Score(ctx, prompts)       // per token, nats
//	beams, err := search.Beams(ctx, query, pool)   // the best sequences of examples for a query
package icl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"fulcrum/experiments/lvlm"
	"fulcrum/internal/chat"
	"fulcrum/internal/digest"
	"fulcrum/internal/list"
	"fulcrum/internal/regular"
	"fulcrum/internal/torchx"
	"fulcrum/selector/vl"
	"fulcrum/selector/vl/pixels"
	"fulcrum/selector/vl/processor"
)

// Local is a lvlm.Scorer: Qwen2.5-VL in this process, frozen. Prompts of one call that begin alike are computed once
// (vl.Shared), and so is each picture while it is remembered. Calls may come from any goroutine while the one that trains
// waits: one of Local's own does all that needs libtorch.
type Local struct {
	model    vl.Shared
	proc     *processor.Processor
	end      int64 // the token that ends the assistant's turn
	answers  vl.GenerateOptions
	identity lvlm.Identity
	calls    chan func()
}

// LocalOptions are what of the section lvlm concerns the model in this process.
type LocalOptions struct {
	Template     *string // file of a Jinja chat template; nil = the model's own
	ImageSize    int     // larger images are scaled down to image_size² pixels; 0 = as the model's folder says
	MaxNewTokens int
	Threads      int
}

// NewLocal returns the scorer of a model, which it owns. model names it: the digest of what it was opened from.
func NewLocal(m *vl.Model, p *processor.Processor, model string, o LocalOptions) (*Local, error) {
	template := p.Template()
	if o.Template != nil {
		text, err := regular.ReadFile(*o.Template)
		if err == nil {
			template, err = chat.Parse(string(text))
		}
		if err != nil {
			return nil, fmt.Errorf("lvlm.template=%s: %w", *o.Template, err)
		}
	}
	var config *pixels.Config
	if c, reads := p.Pixels(); reads {
		if o.ImageSize > 0 {
			c.MaxPixels = min(c.MaxPixels, o.ImageSize*o.ImageSize)
			c.MinPixels = min(c.MinPixels, c.MaxPixels)
		}
		if err := c.Validate(); err != nil {
			return nil, fmt.Errorf("lvlm.image_size=%d: %w", o.ImageSize, err)
		}
		config = &c
	}
	p, err := processor.New(p.Tokenizer(), template, config, p.IDs())
	if err != nil {
		return nil, err
	}
	end, err := endOfTurn(p)
	if err != nil {
		return nil, fmt.Errorf("lvlm.template: %w", err)
	}
	if err := m.EndAt(p.EOS()); err != nil {
		return nil, err
	}
	l := &Local{model: vl.Shared{Model: m}, proc: p, end: end, calls: make(chan func()), identity: lvlm.Identity{Backend: "local",
		Model: model, Template: digest.Of([]byte(template.Source())), ImageSize: o.ImageSize}}
	if m.DType != torchx.Float32 { // a GPU's numbers in bfloat16 are not those of the CPU
		l.identity.Engine = m.DType.String()
	}
	l.answers.SamplingOptions = vl.DefaultSampling()
	l.answers.MaxNewTokens, l.answers.Temperature, l.answers.EOS = o.MaxNewTokens, 0, m.EOS()
	if !slices.Contains(l.answers.EOS, end) {
		l.answers.EOS = append(slices.Clone(l.answers.EOS), end)
	}
	go func() {
		torchx.Attach(o.Threads)
		for call := range l.calls {
			call()
		}
	}()
	return l, nil
}

// endOfTurn returns the token that follows an answer, and refuses a template whose answered turn does not begin as the open
// one: the answer's tokens would not be where they are looked for.
func endOfTurn(p *processor.Processor) (int64, error) {
	const answer = "a"
	msgs := []chat.Message{{Role: "user", Text: "q"}, {Role: "assistant", Text: answer}}
	open, err := p.Prompt(msgs[:1])
	if err != nil {
		return 0, err
	}
	whole, err := p.Render(msgs, chat.RenderOptions{})
	if err != nil {
		return 0, err
	}
	begin := slices.Concat(open.IDs, p.Tokenizer().Encode(answer))
	if !strings.HasPrefix(whole.Text, open.Text+answer) || len(whole.IDs) < len(begin) || !slices.Equal(whole.IDs[:len(begin)], begin) {
		return 0, fmt.Errorf("an answered turn reads %q, which does not begin with the open one %q and the answer", whole.Text, open.Text)
	}
	if len(whole.IDs) > len(begin) {
		return whole.IDs[len(begin)], nil
	}
	return p.EOS()[0], nil
}

// Identity says whose numbers these are.
func (l *Local) Identity() lvlm.Identity { return l.identity }

func (l *Local) Close() error {
	l.run(func() error { l.model.Free(); return nil })
	close(l.calls)
	return nil
}

// run calls f where libtorch is attached.
func (l *Local) run(f func() error) error {
	done := make(chan error)
	l.calls <- func() { done <- f() }
	return <-done
}

// Score returns the likelihood of each prompt's answer, the token that ends the turn included. The tokens are those of the
// answer alone, behind those of the prompt: where they begin never depends on the length of a text.
func (l *Local) Score(ctx context.Context, prompts []lvlm.Prompt) ([]lvlm.Likelihood, error) {
	groups := make([]vl.Group, len(prompts))
	for i, p := range prompts {
		answer := p.Query.Answer
		p.Query.Answer = ""
		ids := append(l.proc.Tokenizer().Encode(answer), l.end)
		prompt, err := l.prompt(ctx, p, len(ids))
		if err == nil && answer == "" {
			err = errors.New("no answer to score")
		}
		if err != nil {
			return nil, fmt.Errorf("query %d: %w", p.Query.ID, err)
		}
		groups[i] = vl.Group{Prompt: prompt, Completions: [][]int64{ids}}
	}
	var logp [][][]float64
	if err := l.run(func() (err error) { logp, err = l.model.LogProbs(groups); return err }); err != nil {
		return nil, err
	}
	return list.Make(len(prompts), func(i int) lvlm.Likelihood {
		return lvlm.Likelihood{Tokens: list.Convert[int](groups[i].Completions[0]), LogProbs: logp[i][0]}
	}), nil
}

// Answer returns the greedy answers, without special tokens and the blanks around them.
func (l *Local) Answer(ctx context.Context, prompts []lvlm.Prompt) ([]lvlm.Reply, error) {
	asked := make([]*processor.Prompt, len(prompts))
	for i, p := range prompts {
		p.Query.Answer = ""
		var err error
		if asked[i], err = l.prompt(ctx, p, l.answers.MaxNewTokens); err != nil {
			return nil, fmt.Errorf("query %d: %w", p.Query.ID, err)
		}
	}
	var answers []vl.Completion
	if err := l.run(func() (err error) { answers, err = l.model.Generate(asked, l.answers); return err }); err != nil {
		return nil, err
	}
	return list.Make(len(prompts), func(i int) lvlm.Reply {
		return lvlm.Reply{Text: strings.TrimSpace(l.proc.Tokenizer().Decode(answers[i].IDs, true)), Tokens: len(asked[i].IDs)}
	}), nil
}

// prompt reads a prompt's pictures and tokens, and refuses one without room for the answer.
func (l *Local) prompt(ctx context.Context, p lvlm.Prompt, answer int) (*processor.Prompt, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out, err := l.proc.Prompt(lvlm.Messages(p))
	if err == nil {
		err = l.model.CheckPrompt(len(out.IDs), answer)
	}
	return out, err
}

// Tokens returns the length of a prompt, its pictures' placeholders included.
func (l *Local) Tokens(p lvlm.Prompt) (int, error) {
	p.Query.Answer = ""
	out, err := l.prompt(context.Background(), p, 1)
	if err != nil {
		return 0, err
	}
	return len(out.IDs), nil
}
