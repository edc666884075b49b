package torchx_test

import (
	"fmt"
	"math/rand/v2"
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

// TestSender: the gradient of the last layer leaves during the backward pass, with the sums that are added to it, and stays as it is; a
// pass that comes to a parameter once more than those before is told.
func TestSender(t *testing.T) {
	all := gloos(t, 2)
	const n, layers = 8, 3
	var specs []Spec
	for i := range layers {
		specs = append(specs, Spec{Name: fmt.Sprint("w", i), Shape: []int{n, n}})
	}
	p := NewParams(specs, "cpu")
	defer p.Free()
	r := rand.New(rand.NewPCG(1, 2))
	random := func() []float32 {
		v := make([]float32, layers*n*n)
		for i := range v {
			v[i] = r.Float32()
		}
		return v
	}
	p.SetValues(random())
	earlier := [][]float32{random(), random()}
	passes := func(times int) {
		p.ZeroGrad()
		for k := range times {
			x := FullLike(p.Grad(), float64(k)+1.3, Float32, n, n)
			for i := range layers {
				x = MatMul(x, p.Get(fmt.Sprint("w", i)))
			}
			Backward(Sum(x))
		}
	}
	sender := all[0].Sender(p)
	defer sender.Free()
	parts := []SentPart{{0, n * n, 1, 7}, {2 * n * n, 3 * n * n, 1, 9}} // what lies between stays
	for i, of := range []struct {
		times, early int
		late         bool
	}{{1, 0, false}, {1, 2, false}, {2, 2, true}, {2, 2, false}, {1, 0, false}} {
		end := Scope()
		passes(of.times)
		gradient := Data[float32](p.Grad())
		var receive []Addressed
		for _, part := range parts {
			receive = append(receive, Addressed{FullLike(p.Grad(), 0, Float32, n*n), 0, part.Tag})
		}
		received, err := all[1].Exchange(nil, receive)
		if err != nil {
			t.Fatal(err)
		}
		before := sender.Early
		sender.Start(parts, []Tensor{From(earlier[0], layers*n*n), From(earlier[1], layers*n*n)})
		passes(of.times)
		sent, late, err := sender.End()
		for _, wait := range []func() error{received, sent} {
			if err == nil {
				err = wait()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		if early := sender.Early - before; late != of.late || early != of.early {
			t.Errorf("pass %d: late %t, early %d; want %+v", i, late, early, of)
		}
		if !slices.Equal(Data[float32](p.Grad()), gradient) {
			t.Errorf("pass %d: the gradient is another", i)
		}
		for k, part := range parts {
			got := Data[float32](receive[k].Tensor)
			for j, v := range got {
				if at := part.From + j; !late && v != (gradient[at]+earlier[0][at])+earlier[1][at] {
					t.Fatalf("pass %d, part %d: %v at %d", i, k, v, j)
				}
			}
		}
		end()
	}
}
