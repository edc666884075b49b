package workload

import (
	"cmp"
	"slices"

	"fulcrum/beamdata/audit"
	"fulcrum/beamdata/conversation"
	"fulcrum/internal/chat"
	"fulcrum/internal/list"
	"fulcrum/phases"
	"fulcrum/phases/preflight"
	"fulcrum/selector"
	"fulcrum/selector/prompts"
)

// This file is what the preflight asks of a token policy's run besides its phases: is the data in order, does the
// model read its prompts, are its adapters there.

// Audit looks at the samples: the recorded completions that phases of this run learn from, and all splits.
func (w *textWorkload[P]) Audit(precision float64) ([]audit.Fault, error) {
	c, b := w.job.Config, w.bundle
	return b.Audit(learnt(c, b.Train, phases.FromRewards), learnt(c, b.Train, phases.FromGroups), precision)
}

// probeFlops bounds the work of a trial step on the CPU, in multiply-adds: a second or two. A GPU does a hundred times
// as much.
const probeFlops = 2e10

// Effort takes the model's size for what a trial step costs: forward and backward over prompts and completions.
func (w *textWorkload[P]) Effort(most int) Effort {
	budget := probeFlops
	if w.job.Device != "cpu" {
		budget *= 100
	}
	prompt := 100.0
	if p, err := w.source(w.bundle.Train).Prompt(0); err == nil {
		prompt = float64(w.length(p))
	}
	half, ok := w.policy.(selector.TokenPolicy)
	c := w.job.Config
	completions := float64(max(c.RCE.GroupSize, c.GRPO.GroupSize)) * float64(w.text.MaxTokens)
	query := 3 * float64(w.model.Size()) * (prompt + completions)
	return Effort{Queries: max(2, min(most, int(budget/query))), Short: 2*query > budget, Long: float64(c.Data.BatchSize)*query > 50*budget,
		Rough: ok && half.HalfPrecision()}
}

// Unused is for tensors that may have no gradient in a batch: there are none here.
func (w *textWorkload[P]) Unused(*selector.Batch, string) string { return "" }

// Largest returns the n samples with the longest prompts and targets among those looked at, by their texts.
func (w *textWorkload[P]) Largest(src selector.Source, n int) []int {
	const looked = 512
	set := src.(*prompts.Source[P]).Set()
	type sized struct{ query, size int }
	var all []sized
	for i := 0; i < set.Len(); i += audit.Every(set.Len(), max(looked, n)) {
		s, err := set.Sample(i)
		if err != nil {
			continue
		}
		size := list.Sum(s.Completions, func(c conversation.Recorded) int { return len(c.Text) })
		all = append(all, sized{i, size + len(s.Text()) + len(s.Reference)})
	}
	slices.SortStableFunc(all, func(a, b sized) int { return cmp.Compare(b.size, a.size) })
	return list.Map(all[:min(n, len(all))], func(s sized) int { return s.query })
}

// Senses tries the model on some samples: with other texts, and without adapters.
func (w *textWorkload[P]) Senses(report *preflight.Report, e Effort) error {
	samples, err := w.withTargets(e.few())
	if err != nil {
		return err
	}
	_, err = w.senses(report, samples, preflight.Senses{})
	return err
}

// few is how many samples the senses are tried on.
func (e Effort) few() int { return max(2, min(4, e.Queries)) }

// senses adds what every token policy can be asked to what only some can.
func (w *textWorkload[P]) senses(report *preflight.Report, samples []conversation.Sample, s preflight.Senses) (asked bool, err error) {
	if len(samples) == 0 {
		return false, nil
	}
	if s.Own, err = w.list(samples, func(i int) []chat.Message { return samples[i].Messages }); err != nil {
		return false, err
	}
	if len(samples) > 1 {
		s.OtherText, err = w.list(samples, func(i int) []chat.Message {
			return withTextOf(samples[i].Messages, samples[(i+1)%len(samples)].Messages)
		})
		if err != nil {
			return false, err
		}
	}
	report.Reads(w.policy, s)
	return true, nil
}

// withTargets returns up to n validation samples with a target, evenly spread.
func (w *textWorkload[P]) withTargets(n int) ([]conversation.Sample, error) {
	set := w.bundle.Val
	var out []conversation.Sample
	for i := 0; i < set.Len() && len(out) < n; i += audit.Every(set.Len(), 2*n) {
		s, err := set.Sample(i)
		if err != nil {
			return nil, err
		}
		if s.Reference != "" {
			out = append(out, s)
		}
	}
	return out, nil
}

// list renders prompts that end in the samples' targets.
func (w *textWorkload[P]) list(samples []conversation.Sample, messages func(i int) []chat.Message) (prompts.List[P], error) {
	var out prompts.List[P]
	for i, s := range samples {
		s.Messages = messages(i)
		p, err := w.render(s)
		if err != nil {
			return out, err
		}
		tokens := append(w.text.Encode(s.Reference), w.text.EOS[0])
		out.Prompts, out.Completions = append(out.Prompts, p), append(out.Completions, tokens[:min(len(tokens), w.text.MaxTokens)])
	}
	return out, nil
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
