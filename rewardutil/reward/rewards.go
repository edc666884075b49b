// Package reward scores completions: one file a reward, and their weighted sum.
package reward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"fulcrum/internal/option"
	"fulcrum/rewardutil/group"
	"fulcrum/rewardutil/text"
)

// Options is the section rewards of the configuration: the terms of a completion's reward. A term with weight 0 is off
// and is neither computed nor reported. This struct is the table of terms: a field is the entry of one.
type Options struct {
	// <think> and <answer> tags and their order
	Format FormatOptions `koanf:"format" when:".weight"`
	// exact match with the reference, else IoU of the sets of actions
	Accuracy AccuracyOptions `koanf:"accuracy" when:".weight"`
	// a text or a regular expression that the answer must have
	Match MatchOptions `koanf:"match" when:".weight"`
	// VQA accuracy against the annotators' answers
	VQA VQAOptions `koanf:"vqa" when:".weight"`
	// ROUGE against the reference
	Rouge RougeOptions `koanf:"rouge" when:".weight"`
	// similarity of length to the reference
	Length LengthOptions `koanf:"length" when:".weight"`
	// negative points, scored on masks or by an external segmenter
	Points PointsOptions `koanf:"points" when:".weight"`
	// scores of a program: an HTTP address or a command
	External ExternalOptions `koanf:"external" when:".weight"`
	// scores of a language model: OpenAI's chat API, or a model in this process
	Judge JudgeOptions `koanf:"judge" when:".weight"`

	// factor of the total, before its bounds: with advantages that are not normalised, the reward's weight
	// against the KL
	Scale float64 `koanf:"scale" range:"(0,inf)"`
	// lower bound of the total (null = none)
	ClipMin *float64 `koanf:"clip_min"`
	// upper bound of the total (null = none)
	ClipMax *float64 `koanf:"clip_max"`
}

// DefaultOptions returns all terms switched off, with the defaults of their keys.
func DefaultOptions() Options {
	o := Options{Scale: 1}
	fields := reflect.ValueOf(&o).Elem()
	for i := range fields.NumField() {
		if f, ok := fields.Field(i).Addr().Interface().(interface{ setDefaults() }); ok {
			f.setDefaults()
		}
	}
	return o
}

// Validate reports a scale that is not positive and clip bounds in the wrong order; the terms report their own keys.
func (o Options) Validate() error {
	if !(o.Scale > 0) || math.IsInf(o.Scale, 0) {
		return option.Errorf("scale", "want a number above 0, got %v", o.Scale)
	}
	if o.ClipMin != nil && o.ClipMax != nil && *o.ClipMin >= *o.ClipMax {
		return option.Errorf("clip_max", "want more than clip_min %v, got %v", *o.ClipMin, *o.ClipMax)
	}
	return nil
}

// term is a reward with its options. The fields of Options that are terms are the table of rewards.
// Each has a field Weight, its factor in the total; 0 = off.
type term interface {
	build() (Reward, error) // validates the options; their tags are checked before
}

type weighted struct {
	term
	name   string
	weight float64
}

// terms returns the terms that are on.
func (o Options) terms() (on []weighted) {
	fields := reflect.ValueOf(o)
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Tag.Get("koanf")
		if t, ok := fields.Field(i).Interface().(term); ok {
			if w := fields.Field(i).FieldByName("Weight").Float(); w != 0 {
				on = append(on, weighted{t, name, w})
			}
		}
	}
	return on
}

// bounded is a term whose scores lie between 0 and a number that its formula gives.
type bounded interface{ most() float64 }

// Range returns the least and the greatest total that the terms can give; ok is false where one of them, such as a program's, may score
// anything and no bounds are set.
func (o Options) Range() (least, greatest float64, ok bool) {
	on := o.terms()
	for _, t := range on {
		of, known := t.term.(bounded)
		if !known {
			least, greatest = math.Inf(-1), math.Inf(1)
			break
		}
		x := o.Scale * t.weight * of.most()
		least, greatest = least+min(x, 0), greatest+max(x, 0)
	}
	least, greatest = max(least, option.Or(o.ClipMin, math.Inf(-1))), min(greatest, option.Or(o.ClipMax, math.Inf(1)))
	return least, greatest, len(on) > 0 && !math.IsInf(greatest-least, 1) && least <= greatest
}

// Answers reports whether a term that is on compares answers, so that two completions can agree.
func (o Options) Answers() bool { return o.Accuracy.Weight+o.Match.Weight+o.VQA.Weight > 0 }

// Answer returns what completions have to share to agree: their answer part as the accuracy term compares it, which is the same number
// for "(2) attach" and "Attach (2).".
func (o Options) Answer(completion string) string {
	answer := text.Answer(completion)
	if numbers := optionNumbers(answer); o.Accuracy.Weight > 0 && o.Accuracy.Split == "numbered" && len(numbers) > 0 {
		slices.Sort(numbers)
		return strings.Join(slices.Compact(numbers), " ")
	}
	return normalizeAction(answer)
}

