package torchx

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestGraphWithoutCUDA: where there is no device, recording is an ordinary error.
func TestGraphWithoutCUDA(t *testing.T) {
	Attach(1)
	if err := Try(func() error { defer Scope()(); OnSideStream(Zeros(1))(); return nil }); err == nil {
		t.Error("a side stream on the CPU: want an error")
	}
}

// TestGraph: replays compute what the recorded function does, on the numbers that its memory holds then, also in the memory
// of an earlier graph; a recording that fails leaves the device usable.
func TestGraph(t *testing.T) {
	if !CUDAAvailable() {
		t.Skip("this libtorch sees no CUDA device")
	}
	Attach(1)
	defer Scope()()
	const rows, size = 8, 3000
	logits := From(randomLogits(rand.New(rand.NewPCG(1, 2)), rows, size, 3, false), rows, size).ToDevice("cuda:0")
	u := From([]float64{0, .1, .2, .3, .4, .5, .6, .7}, rows).ToDevice("cuda:0")
	ids, seen := FullLike(logits, 0, Int64, rows), FullLike(logits, 0, Bool, rows, size)
	opts := []SampleOptions{{Temperature: 0.8}, {TopK: 40, TopP: 0.9, RepetitionPenalty: 1.2}}
	step := func(opt SampleOptions) { // draws with uniforms that move on
		d := DrawTokens(Scale(logits, 1), opt, seen, Tensor{}, u, false)
		Copy(ids, d.IDs)
		MarkSeen(seen, ids)
		Copy(u, Scale(u, 0.9))
	}
	start := func() {
		Copy(u, From([]float64{0, .1, .2, .3, .4, .5, .6, .7}, rows))
		Copy(seen, From(make([]bool, rows*size), rows, size))
	}
	var before *Graph
	for i, opt := range opts {
		run := func(next func()) (out []int64) {
			start()
			for range 5 {
				next()
				out = append(out, Data[int64](ids)...)
			}
			return out
		}
		want := run(func() { defer Scope()(); step(opt) })
		end := OnSideStream(logits)
		func() { defer Scope()(); step(opt) }()
		graph := Capture(before, func() { step(opt) })
		before.Free()
		if got := run(graph.Replay); !slices.Equal(got, want) {
			t.Errorf("%+v: replays drew %v, want %v", opts[i], got, want)
		}
		before = graph
		end()
	}
	before.Free()
	err := Try(func() error {
		defer OnSideStream(logits)()
		Capture(nil, func() { Data[int64](ids) }).Free() // the host may not wait in a recording
		return nil
	})
	if err == nil {
		t.Error("a recording that waits for the device succeeded")
	} else {
		t.Log(err)
	}
	if got := Data[float64](Scale(From([]float64{2}, 1).ToDevice("cuda:0"), 3)); got[0] != 6 {
		t.Errorf("after a failed recording 2·3 = %v", got)
	}
}
