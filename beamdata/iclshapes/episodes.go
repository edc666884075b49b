package iclshapes

import (
	"fmt"
	"image"
	"math/rand/v2"
	"slices"

	"fulcrum/beamdata/conversation"
	"fulcrum/internal/chat"
	"fulcrum/internal/rng"
)

// heldEpisodes is how many episodes validate, and as many again are held out.
const heldEpisodes = 400

// Episodes returns the conversations that a small model learns to use demonstrations from: some questions about pictures with
// their answers, and one that a demonstration among them answers.
func Episodes(opt Options) *conversation.Bundle {
	src := episodes{opt}
	rows := conversation.Rows(opt.Episodes + 2*heldEpisodes)
	held := rows[opt.Episodes:]
	b := &conversation.Bundle{
		Name: "icl_shapes", Synthetic: true, EvalName: "dev",
		Notice: "synthetic data: rendered objects with made-up names, which differ from episode to episode",
		Train:  conversation.NewSet("train", src, rows[:opt.Episodes]),
		Val:    conversation.NewSet("val", src, held[:heldEpisodes]),
		Eval:   conversation.NewSet("dev", src, held[heldEpisodes:]),
	}
	return b.Seal()
}

type episodes struct{ opt Options }

func (s episodes) Fingerprint() string { return fmt.Sprintf("icl_shapes episodes %+v", s.opt) }

func (s episodes) Sample(row int64) (conversation.Sample, error) {
	r := rng.New(s.opt.Seed, "icl episode", int(row))
	d := newDictionary(r)
	out := conversation.Sample{ID: row, Name: fmt.Sprintf("episode %d", row)}
	shots := s.opt.Shots
	if row < int64(s.opt.Episodes) {
		shots = 1 + r.IntN(shots)
	}
	turns := newEpisode(r, shots)
	for i, q := range turns {
		out.Messages = append(out.Messages, chat.Message{Role: "user", Parts: []chat.Part{
			{Type: chat.Image, Key: fmt.Sprintf("icl_shapes/%d/%d/%d", s.opt.Seed, row, i),
				Picture: func() (image.Image, error) { return q.scene.Image(), nil }},
			{Type: chat.Text, Text: q.text()}}})
		out.Reference = d.answer(q.key())
		if i < shots {
			out.Messages = append(out.Messages, chat.Message{Role: "assistant", Text: out.Reference})
		}
	}
	out.Answers = slices.Repeat([]string{out.Reference}, annotators)
	return out, nil
}

// newEpisode draws shots demonstrations and a question, of two shapes and two colours so that they resemble each other. One
// demonstration at least names what the question asks for.
func newEpisode(r *rand.Rand, shots int) []question {
	of, hues := r.Perm(6)[:2], r.Perm(7)[:2]
	turns := make([]question, shots+1)
	for i := range turns {
		turns[i] = question{newThing(r, of[r.IntN(2)], hues[r.IntN(2)]), attribute(r.IntN(2))}
	}
	last, right := turns[shots], &turns[r.IntN(shots)]
	if right.about = last.about; last.about == ofShape {
		right.scene.Shape = last.scene.Shape
	} else {
		right.scene.Hue = last.scene.Hue
	}
	return turns
}