type Term struct {
	Name   string // also in Rewards.Score's terms and in metrics
	Weight float64
	Reward Reward
}

// Scripts are those of the commands of terms that are on.
func (o Options) Scripts() (scripts []string) {
	if script := o.External.Script(); o.External.Weight > 0 && script != "" {
		scripts = append(scripts, script)
	}
	if script := o.Points.Segmenter.Script(); o.Points.Weight > 0 && script != "" {
		scripts = append(scripts, script)
	}
	return scripts
}

func (o Options) Any() bool { return len(o.terms()) > 0 }

// Build returns the reward that the options describe. At least one term must be on. open opens models of this process; without
// it no judge has one.
func (o Options) Build(open OpenTextModel) (*Rewards, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("rewards.%w", err)
	}
	r := &Rewards{scale: o.Scale, clipMin: option.Or(o.ClipMin, math.Inf(-1)), clipMax: option.Or(o.ClipMax, math.Inf(1))}
	on := o.terms()
	for _, t := range on {
		build := t.build
		if j, ok := t.term.(JudgeOptions); ok {
			build = func() (Reward, error) { return j.buildWith(open) }
		}
		var reward Reward
		err := option.Tags(t.term)
		if err == nil {
			reward, err = build()
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("rewards.%s.%w", t.name, err), r.Close())
		}
		r.Terms = append(r.Terms, Term{t.name, t.weight, reward})
	}
	if len(r.Terms) == 0 {
		return nil, errors.New("rewards: every term has weight 0: switch one on, such as rewards.vqa.weight=1")
	}
	return r, nil
}

type Rewards struct {
	Terms            []Term
	scale            float64
	clipMin, clipMax float64
}

// measured is a reward that reports numbers of its own beside its scores [n], by name.
type measured interface {
	ScoreMeasured(ctx context.Context, items []Item) (scores []float64, measures map[string][]float64, err error)
}

// Score returns the total reward [n] of the items, and each term's own values, unweighted, by name; the numbers that a term
// measures beside its value stand there too, and are in no total:
//
//	total_i = clip(scale · Σ_t weight_t · term_t,i, clip_min, clip_max)
func (r *Rewards) Score(ctx context.Context, items []Item) (total []float64, terms map[string][]float64, err error) {
	total, terms = make([]float64, len(items)), make(map[string][]float64, len(r.Terms))
	for _, t := range r.Terms {
		values, measures, err := scoreMeasured(ctx, t.Reward, items)
		if err != nil {
			return nil, nil, fmt.Errorf("rewards.%s: %w", t.Name, err)
		}
		if len(values) != len(items) {
			return nil, nil, fmt.Errorf("rewards.%s: %d scores for %d completions", t.Name, len(values), len(items))
		}
		for i, v := range values {
			if err := group.CheckReward(v); err != nil {
				return nil, nil, fmt.Errorf("rewards.%s: %w", t.Name, itemErrorf(items, i, "score %v, %v", v, err))
			}
			total[i] += t.Weight * v
		}
		terms[t.Name] = values
		maps.Copy(terms, measures)
	}
	for i, v := range total {
		total[i] = max(r.clipMin, min(r.clipMax, r.scale*v))
		if err := group.CheckReward(total[i]); err != nil {
			return nil, nil, fmt.Errorf("rewards: %w", itemErrorf(items, i, "the weighted sum is %v, %v", total[i], err))
		}
	}
	return total, terms, nil
}

// foresees is a reward that another program may give: foresee lets it begin with an item that Score will have; nil: none gives it.
type foresees interface {
	foresee() func(ctx context.Context, it Item)
}

// Foresee returns what lets other programs begin with an item that Score will have; nil: no term has one. Score returns their errors.
func (r *Rewards) Foresee() func(ctx context.Context, it Item) {
	var of []func(context.Context, Item)
	for _, t := range r.Terms {
		if f, ok := t.Reward.(foresees); ok {
			of = append(of, f.foresee())
		}
	}
	if of = slices.DeleteFunc(of, func(f func(context.Context, Item)) bool { return f == nil }); len(of) == 0 {
		return nil
	}
	return func(ctx context.Context, it Item) {
		for _, f := range of {
			f(ctx, it)
		}
	}
}

func scoreMeasured(ctx context.Context, r Reward, items []Item) ([]float64, map[string][]float64, error) {
	if m, ok := r.(measured); ok {
		return m.ScoreMeasured(ctx, items)
	}
	scores, err := r.Score(ctx, items)
	return scores, nil, err
}

// Close ends the processes that external scorers keep.
func (r *Rewards) Close() error {
	var errs []error
	for _, t := range r.Terms {
		if c, ok := t.Reward.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}
