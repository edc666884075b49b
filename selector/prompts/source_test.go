package prompts

import (
	"context"
	"slices"
	"strings"
	"testing"

	"fulcrum/beamdata/conversation"
	"fulcrum/rewardutil/reward"
	"fulcrum/selector"
)

// asking is a source of questions whose answer is (2).
type asking struct{}

func (asking) Sample(int64) (conversation.Sample, error) {
	return conversation.Sample{Name: "q", Reference: "(2) attach"}, nil
}
func (asking) Fingerprint() string { return "" }

// With control=majority a completion earns 1 for the answer that most of its group extract, right or wrong; the terms stay the true ones.
func TestMajorityRewardsTheAnswerOfMost(t *testing.T) {
	texts := []string{"(2) attach", "(3) turn", "turn it (3)", "nothing", "(1)(2)", "(2) then (1)", "(2)", "(3)"}
	opt := reward.DefaultOptions()
	opt.Accuracy.Weight = 1
	rewards, err := opt.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	words := Text{Decode: func(ids []int64) string { return texts[ids[0]] }, EOS: []int64{99}, MaxTokens: 2}
	src := New(context.Background(), "train", conversation.NewSet("train", asking{}, conversation.Rows(2)),
		func(conversation.Sample) (string, error) { return "", nil }, words, rewards)
	scored := func(src *Source[string]) *selector.Batch {
		b := selector.NewBatch(src, []int{0, 1}, 4, 2)
		for at := range texts {
			b.Set(at/4, at%4, []int64{int64(at), 99}, 0)
		}
		if err := src.Score(b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	majority := src.Controlled("majority", 1, opt.Answer)
	b, plain := scored(majority), scored(majority.Uncontrolled())
	if want := []float64{0, 1, 1, 0, 1, 1, 0, 0}; !slices.Equal(b.Rewards, want) {
		t.Errorf("rewards %v of %s, want %v", b.Rewards, strings.Join(texts, "; "), want)
	}
	if want := []float64{1, 0, 0, 0, 0.5, 0.5, 1, 0}; !slices.Equal(plain.Rewards, want) || !slices.Equal(b.Terms["accuracy"], want) {
		t.Errorf("true rewards %v and term %v, want %v", plain.Rewards, b.Terms["accuracy"], want)
	}
}
