package conversation

import (
	"hash/maphash"
	"slices"

	"fulcrum/beamdata/audit"
	"fulcrum/internal/list"
)

// Audit looks for faults of the data that training would not notice: see package audit. The recorded completions
// of imitated and of baseline (offline GRPO) are looked at; either may be nil. Rewards that differ by no more than precision are equal.
// Records are decoded for it, so large sets are sampled evenly.
func (b *Bundle) Audit(imitated, baseline *Set, precision float64) ([]audit.Fault, error) {
	d := describer{seed: maphash.MakeSeed(), sources: map[Source]int64{}}
	var splits []audit.Split
	for _, of := range []struct {
		name   string
		trains bool
		set    *Set
	}{{"training", true, b.Train}, {"demonstration", true, b.Demos}, {"validation", false, b.Val}, {"held-out", false, b.Eval}} {
		s, err := d.split(of.name, of.trains, of.set)
		if err != nil {
			return nil, err
		}
		splits = append(splits, s)
	}
	out := audit.Overlap(splits)
	for _, s := range splits {
		if faults := audit.Pictures(s); len(faults) > 0 {
			out = append(out, faults...)
			break // validation and training samples of a file are alike
		}
	}
	if imitated.Len() > 0 && imitated != baseline {
		out = append(out, audit.Rewards(imitated.groups("imitation", false), precision)...)
	}
	if baseline.Len() > 0 {
		out = append(out, audit.Rewards(baseline.groups("grpo", true), precision)...)
	}
	return out, nil
}

type describer struct {
	seed    maphash.Seed
	sources map[Source]int64 // number of each, so that rows of different files differ
}

// split lists the samples of a set, with what they hold; where there are many, of some of them, evenly.
func (d *describer) split(name string, trains bool, s *Set) (audit.Split, error) {
	out := audit.Split{Name: name, Trains: trains}
	if s.Len() == 0 {
		return out, nil
	}
	if _, ok := d.sources[s.source]; !ok {
		d.sources[s.source] = int64(len(d.sources))
	}
	const rows = 1 << 48 // of a source
	every := audit.Every(s.Len(), audit.Sampled)
	for i, row := range s.rows {
		q := audit.Query{ID: d.sources[s.source]*rows + row}
		if i%every == 0 {
			sample, err := s.Sample(i)
			if err != nil {
				return out, err
			}
			q.Name = sample.Name
			q.Content, q.Group = d.hash(&sample)
		}
		out.Of = append(out.Of, q)
	}
	return out, nil
}

// hash returns those of a sample's prompt and of its pictures; 0 where it has none.
func (d *describer) hash(s *Sample) (content, pictures uint64) {
	var text, media maphash.Hash
	text.SetSeed(d.seed)
	media.SetSeed(d.seed)
	known := false
	for _, m := range s.Messages {
		text.WriteString(m.Role + "\x00" + m.Text + "\x00")
		for _, p := range m.Parts {
			text.WriteString(p.Type + "\x00" + p.Text + "\x00")
			for _, name := range append([]string{p.Path, p.Key}, p.Frames...) {
				if name != "" {
					known = true
					media.WriteString(name + "\x00")
				}
			}
		}
	}
	if known {
		pictures = max(1, media.Sum64())
	}
	return max(1, text.Sum64()^pictures), pictures
}

// groups are the recorded completions of a set. A sample without any stands for its target, which has nothing to be
// compared with and is left out.
func (s *Set) groups(name string, baseline bool) audit.Groups {
	with := list.Filter(audit.Evenly(s.Len(), audit.Sampled), func(i int) bool {
		sample, err := s.Sample(i)
		return err == nil && (baseline || len(sample.Completions) > 0)
	})
	return audit.Groups{Name: name, Baseline: baseline, Len: len(with), Of: func(i int) (int64, []float64) {
		sample, err := s.Sample(with[i])
		if err != nil {
			return s.ID(with[i]), nil
		}
		return s.ID(with[i]), slices.Clip(list.Map(sample.Completions, func(c Recorded) float64 { return c.Reward }))
	}}
}
