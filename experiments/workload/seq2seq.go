package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"fulcrum/beamdata/conversation"
	"fulcrum/experiments/job"
	"fulcrum/internal/chat"
	"fulcrum/internal/tokenizer"
	"fulcrum/internal/usage"
	"fulcrum/selector/prompts"
	"fulcrum/selector/seq2seq"
	"fulcrum/selector/tokens"
)

// seq2seqWorkload trains T5 or BART to write the targets of source texts.
type seq2seqWorkload struct {
	textWorkload[[]int64]
}

// seq2seqPolicy is policy=seq2seq.
func seq2seqPolicy() Policy {
	return Policy{
		Policy: job.Policy{New: newSeq2SeqWorkload, Section: "seq2seq", Help: "the encoder-decoder", Options: new(seq2seq.DefaultOptions()),
			Trains: []string{"rewards", "sft.average"}, Ignores: []string{"records_icl", "mm_projector_lr", "vision_tower_lr"},
			Text: func(c *job.Config) *tokens.Options { return &seq2seqOf(c).Options }},
		OpenText: newSeq2SeqText, OpenFolder: openSeq2SeqFolder,
		Asks: func(prompt string) (PromptLine, error) { return PromptLine{Source: &prompt}, nil },
	}
}

func seq2seqOf(c *job.Config) *seq2seq.Options { return job.Own[seq2seq.Options](c, "seq2seq") }

func openSeq2SeqFolder(path string, base *string, folder string, warn func(string)) (folderModel, func(out string) error, error) {
	options := seq2seq.DefaultOptions()
	options.Path = base
	model, err := seq2seq.OpenCheckpoint(path, options, "cpu", 0, warn)
	return model, func(out string) error {
		tokens, err := tokenizer.Open(folder)
		if err != nil {
			return err
		}
		return tokens.Save(out)
	}, err
}

// newSeq2SeqWorkload reads the data and builds the model.
func newSeq2SeqWorkload(ctx context.Context, j *job.Job) (job.Workload, error) {
	data, err := newTextWorkload[[]int64](ctx, j)
	if err != nil {
		return nil, err
	}
	if !seq2seqOf(j.Config).Trains() {
		return nil, usage.Errorf("seq2seq: nothing would be trained: seq2seq.lora.enabled=true, or seq2seq.tune_all=true")
	}
	model, words, err := openSeq2Seq(j, data.bundle)
	if err != nil {
		return nil, err
	}
	w := &seq2seqWorkload{data}
	w.policy, w.model = seq2seq.NewPolicy(model), model
	w.length = func(ids []int64) int { return len(ids) }
	w.render = func(s conversation.Sample) ([]int64, error) {
		return words.cut(words.tokens.EncodeSpecial(s.Text())), oneText(s)
	}
	w.text = prompts.Text{Encode: words.target, Decode: words.text, EOS: model.EOS(), MaxTokens: seq2seqOf(j.Config).Generation.MaxNewTokens}
	w.limit = "seq2seq.generation.max_new_tokens"
	warnOfUndone(j, model.Generation().FolderSampling)
	err = w.check(model)
	if err == nil {
		err = w.warnOfCutSources(words)
	}
	if err != nil {
		w.policy.Free()
		return nil, err
	}
	return w, nil
}

// warnOfCutSources says how many sources are longer than the model reads.
func (w *seq2seqWorkload) warnOfCutSources(words words) error {
	const looked = 256
	n, cut := min(looked, w.bundle.Train.Len()), 0
	for i := range n {
		s, err := w.bundle.Train.Sample(i)
		if err != nil {
			return err
		}
		if len(words.tokens.EncodeSpecial(s.Text())) > words.longest {
			cut++
		}
	}
	if cut > 0 {
		w.job.Log.Warnf("%d of the first %d sources are longer than seq2seq.max_source_tokens=%d: what lies beyond is not read",
			cut, n, words.longest)
	}
	return nil
}

// check refuses data and lengths that the model cannot do, and reads a few samples.
func (w *seq2seqWorkload) check(m *seq2seq.Model) error {
	if len(m.EOS()) == 0 {
		return usage.Errorf("seq2seq.path: neither generation_config.json nor config.json names an eos_token_id: completions would " +
			"never end")
	}
	if p := m.Config().Positions; p > 0 && w.text.MaxTokens > p {
		return usage.Errorf("seq2seq.generation.max_new_tokens=%d: the model has %d positions", w.text.MaxTokens, p)
	}
	for _, set := range []*conversation.Set{w.bundle.Train, w.bundle.Val, w.bundle.Eval} {
		if set.Len() == 0 {
			continue
		}
		s, err := set.Sample(0)
		if err != nil {
			return err
		}
		if err := oneText(s); err != nil {
			return fmt.Errorf("data.name=%s: %s: %w", w.bundle.Name, s.Name, err)
		}
	}
	return w.probe()
}

// oneText refuses a prompt that is more than a text.
func oneText(s conversation.Sample) error {
	notText := func(p chat.Part) bool { return p.Type != chat.Text }
	if len(s.Messages) != 1 || slices.ContainsFunc(s.Messages[0].Parts, notText) {
		return usage.Errorf("a conversation of several turns or with pictures: policy=seq2seq reads a source text (data=texts, data=summaries)")
	}
	return nil
}

// words turns texts into what the model reads and writes, and back.
type words struct {
	tokens  *tokenizer.Tokenizer
	longest int // tokens of a source
}

// cut shortens the ids of a source; the special token at its end stays.
func (w words) cut(ids []int64) []int64 {
	if len(ids) <= w.longest {
		return ids
	}
	_, after := w.tokens.Special()
	return append(ids[:w.longest-len(after):w.longest-len(after)], after...)
}

