package workload

import (
	"fmt"
	"hash/maphash"
	"image"
	"image/color"
	"image/draw"
	"math"
	"slices"

	"fulcrum/beamdata/audit"
	"fulcrum/beamdata/conversation"
	"fulcrum/internal/chat"
	"fulcrum/internal/list"
	"fulcrum/phases/preflight"
	"fulcrum/selector"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl"
	"fulcrum/selector/vl/processor"
)

// This file is what the preflight asks of a vision-language run besides what it asks of every token policy: does the
// model read images, and do they help it.

// Unused says why a tensor may have no gradient: no sample of the batch has an image.
func (w *vlWorkload) Unused(b *selector.Batch, name string) string {
	images := slices.ContainsFunc(b.Queries, func(q int) bool {
		p, err := b.Source.(tokens.PromptSource[*processor.Prompt]).Prompt(q)
		return err == nil && len(p.Images)+len(p.Videos) > 0
	})
	if !vl.Reads(name, images) {
		return "no prompt of the batch has an image"
	}
	return ""
}

// Senses tries the model on some samples: with other images and texts, with images of other samples, and without
// adapters.
func (w *vlWorkload) Senses(report *preflight.Report, e Effort) error {
	if err := w.samePictures(report); err != nil {
		return err
	}
	samples, err := w.withImages(32)
	if err != nil {
		return err
	}
	few := samples[:min(len(samples), e.few())]
	var s preflight.Senses
	if len(few) > 0 && len(pictures(few[0].Messages)) > 0 {
		if len(few) > 1 {
			s.OtherImage, err = w.list(few, func(i int) []chat.Message {
				return withImagesOf(few[i].Messages, few[(i+1)%len(few)].Messages)
			})
			if err != nil {
				return err
			}
		}
		if s.BlankImage, err = w.list(few, func(i int) []chat.Message { return withImagesOf(few[i].Messages, grey()) }); err != nil {
			return err
		}
	}
	if asked, err := w.senses(report, few, s); err != nil || !asked {
		return err
	}
	if fresh := vlOf(w.job.Config).Path == nil && w.job.Config.Init.Checkpoint == nil; fresh || e.Short {
		return nil
	}
	return w.imagesHelp(report, samples)
}

// samePictures reads the pictures of some training samples as the model gets them: copies of one under several names, and
// a reader that mixes them up, show here.
func (w *vlWorkload) samePictures(report *preflight.Report) error {
	const looked = 16
	src := w.source(w.bundle.Train)
	counts, names, with, most := map[uint64]int{}, map[string]bool{}, 0, 0
	seed := maphash.MakeSeed()
	for _, q := range drawn(looked, src.Len(), w.job.Config.Seed, "pictures") {
		s, err := src.Set().Sample(q)
		if err != nil {
			return err
		}
		if len(pictures(s.Messages)) == 0 {
			continue
		}
		p, err := src.Prompt(q)
		if err != nil {
			return err
		}
		var h maphash.Hash
		h.SetSeed(seed)
		for _, picture := range p.Images {
			maphash.WriteComparable(&h, picture.Grid)
			for _, x := range picture.Data {
				maphash.WriteComparable(&h, x)
			}
		}
		with++
		counts[h.Sum64()]++
		most = max(most, counts[h.Sum64()])
		for _, picture := range pictures(s.Messages) {
			names[picture.Path+picture.Key] = true
		}
	}
	if len(names) < 2 {
		return nil // the audit says that they name one picture
	}
	report.Fault(audit.SharedPictures("training samples", most, with, fmt.Sprintf("under %d names", len(names)))...)
	return nil
}

// imagesHelp compares the targets of samples with their own images and with those of samples with other targets.
func (w *vlWorkload) imagesHelp(report *preflight.Report, samples []conversation.Sample) error {
	var mine []conversation.Sample
	var others [][]chat.Message
	for i, s := range samples {
		if len(pictures(s.Messages)) == 0 {
			continue
		}
		for k := 1; k < len(samples); k++ {
			if o := samples[(i+k)%len(samples)]; o.Reference != s.Reference && len(pictures(o.Messages)) > 0 {
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
	uniform := list.Map(own.Completions, func(ids []int64) float64 { return -float64(len(ids)) * math.Log(float64(w.vocab)) })
	report.ImagesHelp(w.policy, own, other, uniform)
	return nil
}

// withImages returns up to n validation samples with a target, evenly spread, those with images first; where
// targets are rare there are fewer.
func (w *vlWorkload) withImages(n int) ([]conversation.Sample, error) {
	set := w.bundle.Val
	var with, without []conversation.Sample
	for i := 0; i < set.Len(); i += audit.Every(set.Len(), 2*n) {
		s, err := set.Sample(i)
		if err != nil {
			return nil, err
		}
		switch {
		case s.Reference == "":
		case len(pictures(s.Messages)) > 0:
			with = append(with, s)
		default:
			without = append(without, s)
		}
	}
	all := append(with, without...)
	return all[:min(n, len(all))], nil
}

// pictures are the image parts of a prompt.
func pictures(messages []chat.Message) (images []chat.Part) {
	for _, m := range messages {
		images = append(images, list.Filter(m.Parts, func(p chat.Part) bool { return p.Type == chat.Image })...)
	}
	return images
}

// withImagesOf returns messages whose images are those of others, from the first on, as far as there are.
func withImagesOf(messages, others []chat.Message) []chat.Message {
	images := pictures(others)
	return replace(messages, chat.Image, func(k int, p chat.Part) chat.Part {
		if len(images) == 0 {
			return p
		}
		return images[k%len(images)]
	})
}

// grey is a prompt with one picture without content.
func grey() []chat.Message {
	return []chat.Message{{Role: "user", Parts: []chat.Part{{Type: chat.Image, Picture: func() (image.Image, error) {
		const side = 112
		out := image.NewRGBA(image.Rect(0, 0, side, side))
		draw.Draw(out, out.Bounds(), image.NewUniform(color.Gray{Y: 128}), image.Point{}, draw.Src)
		return out, nil
	}}}}}
}
