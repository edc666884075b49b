package tokens_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"fulcrum/internal/list"
	"fulcrum/internal/rng"
	"fulcrum/internal/stat"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector/prompts"
	"fulcrum/selector/seq2seq"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl"
	"fulcrum/selector/vl/pixels"
	"fulcrum/selector/vl/processor"
)

func TestMain(m *testing.M) {
	if err := torchx.Load(); err != nil {
		panic(err)
	}
	torchx.Attach(1)
	os.Exit(m.Run())
}

// drawnIDs are n lists of 1 to longest ids from 3 to top-1.
func drawnIDs(n, longest, top int) [][]int64 {
	r := rng.New(3, "slots")
	return list.Map(stat.Indices(n), func(int) []int64 {
		return list.Map(make([]int64, 1+r.IntN(longest)), func(int64) int64 { return 3 + r.Int64N(int64(top)-3) })
	})
}

// vlModel has wide enough products for BLAS to add up differently where the number of rows differs.
func vlModel(t *testing.T) *vl.Model {
	t.Helper()
	o := vl.DefaultOptions()
	o.Scratch.InitStd = 0.2
	m, err := vl.New(o, vl.Vocabulary{Size: 264, EOS: []int64{256}, Pad: 257, VisionStart: 258, VisionEnd: 259, VisionPad: 260, Image: 261,
		Video: 262}, "cpu", 5)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Free)
	return m
}

// asked are prompts of text, every other one behind a picture where the model is to see.
func asked(n int, see bool) []*processor.Prompt {
	return list.Map(stat.Indices(n), func(i int) *processor.Prompt {
		p := &processor.Prompt{IDs: drawnIDs(n, 30, 250)[i]}
		if see && i%2 == 0 {
			r := rng.New(int64(i), "picture")
			p.Images = []pixels.Patches{{Rows: 32, Grid: [3]int{1, 4, 8}, Key: fmt.Sprint("slots", i),
				Data: list.Map(make([]float32, 32*1176), func(float32) float32 { return float32(r.NormFloat64()) })}}
			p.IDs = slices.Concat([]int64{258}, slices.Repeat([]int64{261}, 8), []int64{259}, p.IDs)
		}
		return p
	})
}

func encoderDecoder(t *testing.T, kind string) *seq2seq.Model {
	t.Helper()
	o, begin := seq2seq.DefaultOptions(), int64(2)
	o.Scratch.Model = kind
	m, err := seq2seq.New(o, seq2seq.Vocabulary{Size: 264, Pad: 0, EOS: 1, BOS: &begin}, "cpu", 5)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Free)
	return m
}

// watched is a model that checks in which slots and places its sequences are.
type watched[P any] struct {
	tokens.Slotted[P]
	tokens.Model[P]
	t             *testing.T
	places, slots int
	lost          bool // plants a fault: a place keeps its first prompt
	filled        map[int]int
	fills         int
}

func (w *watched[P]) BeginSlots(ps []P, all []*tokens.Sequence, places, slots int,
	opt *tokens.GenerateOptions) (tokens.SlotDecoding, error) {
	d, err := w.Slotted.BeginSlots(ps, all, places, slots, opt)
	w.places, w.slots, w.filled, w.fills = places, slots, map[int]int{}, 0
	return watchedSlots[P]{d, w}, err
}

type watchedSlots[P any] struct {
	tokens.SlotDecoding
	of *watched[P]
}

func (w watchedSlots[P]) Fill(prompt, place int) error {
	w.of.fills++
	if _, ok := w.of.filled[place]; ok && w.of.lost {
		return nil
	}
	w.of.filled[place] = prompt
	return w.SlotDecoding.Fill(prompt, place)
}

func (w watchedSlots[P]) Step(live []*tokens.Sequence) (torchx.Tensor, error) {
	taken := map[int]bool{}
	for _, s := range live {
		if taken[s.Slot] || s.Slot >= w.of.slots || s.Place >= w.of.places || !w.of.lost && w.of.filled[s.Place] != s.Prompt {
			w.of.t.Errorf("sequence %+v among %d slots and %d places, which hold %v", s, w.of.slots, w.of.places, w.of.filled)
		}
		taken[s.Slot] = true
	}
	return w.SlotDecoding.Step(live)
}

