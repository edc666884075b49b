package iclshapes

import (
	"fmt"
	"image"
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
	of, shots, teaches := tongue(r.IntN(kinds)), s.opt.Shots, looksUp
	if row < int64(s.opt.Episodes) {
		shots, teaches = 1+r.IntN(shots), lesson(r.IntN(int(lessons)))
	}
	if teaches == follows {
		if shots = 0; r.IntN(3) == 0 {
			of = 0 // more often than others: or no picture alone would say anything about its word
		}
	}
	out := conversation.Sample{ID: row, Name: fmt.Sprintf("episode %d", row)}
	for i := range shots + 1 {
		q, text := newThing(r), asks
		out.Reference = of.answer(q)
		switch {
		case i == shots && teaches == follows:
			text = of.String() + " " + text
		case i == shots && teaches == tells:
			text, out.Reference = "tongue", of.String()
		}
		out.Messages = append(out.Messages, chat.Message{Role: "user", Parts: []chat.Part{
			{Type: chat.Image, Key: fmt.Sprintf("icl_shapes/%d/%d/%d", s.opt.Seed, row, i),
				Picture: func() (image.Image, error) { return q.scene.Image(), nil }},
			{Type: chat.Text, Text: text}}})
		if i < shots {
			out.Messages = append(out.Messages, chat.Message{Role: "assistant", Text: out.Reference})
		}
	}
	out.Answers = slices.Repeat([]string{out.Reference}, annotators)
	return out, nil
}

// asks is the question of every record.
const asks = "colour"

// lesson is what an episode teaches.
type lesson int

const (
	follows lesson = iota // a tongue is named in the question, and the answer is in it
	tells                 // the demonstrations are in a tongue, and the answer is its name
	looksUp               // the demonstrations are in a tongue, and the answer is in it: what is validated, and what a world asks for
	lessons
)
