package workload

import (
	"context"
	"encoding/json"
	"fmt"

	"fulcrum/beamdata/conversation"
	"fulcrum/experiments/job"
	"fulcrum/internal/usage"
	"fulcrum/selector/prompts"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl"
	"fulcrum/selector/vl/pixels"
	"fulcrum/selector/vl/processor"
)

// vlWorkload trains Qwen2.5-VL on conversations.
type vlWorkload struct {
	textWorkload[*processor.Prompt]
	processor *processor.Processor
	vocab     int // rows of the vocabulary
}

// vlPolicy is policy=qwen2_5_vl.
func vlPolicy() Policy {
	return Policy{
		Policy: job.Policy{New: newVLWorkload, Section: "vl", Help: "the vision-language model", Options: new(vl.DefaultOptions()),
			Trains: []string{"rewards", "sft.average"}, Ignores: []string{"records_icl"},
			Text: func(c *job.Config) *tokens.Options { return &vlOf(c).Options }},
		OpenText: newVLText, OpenFolder: openVLFolder,
		Asks: func(prompt string) (PromptLine, error) {
			messages, err := json.Marshal([]map[string]string{{"role": "user", "content": prompt}})
			return PromptLine{Messages: messages}, err
		},
	}
}

func vlOf(c *job.Config) *vl.Options { return job.Own[vl.Options](c, "vl") }

func openVLFolder(path string, base *string, folder string, warn func(string)) (folderModel, func(out string) error, error) {
	options := vl.DefaultOptions()
	options.Path = base
	model, err := vl.OpenCheckpoint(path, options, "cpu", 0, warn)
	return model, func(out string) error {
		proc, err := processor.Open(folder)
		if err != nil {
			return err
		}
		return proc.Save(out)
	}, err
}

// newVLWorkload reads the data and builds the model.
func newVLWorkload(ctx context.Context, j *job.Job) (job.Workload, error) {
	data, err := newTextWorkload[*processor.Prompt](ctx, j)
	if err != nil {
		return nil, err
	}
	if !vlOf(j.Config).Trains() {
		return nil, usage.Errorf("vl: nothing would be trained: vl.lora.enabled=true, or tune_mm_llm, tune_mm_vision or tune_mm_mlp")
	}
	model, proc, err := openVL(j, data.bundle)
	if err != nil {
		return nil, err
	}
	if err := model.CheckTraining(); err != nil {
		model.Free()
		return nil, usage.Errorf("%v", err)
	}
	w := &vlWorkload{data, proc, model.Config().Vocab}
	w.policy, w.model = vl.NewPolicy(model), model
	w.length = func(p *processor.Prompt) int { return len(p.IDs) }
	if c, ok := proc.Pixels(); ok {
		w.shapes = pictured(c)
	}
	w.render = func(s conversation.Sample) (*processor.Prompt, error) {
		p, err := proc.Prompt(s.Messages)
		if err == nil {
			err = model.CheckPrompt(len(p.IDs), vlOf(j.Config).Generation.MaxNewTokens)
		}
		return p, err
	}
	w.text = prompts.Text{Encode: proc.Tokenizer().Encode, Decode: func(ids []int64) string { return proc.Tokenizer().Decode(ids, true) },
		EOS: model.EOS(), MaxTokens: vlOf(j.Config).Generation.MaxNewTokens}
	w.limit = "vl.generation.max_new_tokens"
	warnOfUndone(j, model.Generation().FolderSampling)
	if err = w.checkPictures(); err == nil {
		err = w.probe()
	}
	if err != nil {
		w.policy.Free()
		return nil, err
	}
	return w, nil
}

// openVL opens or makes the model and its processor. bundle is nil for tasks without training data.
func openVL(j *job.Job, bundle *conversation.Bundle) (*vl.Model, *processor.Processor, error) {
	c, opt := j.Config, vlOf(j.Config)
	warn := func(message string) { j.Log.Warnf("%s", message) }
	proc, checkpoint, err := openWords(j, vl.Kind, &opt.Options, opt.Path != nil, bundle, processor.Open, builtinProcessor)
	if err != nil {
		return nil, nil, err
	}
	if err := proc.Limit(opt.MinPixels, opt.MaxPixels); err != nil {
		return nil, nil, usage.Errorf("vl.min_pixels, vl.max_pixels: %v", err)
	}
	var model *vl.Model
	switch {
	case checkpoint != "":
		model, err = vl.OpenCheckpoint(checkpoint, *opt, j.Device, c.Seed, warn)
	case opt.Path != nil:
		model, err = vl.Open(*opt, j.Device, c.Seed, warn)
	default:
		model, err = vl.New(*opt, vocabularyOf(proc), j.Device, c.Seed)
	}
	if err != nil {
		return nil, nil, err
	}
	model.Warn = warn
	err = model.EndAt(proc.EOS())
	if err == nil {
		err = settleAdapters(j, "vl", checkpoint, opt.Options, model.Adapted())
	}
	if err == nil && bundle != nil && opt.Path == nil && !c.DryRun {
		err = keepModel(j, model.Config().Raw, proc.Save)
	}
	if err != nil {
		model.Free()
		return nil, nil, err
	}
	return model, proc, nil
}