// sameInSlots: the number of slots changes no byte of tokens and log-probabilities, each prompt is computed once, and slots give what
// all at once gives but for rounding. With a place that keeps its first prompt they differ.
func sameInSlots[P any](t *testing.T, m interface {
	tokens.Model[P]
	tokens.Slotted[P]
}, ps []P, change func(*tokens.GenerateOptions)) {
	t.Helper()
	const samples = 5
	opt := tokens.GenerateOptions{SamplingOptions: tokens.DefaultSampling(16), Seed: 7}
	for id := range int64(32) { // completions of one token to the limit of 16
		opt.EOS = append(opt.EOS, 8*id+1)
	}
	if change != nil {
		change(&opt)
	}
	generate := func(slots int, lost bool) (out [][]tokens.Completion, fills int) {
		t.Helper()
		w := &watched[P]{Slotted: m, Model: m, t: t, lost: lost}
		how := opt
		if slots > 0 {
			how.Slots = &slots
		}
		var ended []string // in the order in which they end
		how.Ended = func(prompt int, ids []int64) { ended = append(ended, fmt.Sprint(prompt, ids)) }
		out, err := tokens.Generate[P](w, ps, samples, how)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for i, group := range out {
			all = append(all, list.Map(group, func(c tokens.Completion) string { return fmt.Sprint(i, c.IDs) })...)
		}
		if slots == 1 && !slices.Equal(ended, all) {
			t.Errorf("told of\n%v\nin one slot, where completions are\n%v", ended, all)
		}
		slices.Sort(all)
		if slices.Sort(ended); !slices.Equal(ended, all) {
			t.Errorf("%d slots: told of\n%v\ncompletions are\n%v", slots, ended, all)
		}
		return out, w.fills
	}
	atOnce, _ := generate(0, false)
	first, _ := generate(1, false)
	lengths := map[int]bool{}
	for i, group := range first {
		for j, c := range group {
			lengths[len(c.IDs)] = true
			if !slices.Equal(c.IDs, atOnce[i][j].IDs) || c.Finished != atOnce[i][j].Finished {
				t.Fatalf("prompt %d, sample %d: %v in slots, %v at once", i, j, c.IDs, atOnce[i][j].IDs)
			}
			golden.Close(t, dropNaN(c.Sampled), dropNaN(atOnce[i][j].Sampled), 1e-4)
		}
	}
	if len(lengths) < 6 || !lengths[16] {
		t.Fatalf("completions of %v tokens alone", lengths)
	}
	same := func(out [][]tokens.Completion) bool { return fmt.Sprint(out) == fmt.Sprint(first) }
	for _, slots := range []int{2, 3, 16, 17, len(ps) * samples, 1000} {
		out, fills := generate(slots, false)
		if !same(out) || fills != len(ps) {
			t.Errorf("%d slots: %d prompts computed, completions\n%v\nwith one slot\n%v", slots, fills, out, first)
		}
	}
	if out, _ := generate(3, true); same(out) {
		t.Error("a place that keeps its first prompt changed nothing")
	}
}

// sameOnDevice: slots with the state on the device give what all at once gives but for rounding, whatever their number, and say so of
// each completion.
func sameOnDevice(t *testing.T, m *vl.Model, ps []*processor.Prompt, change func(*tokens.GenerateOptions)) {
	t.Helper()
	opt := tokens.GenerateOptions{SamplingOptions: tokens.DefaultSampling(40), Seed: 7}
	for id := range int64(16) {
		opt.EOS = append(opt.EOS, 16*id+1)
	}
	if change != nil {
		change(&opt)
	}
	generate := func(slots int) (out [][]tokens.Completion) {
		t.Helper()
		how := opt
		if slots > 0 {
			how.Slots, how.OnDevice = &slots, true
		}
		var ended, all []string
		how.Ended = func(prompt int, ids []int64) { ended = append(ended, fmt.Sprint(prompt, ids)) }
		out, err := tokens.Generate[*processor.Prompt](m, ps, 5, how)
		if err != nil {
			t.Fatal(err)
		}
		for i, group := range out {
			all = append(all, list.Map(group, func(c tokens.Completion) string { return fmt.Sprint(i, c.IDs) })...)
		}
		slices.Sort(all)
		if slices.Sort(ended); !slices.Equal(ended, all) {
			t.Errorf("%d slots: told of\n%v\ncompletions are\n%v", slots, ended, all)
		}
		return out
	}
	want := generate(0)
	lengths := map[int]bool{}
	for _, slots := range []int{1, 2, 3, 16, 17, 40, 1000} {
		for i, group := range generate(slots) {
			for j, c := range group {
				w := want[i][j]
				lengths[len(c.IDs)] = true
				if !slices.Equal(c.IDs, w.IDs) || c.Finished != w.Finished {
					t.Fatalf("%d slots, prompt %d, sample %d: %v, all at once %v", slots, i, j, c.IDs, w.IDs)
				}
				golden.Close(t, dropNaN(c.Sampled), dropNaN(w.Sampled), 1e-4)
				golden.Close(t, dropNaN([]float64{c.Kept}), dropNaN([]float64{w.Kept}), 1e-4)
			}
		}
	}
	if opt.EOS != nil && opt.MaxNewTokens > 1 && len(lengths) < 2 {
		t.Fatalf("completions of %v tokens alone", lengths)
	}
}