// target returns the ids of a target but for the token that ends it: with the <s> that BART's begin with.
func (w words) target(text string) []int64 {
	before, _ := w.tokens.Special()
	return append(before, w.tokens.Encode(text)...)
}

// text returns what ids say, without special tokens.
func (w words) text(ids []int64) string { return w.tokens.Decode(ids, true) }

// openSeq2Seq opens or makes the model and its tokenizer. bundle is nil for tasks without training data.
func openSeq2Seq(j *job.Job, bundle *conversation.Bundle) (*seq2seq.Model, words, error) {
	c, opt := j.Config, seq2seqOf(j.Config)
	warn := func(message string) { j.Log.Warnf("%s", message) }
	t, checkpoint, err := openWords(j, seq2seq.Kind, &opt.Options, true, bundle, tokenizer.Open, builtinWords)
	if err != nil {
		return nil, words{}, err
	}
	var model *seq2seq.Model
	switch {
	case checkpoint != "":
		model, err = seq2seq.OpenCheckpoint(checkpoint, *opt, j.Device, c.Seed, warn)
	case opt.Path != nil:
		model, err = seq2seq.Open(*opt, j.Device, c.Seed, warn)
	default:
		model, err = seq2seq.New(*opt, specialOf(t), j.Device, c.Seed)
	}
	if err != nil {
		return nil, words{}, err
	}
	model.Warn = warn
	if n, rows := needed(t), model.Config().Vocab; n > rows {
		err = fmt.Errorf("the tokenizer has %d tokens, but the model's vocabulary only %d", n, rows)
	}
	if err == nil {
		err = settleAdapters(j, "seq2seq", checkpoint, opt.Options, model.Adapted())
	}
	if err == nil && bundle != nil && opt.Path == nil && !c.DryRun {
		err = keepModel(j, model.Config().Raw, t.Save)
	}
	if err != nil {
		model.Free()
		return nil, words{}, err
	}
	return model, words{t, model.MaxSourceTokens()}, nil
}

// builtinWords trains a small vocabulary on the texts of the data.
func builtinWords(c *job.Config, b *conversation.Bundle) (*tokenizer.Tokenizer, error) {
	sizes := seq2seqOf(c).Scratch
	var corpus []string
	for _, set := range []*conversation.Set{b.Train, b.Demos} {
		step := max(1, set.Len()/corpusSamples)
		for i := 0; i < set.Len(); i += step {
			s, err := set.Sample(i)
			if err != nil {
				return nil, err
			}
			corpus = append(corpus, s.Text(), s.Reference)
		}
	}
	layout := tokenizer.T5
	if sizes.Model == "bart" {
		layout = tokenizer.BART
	}
	t, err := tokenizer.Scratch(corpus, sizes.VocabSize, layout)
	if err != nil {
		return nil, usage.Errorf("seq2seq.scratch.vocab_size: %v", err)
	}
	return t, nil
}

// specialOf tells a model from random weights what its tokenizer needs.
func specialOf(t *tokenizer.Tokenizer) seq2seq.Vocabulary {
	v := seq2seq.Vocabulary{Size: t.Size()}
	v.Pad, _ = t.ID("<pad>")
	v.EOS, _ = t.ID("</s>")
	if before, _ := t.Special(); len(before) > 0 {
		v.BOS = &before[0]
	}
	return v
}

// needed is the number of tokens that texts consist of: bart-large-cnn has no row for <mask>, which is added at the end of its tokenizer.
func needed(t *tokenizer.Tokenizer) int {
	n := t.Size()
	for _, a := range slices.Backward(t.Added()) {
		if a.Special && a.ID == n-1 {
			n--
		}
	}
	return n
}

// --- task=generate and task=score

func newSeq2SeqText(j *job.Job, o *GenerateOptions) (TextModel, error) {
	return openText(j, o, func() (*textModel[[]int64], error) {
		// fresh adapters would add nothing; those of seq2seq.adapter and init.checkpoint come all the same
		seq2seqOf(j.Config).LoRA.Enabled = false
		model, w, err := openSeq2Seq(j, nil)
		if err != nil {
			return nil, err
		}
		told := false // that a source was cut
		return &textModel[[]int64]{encode: w.target, decode: w.text, vocab: model.Config().Vocab, positions: model.Config().Positions,
			folder: model.Generation().FolderSampling,
			prompt: func(line PromptLine, _ string) ([]int64, int, error) {
				ids := []int64(line.SourceIDs)
				switch {
				case line.Source != nil && ids != nil:
					return nil, 0, errors.New("want source or source_ids, got both")
				case line.Source != nil:
					all := w.tokens.EncodeSpecial(*line.Source)
					ids = w.cut(all)
					if len(ids) < len(all) && line.ID == nil { // of a judge, whose question ends with what is judged
						return nil, 0, fmt.Errorf("a prompt of %d tokens: the model reads %d", len(all), len(ids))
					}
					if len(ids) < len(all) && !told {
						told = true
						j.Log.Warnf("id %s: the source has %d tokens and is cut to %d (seq2seq.max_source_tokens); further ones are cut "+
							"without a word", line.ID, len(all), len(ids))
					}
				case len(ids) == 0:
					return nil, 0, errors.New(`want "source" (text) or "source_ids" (token ids)`)
				}
				return ids, len(ids), model.CheckSource(ids)
			},
			adapt: func(o GenerateOptions, how *tokens.GenerateOptions) {
				if o.IgnoreEOS { // nothing but the model decides, on the first and the last token too
					how.First, how.Last = []int64{}, []int64{}
				}
			},
			generate: model.Generate, score: model.LogProbs, fits: model.CheckCompletion, free: model.Free}, nil
	})
}
