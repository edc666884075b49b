package experiments

import (
	"cmp"
	"image"
	"image/color"
	"math"
	"slices"

	"fulcrum/beamdata/audit"
	"fulcrum/beamdata/conversation"
	"fulcrum/internal/chat"
	"fulcrum/phases/preflight"
	"fulcrum/selector"
	"fulcrum/selector/prompts"
	"fulcrum/selector/vl"
	"fulcrum/selector/vl/processor"
)

// This file is what the preflight asks of a vision-language run besides its phases: does the model read images and
// text, do images help it, are its adapters there.

// Audit looks at the conversations: the recorded completions that phases of this run learn from, and all splits.
func (w *vlWork) Audit(lim audit.Limits) ([]audit.Fault, error) {
	c, b := w.run.cfg, w.bundle
	var imitated, compared *conversation.Set
	for _, name := range c.Schedule {
		switch {
		case name == "rce" && c.RCE.Epochs > 0 && c.RCE.Rollout != "online":
			imitated = b.Train
		case name == "grpo" && c.GRPO.Epochs > 0 && c.GRPO.Rollout != "online",
			name == "grpo_online" && c.GRPOOnline.Epochs > 0 && c.GRPOOnline.Rollout != "online":
			compared = b.Train
		}
	}
	return b.Audit(imitated, compared, lim)
}

// probeFlops bounds the work of a trial step on the CPU, in multiply-adds: a second or two. A GPU does a hundred times
// as much.
const probeFlops = 2e10

// effort takes the model's size for what a trial step costs: forward and backward over prompts and completions.
func (w *vlWork) effort(most int) effort {
	budget := probeFlops
	if w.run.device != "cpu" {
		budget *= 100
	}
	prompt := 100.0
	if p, err := w.source(w.bundle.Train).Prompt(0); err == nil {
		prompt = float64(len(p.IDs))
	}
	c := w.run.cfg
	completions := float64(max(c.RCE.GroupSize, c.GRPO.GroupSize)) * float64(w.maxTokens())
	query := 3 * float64(w.policy.Model().Size()) * (prompt + completions)
	return effort{queries: max(2, min(most, int(budget/query))), short: 2*query > budget, long: float64(c.Data.BatchSize)*query > 50*budget}
}

// unused says why a tensor may have no gradient: no sample of the batch has an image.
func (w *vlWork) unused(b *selector.Batch, name string) string {
	images := false
	for _, q := range b.Queries {
		if p, err := b.Source.(vl.PromptSource).Prompt(q); err == nil && len(p.Images)+len(p.Videos) > 0 {
			images = true
		}
	}
	if !vl.Reads(name, images) {
		return "no prompt of the batch has an image"
	}
	return ""
}

// Largest returns the n samples with the longest prompts and targets among those looked at, by their texts.
func (w *vlWork) Largest(src selector.Source, n int) []int {
	const looked = 512
	set := src.(*vlSource).Set()
	type sized struct{ query, size int }
	var all []sized
	for i := 0; i < set.Len(); i += audit.Every(set.Len(), max(looked, n)) {
		s, err := set.Sample(i)
		if err != nil {
			continue
		}
		size := len(s.Text()) + len(s.Reference)
		for _, c := range s.Completions {
			size += len(c.Text)
		}
		all = append(all, sized{i, size})
	}
	slices.SortStableFunc(all, func(a, b sized) int { return cmp.Compare(b.size, a.size) })
	var out []int
	for _, s := range all[:min(n, len(all))] {
		out = append(out, s.query)
	}
	return out
}

// sense is a prompt of a sample, and completions to be scored.
type sense = prompts.List[*processor.Prompt]

// Senses tries the model on some samples: with other images and texts, with images of other samples, and without
// adapters.
func (w *vlWork) Senses(report *preflight.Report, e effort) error {
	samples, err := w.withImages(32)
	if err != nil {
		return err
	}
	few := samples[:min(len(samples), max(2, min(4, e.queries)))]
	own, err := w.list(few, func(i int) []chat.Message { return few[i].Messages })
	if err != nil {
		return err
	}
	if own.Len() == 0 {
		return nil
	}
	s := preflight.Senses{Own: own}
	next := func(i int) conversation.Sample { return few[(i+1)%len(few)] }
	for _, of := range []struct {
		to    *selector.Source
		alter func(i int) []chat.Message
		ok    bool
	}{
		{&s.OtherImage, func(i int) []chat.Message { return withImagesOf(few[i].Messages, next(i).Messages) }, len(few) > 1 && pictures(few[0].Messages) > 0},
		{&s.BlankImage, func(i int) []chat.Message { return withImagesOf(few[i].Messages, grey()) }, pictures(few[0].Messages) > 0},
		{&s.OtherText, func(i int) []chat.Message { return withTextOf(few[i].Messages, next(i).Messages) }, len(few) > 1},
	} {
		if !of.ok {
			continue
		}
		src, err := w.list(few, of.alter)
		if err != nil {
			return err
		}
		*of.to = src
	}
	report.Reads(w.policy, s)
	report.Adapters(w.policy, own)
	if w.run.cfg.VL.Adapter != nil && w.run.cfg.Init.Checkpoint == nil {
		report.AdapterKeys(w.policy.Model().CheckAdapter())
	}
	if fresh := w.run.cfg.VL.Path == nil && w.run.cfg.Init.Checkpoint == nil; fresh || e.short {
		return nil
	}
	return w.imagesHelp(report, samples)
}

