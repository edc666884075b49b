package tokens

import (
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/torchx"
)

// counting is a Decoding whose next token is the last one plus 1.
type counting struct{ vocabulary int }

func (c counting) Take([]int)           {}
func (c counting) First() torchx.Tensor { return c.Next(torchx.From([]int64{1, 2}, 2)) }
func (c counting) Next(ids torchx.Tensor) torchx.Tensor {
	z := make([]float32, 2*c.vocabulary)
	for i, id := range torchx.Data[int64](ids) {
		z[i*c.vocabulary+int(id)+1] = 1
	}
	return torchx.From(z, 2, c.vocabulary)
}

// TestUnrecorded: steps that cannot be recorded draw the same tokens, are counted, and are spoken of at the 1st, 10th and 100th time.
func TestUnrecorded(t *testing.T) {
	if err := torchx.Load(); err != nil {
		t.Fatal(err)
	}
	torchx.Attach(1)
	var said []string
	layout := Layout{Names: Names{Section: "vl"}, Vocab: 40, All: []torchx.Spec{{Name: "a", Shape: []int{1}}},
		Tuned: func(string) bool { return true }}
	w, err := Random(layout, Options{DType: "float32"}, "cpu", 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Free()
	w.Warn = func(text string) { said = append(said, text) }
	for range 12 {
		func() {
			defer torchx.Scope()()
			all := []*Sequence{{}, {Index: 1, Sample: 1}}
			opt := &GenerateOptions{SamplingOptions: DefaultSampling(20), IgnoreEOS: true}
			opt.Temperature = 0
			b := w.newResidentBatch(counting{40}, all, all, opt)
			b.run(true) // there is no device that could record
			b.fill(all)
			var want []int64
			for id := range int64(20) {
				want = append(want, 3+id)
			}
			if !slices.Equal(all[1].IDs, want) {
				t.Fatalf("drew %v, want %v", all[1].IDs, want)
			}
		}()
	}
	c := w.Copy()
	defer c.Free()
	if *c.slow != 12 || len(said) != 2 || !strings.Contains(said[0], "(1 so far)") || !strings.Contains(said[1], "(10 so far)") ||
		!strings.Contains(said[0], "CUDA graph") {
		t.Errorf("%d generations counted, said %q", *w.slow, said)
	}
}