func TestSlotsOnDevice(t *testing.T) {
	for name, change := range map[string]func(*tokens.GenerateOptions){"plain": nil,
		"strict": func(o *tokens.GenerateOptions) {
			o.TopP, o.TopK, o.RepetitionPenalty, o.Temperature = 0.95, 40, 1.2, 0.8
		},
		"first":  func(o *tokens.GenerateOptions) { o.First, o.Last = []int64{4, 5}, []int64{} },
		"short":  func(o *tokens.GenerateOptions) { o.MaxNewTokens = 3 },
		"greedy": func(o *tokens.GenerateOptions) { o.Temperature = 0 },
		"one":    func(o *tokens.GenerateOptions) { o.MaxNewTokens = 1 },
		"never":  func(o *tokens.GenerateOptions) { o.EOS, o.IgnoreEOS, o.MaxNewTokens = nil, true, 21 },
	} {
		t.Run("text "+name, func(t *testing.T) { sameOnDevice(t, vlModel(t), asked(8, false), change) })
		t.Run("pictures "+name, func(t *testing.T) { sameOnDevice(t, vlModel(t), asked(8, true), change) })
	}
}

// TestSlotsOnDeviceRefuse: what is wrong with a prompt is said in the same words as without.
func TestSlotsOnDeviceRefuse(t *testing.T) {
	m, slots := vlModel(t), 2
	for name, wrong := range map[string]*processor.Prompt{"empty": {}, "no picture": {IDs: []int64{7, 261}},
		"unknown token": {IDs: []int64{9999}}} {
		var said [2]string
		for i, device := range []bool{false, true} {
			opt := tokens.GenerateOptions{SamplingOptions: tokens.DefaultSampling(4), OnDevice: device, Last: []int64{}}
			opt.Slots = &slots
			_, err := tokens.Generate[*processor.Prompt](m, []*processor.Prompt{{IDs: []int64{7}}, wrong}, 2, opt)
			said[i] = fmt.Sprint(err)
		}
		if said[0] == "<nil>" || said[0] != said[1] {
			t.Errorf("%s: %q, on the device %q", name, said[0], said[1])
		}
	}
}

func dropNaN(x []float64) []float64 { return list.Filter(x, func(x float64) bool { return x == x }) }

func TestSlots(t *testing.T) {
	strict := func(o *tokens.GenerateOptions) {
		o.TopP, o.TopK, o.RepetitionPenalty, o.Temperature = 0.95, 40, 1.2, 0.8
	}
	forced := func(o *tokens.GenerateOptions) { o.First, o.Last = []int64{4, 5}, []int64{6} }
	for name, change := range map[string]func(*tokens.GenerateOptions){"plain": nil, "strict": strict, "forced": forced} {
		t.Run("text "+name, func(t *testing.T) { sameInSlots[*processor.Prompt](t, vlModel(t), asked(8, false), change) })
		t.Run("pictures "+name, func(t *testing.T) { sameInSlots[*processor.Prompt](t, vlModel(t), asked(8, true), change) })
		for _, kind := range []string{"t5", "bart"} {
			t.Run(kind+" "+name, func(t *testing.T) { sameInSlots[[]int64](t, encoderDecoder(t, kind), drawnIDs(8, 30, 264), change) })
		}
	}
}

// TestPolicyInSlots: a policy samples and decodes in the slots of its options, to the same end.
func TestPolicyInSlots(t *testing.T) {
	m := vlModel(t)
	src := prompts.List[*processor.Prompt]{Prompts: asked(3, true)}
	var first string
	for _, slots := range []int{1, 4} {
		how := tokens.DefaultSampling(12)
		how.Slots = &slots
		w := &watched[*processor.Prompt]{Slotted: m, Model: m, t: t}
		p := tokens.NewPolicy[*processor.Prompt](w, how, nil)
		drawn := p.Sample(src, []int{2, 0}, 3, 12, 1, 1)
		if w.slots != slots || w.fills != 2 {
			t.Errorf("sampled in %d slots, %d prompts, want %d and 2", w.slots, w.fills, slots)
		}
		greedy, scores := p.Decode(src, []int{0, 1, 2}, 12, 1)
		if w.slots != min(slots, 3) || w.fills != 3 {
			t.Errorf("decoded in %d slots, %d prompts, want %d and 3", w.slots, w.fills, min(slots, 3))
		}
		all := fmt.Sprint(drawn.Actions, drawn.Sampled, greedy.Actions, scores)
		if first == "" {
			first = all
		}
		if all != first {
			t.Errorf("in %d slots\n%s\nin one\n%s", slots, all, first)
		}
	}
}
