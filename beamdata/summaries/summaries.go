// Package summaries is the built-in summarisation set: short reports made of facts, as a table or as a talk, and
// a summary that one of four simulated writers would give.
//
//	set := summaries.New(summaries.DefaultOptions())
//	e := set.Example(summaries.Test, 7)      // e.Source, e.Target; made now, the same every time
//
// A summary must select: half of a report's facts are never worth mentioning, and some only when a number is
// large; who won a match has to be read off its score.
//
// References differ as those of real sets do, and the source does not tell who wrote the summary: a third are
// headlines, the others start in one of three ways and go on with details. Imitation learns these
// frequencies, and its likeliest words add up to the headline, with which two thirds of the references hardly
// agree; the long ways to begin have more words in common with each other. That is a gap which reinforcement
// learning on ROUGE can close and more imitation cannot: a reader without fault scores a mean ROUGE-L of 0.29
// by headlines and 0.55 by long summaries with the usual details (TestImitationLeavesAGap).
package summaries

import (
	"math/rand/v2"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/rng"
)

// Names of the splits.
const (
	Train  = "train"
	Val    = "val"
	Test   = "test"
	Drafts = "drafts" // no split: what sft may imitate before
)

// Options is the section data.summaries of the configuration.
type Options struct {
	// training reports
	Train int `koanf:"train" range:"[1,inf)"`
	// validation reports
	Val int `koanf:"val" range:"[1,inf)"`
	// held-out reports
	Test int `koanf:"test" range:"[0,inf)"`
	// seed of all reports
	Seed int64 `koanf:"seed" constant:"true"`

	// drafts that sft imitates instead of summaries: sentences about other reports, which teach a model from random
	// weights to read and write first; 0 = none
	Drafts int `koanf:"drafts" range:"[0,inf)"`
}

// DefaultOptions returns a set that a tiny model learns in minutes.
func DefaultOptions() Options { return Options{Train: 4000, Val: 300, Test: 500} }

type Set struct{ opt Options }

func New(opt Options) *Set { return &Set{opt} }

func (s *Set) Options() Options { return s.opt }

// Len returns the number of examples of a split.
func (s *Set) Len(split string) int {
	return map[string]int{Train: s.opt.Train, Val: s.opt.Val, Test: s.opt.Test, Drafts: s.opt.Drafts}[split]
}

type Example struct {
	Source, Target string
	Kind           string // weather, match, deal, rescue
	Writer         string // headline, day, object, subject; "" for drafts
}

// talks is the share of the reports that are written as a talk of two, not as a table.
const talks = 0.25

// Example makes example i of a split. It depends on seed, split and i alone, not on the sizes.
func (s *Set) Example(split string, i int) Example {
	r := rng.New(s.opt.Seed, "summaries/"+split, i)
	kinds := stories()
	st := kinds[r.IntN(len(kinds))](r)
	e := Example{Kind: st.kind}
	r.Shuffle(len(st.facts), func(i, j int) { st.facts[i], st.facts[j] = st.facts[j], st.facts[i] })
	if r.Float64() < talks {
		e.Source = st.talk(r)
	} else {
		e.Source = strings.Join(list.Map(st.facts, func(f fact) string { return f.key + ": " + f.value }), "\n")
	}
	if split == Drafts {
		e.Target = st.draft(r)
	} else {
		e.Target, e.Writer = st.summary(r)
	}
	return e
}

// story is what happened, and all sentences there are about it.
type story struct {
	kind      string
	facts     []fact
	headlines [2]string // one of them, by the toss of a coin; both begin alike
	openings  [3]string // of the three writers of long summaries
	details   []detail  // in the order of every long summary
}

type fact struct{ key, value, said string }

type detail struct {
	text  string
	share float64
}

// headlineShare is the share of references that are headlines: less than half of them, but more than each of
// the three long ways to begin.
const headlineShare = 0.34

// summary returns a reference and who wrote it.
func (s story) summary(r *rand.Rand) (text, writer string) {
	if r.Float64() < headlineShare {
		return s.headlines[r.IntN(2)], "headline"
	}
	k := r.IntN(3)
	sentences := []string{s.openings[k]}
	for _, d := range s.details {
		if r.Float64() < d.share {
			sentences = append(sentences, d.text)
		}
	}
	return strings.Join(sentences, " "), [3]string{"day", "object", "subject"}[k]
}

// draft returns one to three different sentences of all there are.
func (s story) draft(r *rand.Rand) string {
	all := slices.Concat(s.headlines[:], s.openings[:], list.Map(s.details, func(d detail) string { return d.text }),
		list.Map(s.facts, func(f fact) string { return f.said }))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return strings.Join(all[:1+r.IntN(3)], " ")
}

// talk lets two people tell the facts, with an empty word here and there.
func (s story) talk(r *rand.Rand) string {
	empty := []string{"go on.", "i see.", "and then?", "what else?"}
	speakers := []string{"ann", "ben"}
	var lines []string
	say := func(text string) {
		lines = append(lines, speakers[len(lines)%2]+": "+text)
	}
	for _, f := range s.facts {
		say(f.said)
		if r.IntN(5) == 0 {
			say(empty[r.IntN(len(empty))])
		}
	}
	return strings.Join(lines, "\n")
}