// corpusSamples bounds what a built-in vocabulary is trained on.
const corpusSamples = 4000

// builtinProcessor trains a small vocabulary on the texts of the data.
func builtinProcessor(c *job.Config, b *conversation.Bundle) (*processor.Processor, error) {
	sizes := vlOf(c).Scratch
	var corpus []string
	taught := b.Train
	if b.Demos != nil {
		taught = b.Demos
	}
	step := max(1, taught.Len()/corpusSamples) // evenly: demonstrations of one kind may lie together
	for i := 0; i < taught.Len(); i += step {
		s, err := taught.Sample(i)
		if err != nil {
			return nil, err
		}
		for _, m := range s.Messages {
			corpus = append(corpus, m.Text)
			for _, part := range m.Parts {
				corpus = append(corpus, part.Text)
			}
		}
		corpus = append(corpus, s.Reference)
		for _, c := range s.Completions {
			corpus = append(corpus, c.Text)
		}
		corpus = append(corpus, s.Answers...)
	}
	config := pixels.DefaultConfig()
	config.MinPixels, config.MaxPixels = sizes.ImagePixels, sizes.ImagePixels
	return processor.Train(corpus, sizes.VocabSize, config)
}

// vocabularyOf tells a model from random weights what its processor needs.
func vocabularyOf(p *processor.Processor) vl.Vocabulary {
	ids := p.IDs()
	return vl.Vocabulary{Size: p.Tokenizer().Size(), EOS: ids.EOS, Pad: ids.Pad, Image: ids.ImagePad, Video: ids.VideoPad,
		VisionStart: ids.VisionStart, VisionEnd: ids.VisionEnd, VisionPad: ids.VisionPad}
}

// checkPictures reads the headers of the pictures of the first check_records samples of each set: one that is
// too small, or no picture at all, would end the run hours later.
func (w *vlWorkload) checkPictures() error {
	for _, set := range []*conversation.Set{w.bundle.Train, w.bundle.Demos, w.bundle.Val, w.bundle.Eval} {
		n := set.Len()
		if limit := w.job.Config.Data.Conversations.CheckRecords; limit != nil {
			n = min(n, *limit)
		}
		for i := range n {
			if err := w.ctx.Err(); err != nil {
				return err
			}
			s, err := set.Sample(i)
			if err == nil {
				err = w.processor.Check(s.Messages)
			}
			if err != nil {
				return fmt.Errorf("%s set, %s: %w", set.Name, s.Name, err)
			}
		}
	}
	return nil
}

// --- task=generate and task=score

func newVLText(j *job.Job, o *GenerateOptions) (TextModel, error) {
	return openText(j, o, func() (*textModel[*processor.Prompt], error) {
		vlOf(j.Config).LoRA.Enabled = false // fresh adapters would add nothing; those of vl.adapter and init.checkpoint come all the same
		model, proc, err := openVL(j, nil)
		if err != nil {
			return nil, err
		}
		room := 1 // tokens that a completion may have
		if o != nil {
			room = o.MaxNewTokens
		}
		return &textModel[*processor.Prompt]{encode: proc.Tokenizer().Encode, vocab: model.Config().Vocab,
			folder: model.Generation().FolderSampling,
			decode: func(ids []int64) string { return proc.Tokenizer().Decode(ids, true) },
			prompt: func(line PromptLine, dir string) (*processor.Prompt, int, error) {
				msgs, err := conversationOf(line, dir)
				if err != nil {
					return nil, 0, err
				}
				p, err := proc.Prompt(msgs)
				if err == nil {
					err = model.CheckPrompt(len(p.IDs), room)
				}
				if err != nil {
					return nil, 0, err
				}
				return p, len(p.IDs), nil
			},
			adapt: func(o GenerateOptions, how *tokens.GenerateOptions) {
				how.Suppressed = []int64{} // placeholders may come, as Hugging Face generates
				if !o.IgnoreEOS {
					how.Last = model.Generation().ForcedEOS
				}
			},
			generate: model.Generate, score: model.LogProbs, free: model.Free}, nil
	})
}