// imagesHelp compares the targets of samples with their own images and with those of samples with other targets.
func (w *vlWork) imagesHelp(report *preflight.Report, samples []conversation.Sample) error {
	var mine []conversation.Sample
	var others [][]chat.Message
	for i, s := range samples {
		if pictures(s.Messages) == 0 {
			continue
		}
		for k := 1; k < len(samples); k++ {
			if o := samples[(i+k)%len(samples)]; o.Reference != s.Reference && pictures(o.Messages) > 0 {
				mine, others = append(mine, s), append(others, withImagesOf(s.Messages, o.Messages))
				break
			}
		}
	}
	own, err := w.list(mine, func(i int) []chat.Message { return mine[i].Messages })
	if err != nil {
		return err
	}
	other, err := w.list(mine, func(i int) []chat.Message { return others[i] })
	if err != nil {
		return err
	}
	uniform := make([]float64, len(mine))
	for i, c := range own.Completions {
		uniform[i] = -float64(len(c)) * math.Log(float64(w.policy.Model().Config().Vocab))
	}
	report.ImagesHelp(w.policy, own, other, uniform)
	return nil
}

// withImages returns up to n validation samples with a target, evenly spread, those with images first; where
// targets are rare there are fewer.
func (w *vlWork) withImages(n int) ([]conversation.Sample, error) {
	set := w.bundle.Val
	var with, without []conversation.Sample
	for i := 0; i < set.Len(); i += audit.Every(set.Len(), 2*n) {
		s, err := set.Sample(i)
		if err != nil {
			return nil, err
		}
		switch {
		case s.Reference == "":
		case pictures(s.Messages) > 0:
			with = append(with, s)
		default:
			without = append(without, s)
		}
	}
	all := append(with, without...)
	return all[:min(n, len(all))], nil
}

// list renders prompts that end in the samples' targets.
func (w *vlWork) list(samples []conversation.Sample, messages func(i int) []chat.Message) (sense, error) {
	var out sense
	for i, s := range samples {
		p, err := w.processor.Prompt(messages(i))
		if err != nil {
			return out, err
		}
		tokens := append(w.processor.Tokenizer().Encode(s.Reference), w.policy.Model().EOS()[0])
		out.Prompts, out.Completions = append(out.Prompts, p), append(out.Completions, tokens[:min(len(tokens), w.maxTokens())])
	}
	return out, nil
}

// pictures counts the image parts of a prompt.
func pictures(messages []chat.Message) int {
	n := 0
	for _, m := range messages {
		for _, p := range m.Parts {
			if p.Type == chat.Image {
				n++
			}
		}
	}
	return n
}

// withImagesOf returns messages whose images are those of others, from the first on, as far as there are.
func withImagesOf(messages, others []chat.Message) []chat.Message {
	var images []chat.Part
	for _, m := range others {
		for _, p := range m.Parts {
			if p.Type == chat.Image {
				images = append(images, p)
			}
		}
	}
	return replace(messages, chat.Image, func(k int, p chat.Part) chat.Part {
		if len(images) == 0 {
			return p
		}
		return images[k%len(images)]
	})
}

// withTextOf returns messages whose last text is the last text of others.
func withTextOf(messages, others []chat.Message) []chat.Message {
	text := ""
	for _, m := range others {
		if m.Text != "" && m.Role == "user" {
			text = m.Text
		}
		for _, p := range m.Parts {
			if p.Type == chat.Text {
				text = p.Text
			}
		}
	}
	out := replace(messages, chat.Text, func(_ int, p chat.Part) chat.Part {
		p.Text = text + " ."
		return p
	})
	for i := range out {
		if out[i].Role == "user" && out[i].Parts == nil {
			out[i].Text = text + " ."
		}
	}
	return out
}

// replace returns messages with their parts of one type exchanged; k counts them.
func replace(messages []chat.Message, kind string, with func(k int, p chat.Part) chat.Part) []chat.Message {
	out, k := slices.Clone(messages), 0
	for i := range out {
		out[i].Parts = slices.Clone(out[i].Parts)
		for j, p := range out[i].Parts {
			if p.Type == kind {
				out[i].Parts[j] = with(k, p)
				k++
			}
		}
	}
	return out
}

// grey is a prompt with one picture without content.
func grey() []chat.Message {
	picture := image.NewUniform(color.Gray{Y: 128})
	return []chat.Message{{Role: "user", Parts: []chat.Part{{Type: chat.Image, Picture: func() (image.Image, error) {
		const side = 112
		out := image.NewRGBA(image.Rect(0, 0, side, side))
		for y := range side {
			for x := range side {
				out.Set(x, y, picture.C)
			}
		}
		return out, nil
	}}}}}
}
