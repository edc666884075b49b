package prompts

import (
	"context"
	"os"
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

// Foreseen items are those that are scored: no scorer is asked twice.
func TestForeseenItemsAreThoseScored(t *testing.T) {
	texts := []string{"a", "bb", "", "dddd"}
	dir := t.TempDir()
	opt := reward.DefaultOptions()
	opt.External.Weight, opt.External.BatchSize, opt.External.Keep = 1, 1, true
	opt.External.Command = []string{"sh", "-c", `while read -r line; do echo x >> ` + dir + `/asked; echo 0.5; done`}
	rewards, err := opt.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer rewards.Close()
	words := Text{Decode: func(ids []int64) string { return texts[ids[0]] }, EOS: []int64{99}, MaxTokens: 2}
	src := New(context.Background(), "train", conversation.NewSet("train", asking{}, conversation.Rows(2)),
		func(conversation.Sample) (string, error) { return "", nil }, words, rewards)
	b := selector.NewBatch(src, []int{0, 1}, 2, 2)
	foresee := src.Foresee()
	for at := range texts {
		ids := []int64{int64(at), 99}[:2-at%2] // with and without an end
		b.Set(at/2, at%2, ids, 0)
		foresee(at/2, ids)
	}
	if err := src.Score(b); err != nil {
		t.Fatal(err)
	}
	if asked, err := os.ReadFile(dir + "/asked"); err != nil || len(asked) != 2*len(texts) {
		t.Errorf("asked %d times (%v), want %d", len(asked)/2, err, len(texts))
	}
	if New(context.Background(), "train", src.Set(), src.render, words, nil).Foresee() != nil {
		t.Error("something is foreseen without rewards")
	}
}

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
