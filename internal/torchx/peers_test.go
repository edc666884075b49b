package torchx_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	. "fulcrum/internal/torchx"
)

// gloos are the processes of a run, here of one process.
func gloos(t *testing.T, size int) []*Gloo {
	t.Helper()
	all, errs := make([]*Gloo, size), make([]error, size)
	var port int
	if all[0], port, errs[0] = GlooStore("127.0.0.1", 0, true); errs[0] != nil {
		t.Fatal(errs[0])
	}
	var wait sync.WaitGroup
	for rank := range all {
		wait.Go(func() {
			if rank > 0 {
				all[rank], _, errs[rank] = GlooStore("127.0.0.1", port, false)
			}
			if errs[rank] == nil {
				errs[rank] = all[rank].Join("127.0.0.1", rank, size)
			}
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestGloo: tensors go by their tags, whatever their order; what waits ends where the group is aborted.
func TestGloo(t *testing.T) {
	defer Scope()()
	all := gloos(t, 3)
	x := func(v float32) Tensor { return From([]float32{v, v, v}, 3) }
	got := []Addressed{{x(0), 2, 5}, {x(0), 1, 7}, {x(0), 2, 1}}
	begin := func(of *Gloo, send, receive []Addressed) func() error {
		wait, err := of.Exchange(send, receive)
		if err != nil {
			t.Fatal(err)
		}
		return wait
	}
	waits := []func() error{begin(all[0], nil, got), begin(all[1], []Addressed{{x(7), 0, 7}}, nil),
		begin(all[2], []Addressed{{x(1), 0, 1}, {x(5), 0, 5}}, nil)}
	for _, wait := range waits {
		if err := wait(); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []float32{5, 7, 1} {
		if v := Data[float32](got[i].Tensor); !slices.Equal(v, []float32{want, want, want}) {
			t.Errorf("%d: %v, want %v", i, v, want)
		}
	}
	wait := begin(all[0], nil, []Addressed{{x(0), 1, 0}})
	over := make(chan error)
	go func() { over <- wait() }()
	if err := all[0].Abort(); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err == nil {
		t.Error("a wait ends well, for which nothing was sent")
	}
	if wait, err := all[0].Exchange(nil, []Addressed{{x(0), 1, 0}}); err == nil && wait() == nil {
		t.Error("an exchange behind the end")
	}
}

// TestAhead: the gradient of the last layer leaves during the backward pass, with the sums that are added to it; a pass that comes to a
// parameter once more than those before is told.
func TestAhead(t *testing.T) {
	all := gloos(t, 2)
	const n, layers = 8, 3
	var specs []Spec
	for i := range layers {
		specs = append(specs, Spec{Name: fmt.Sprint("w", i), Shape: []int{n, n}})
	}
	p := NewParams(specs, "cpu")
	defer p.Free()
	values := make([]float32, layers*n*n)
	for i := range values {
		values[i] = float32(i%7) / 8
	}
	p.SetValues(values)
	ahead := all[0].Ahead(p)
	defer ahead.Free()
	sum := FullLike(p.Grad(), 2, Float32, layers*n*n)
	pass := func(times int) (late bool, early int, want, got []float32) {
		defer Scope()()
		p.ZeroGrad()
		var parts []AheadPart
		var receive []Addressed
		for i := range layers {
			parts = append(parts, AheadPart{From: i * n * n, To: (i + 1) * n * n, Rank: 1, Tag: i})
			receive = append(receive, Addressed{FullLike(p.Grad(), 0, Float32, n*n), 0, i})
		}
		parts[1].Rank = -1
		received, err := all[1].Exchange(nil, slices.Delete(receive, 1, 2))
		if err != nil {
			t.Fatal(err)
		}
		before := ahead.Early
		ahead.Start(parts, []Tensor{sum, sum})
		for range times {
			x := FullLike(p.Grad(), 1, Float32, n, n)
			for i := range layers {
				x = MatMul(x, p.Get(fmt.Sprint("w", i)))
			}
			Backward(Sum(x))
		}
		sent, late, err := ahead.End()
		early = ahead.Early - before
		for _, wait := range []func() error{received, sent} {
			if err == nil {
				err = wait()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		want = Data[float32](p.Grad())
		for i := range layers {
			switch i {
			case 0:
				got = append(got, Data[float32](receive[0].Tensor)...)
			case 1:
				got = append(got, want[n*n:2*n*n]...)
			default:
				got = append(got, Data[float32](receive[1].Tensor)...)
			}
		}
		return late, early, want, got
	}
	for i, of := range []struct {
		times, early int
		late         bool
	}{{1, 0, false}, {1, 2, false}, {2, 2, true}, {2, 2, false}, {1, 0, false}} {
		late, early, want, got := pass(of.times)
		if late != of.late || early != of.early || !late && !slices.Equal(got, want) || want[0] < 4 {
			t.Errorf("pass %d: late %t, early %d, the same %t; want %+v", i, late, early, slices.Equal(got, want), of)
		}
	}
}
