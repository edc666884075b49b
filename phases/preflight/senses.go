package preflight

import (
	"fmt"
	"math"

	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
	"fulcrum/phases/doctor"
	"fulcrum/selector"
)

// Senses are the same completions after different prompts: what changes in a prompt should change how likely its
// completions are. A source that is nil is not looked at; all others have the same length.
type Senses struct {
	Own        selector.Source // prompts as they are
	OtherImage selector.Source // with the images of another prompt
	BlankImage selector.Source // with grey images
	OtherText  selector.Source // with the text of another prompt
}

// unread is how far, in nats, log-probabilities of a model move at most that does not read what was changed: float32 rounds a prompt of
// another length elsewhere.
const unread = 1e-6

// helped is how many standard errors right answers are likelier with their own images at least: two, as 1 in 40 is by chance.
const helped = 2

// together is how many prompts are evaluated at once.
const together = 8

// completions returns log π of the completions of a source, one a prompt, without gradient.
func completions(p selector.Policy, src selector.Source) []float64 {
	defer torchx.NoGrad()()
	var out []float64
	for queries := range selector.Chunks(src.Len(), together) {
		func() {
			defer torchx.Scope()()
			b := src.Recorded(queries)
			out = append(out, torchx.Sum(torchx.Sum(p.Forward(b, selector.ForwardOptions{}).LogP, 2), 1).Floats()...) // [B]
		}()
	}
	return out
}

// Reads checks that images and text reach the policy's log-probabilities.
func (r *Report) Reads(p selector.Policy, s Senses) {
	own := completions(p, s.Own)
	for _, of := range []struct {
		src   selector.Source
		check string
		what  string
	}{
		{s.OtherImage, "images_ignored", "the images of another prompt"},
		{s.BlankImage, "images_ignored", "grey images"},
		{s.OtherText, "text_ignored", "the text of another prompt"},
	} {
		if of.src == nil {
			continue
		}
		r.checks++
		d, _ := differ(own, completions(p, of.src))
		r.Saw(Name, of.check, "%d completions change by up to %.2g nats with %s", len(own), d, of.what)
		if d > unread {
			continue
		}
		r.found(Name, of.check, "", d, unread, "with %s the log-probabilities of %d completions change by at most %.2g nats: the model does not "+
			"read that part of its prompts", of.what, len(own), d)
	}
}

// fewPairs is how many prompts a verdict on the use of images needs.
const fewPairs = 24

// ImagesHelp checks that a policy that knows something finds answers likelier with their own images than with
// others. uniform is log π of a completion under a policy that knows nothing; one that is no better is not asked.
func (r *Report) ImagesHelp(p selector.Policy, own, other selector.Source, uniform []float64) {
	if own.Len() < fewPairs {
		return
	}
	r.checks++
	mine := completions(p, own)
	known := 0.0
	for i, x := range mine {
		known += x - uniform[i]
	}
	if known <= 0 {
		r.add(Name, doctor.Note, doctor.Finding{Check: "images_do_not_help", Message: fmt.Sprintf("whether images help could not be told: "+
			"%d right answers are no likelier than random tokens", len(mine))})
		return
	}
	theirs := completions(p, other)
	mean, se := stat.MeanSE(stat.Less(mine, theirs))
	z := mean / math.Max(se, 1e-9)
	r.Saw(Name, "images_do_not_help", "right answers are %+.2g nats likelier with their own images, %.2g standard errors", mean, z)
	if z >= helped {
		return
	}
	r.found(Name, "images_do_not_help", "", z, helped, "right answers are %+.3g nats likelier with their own images than with others (%.2g "+
		"standard errors over %d prompts): images and questions are paired wrongly, or the model answers without looking", mean, z, len(mine))
}
