package ranks

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// met returns the processes of a group as goroutines of this one.
func met(t *testing.T, size int, timeout time.Duration) []*Group {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Place{Size: size, By: "test", Address: listener.Addr().String(), Secret: "of this test"}
	groups, errs := make([]*Group, size), make([]error, size)
	var wait sync.WaitGroup
	for rank := range size {
		wait.Go(func() {
			if rank == 0 {
				groups[0], errs[0] = host(t.Context(), listener, p, timeout, nil, nil)
				return
			}
			own := *p
			own.Rank = rank
			groups[rank], errs[rank] = Meet(t.Context(), &own, timeout)
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return groups
}

// each calls f for every process at once and returns the errors by rank.
func each(groups []*Group, f func(g *Group) error) []error {
	errs := make([]error, len(groups))
	var wait sync.WaitGroup
	for rank, g := range groups {
		wait.Go(func() { errs[rank] = f(g) })
	}
	wait.Wait()
	return errs
}

// TestTree: a sum of float32 numbers has the same bits for every number of processes, and is not the sum in order.
func TestTree(t *testing.T) {
	add := func(a, b float32) float32 { return a + b }
	other := false
	for n := 1; n <= 33; n++ {
		x := make([]float32, n)
		sum := float32(0)
		for i := range x {
			x[i] = rand.Float32()
			sum += x[i]
		}
		var want float32
		for size := 1; size <= n; size++ {
			var nodes []Node[float32]
			for rank := range size {
				from, to := Part(n, rank, size)
				last := from - 1
				nodes = append(nodes, Sums(n, from, to, func(i int) float32 {
					if i != last+1 {
						t.Fatalf("shard %d is computed after %d", i, last)
					}
					last = i
					return x[i]
				}, add)...)
				if last != to-1 {
					t.Fatalf("%d of %d processes computes shards %d … %d, want up to %d", rank, size, from, last, to-1)
				}
			}
			got := Total(n, nodes, add)
			if size == 1 {
				want = got
			}
			if got != want {
				t.Errorf("%d shards, %d processes: %v, want %v", n, size, got, want)
			}
		}
		other = other || want != sum
	}
	if !other {
		t.Error("the tree is the sum in order: this test cannot fail")
	}
}

type sent struct {
	Numbers []float64
	Text    string
}

// TestExchange: values arrive by rank, in many exchanges of many sizes; collected ones arrive at rank 0 alone.
func TestExchange(t *testing.T) {
	for _, size := range []int{2, 3, 8} {
		groups := met(t, size, 5*time.Second)
		for _, err := range each(groups, func(g *Group) error {
			for i := range 50 {
				all, err := Gather(g, "numbers", sent{make([]float64, 37*i*g.Rank()), fmt.Sprint(g.Rank())}, nil)
				if err != nil {
					return err
				}
				for rank, of := range all {
					if len(of.Numbers) != 37*i*rank || of.Text != fmt.Sprint(rank) {
						return fmt.Errorf("rank %d got %d numbers and %q of rank %d", g.Rank(), len(of.Numbers), of.Text, rank)
					}
				}
				kept, err := g.Collect("names", []byte(strings.Repeat(fmt.Sprint(g.Rank()), 1+rand.IntN(1<<14))))
				if err != nil || len(kept) > 0 != g.First() {
					return fmt.Errorf("rank %d: %d kept: %v", g.Rank(), len(kept), err)
				}
				for rank, of := range kept {
					if strings.Trim(string(of), fmt.Sprint(rank)) != "" || len(of) == 0 {
						return fmt.Errorf("of rank %d came %d bytes", rank, len(of))
					}
				}
				done := false
				if err := g.Do("else", func() error { done = true; return nil }); err != nil || !done {
					return fmt.Errorf("rank %d: %t %v", g.Rank(), done, err)
				}
				word, err := Share(g, "word", fmt.Sprint("of ", g.Rank()), nil)
				if err != nil || word != "of 0" {
					return fmt.Errorf("rank %d: %q %v", g.Rank(), word, err)
				}
			}
			return nil
		}) {
			if err != nil {
				t.Error(err)
			}
		}
		each(groups, func(g *Group) error { g.Close(nil); return nil })
	}
}

// TestEnds: whatever one process does, the others end in time with an error that names it, its host and the cause.
func TestEnds(t *testing.T) {
	const timeout = 3 * time.Second
	for name, tc := range map[string]struct {
		guilty int
		do     func(g *Group) error // what the guilty one does in place of an exchange
		said   string
	}{
		"fails":        {2, func(g *Group) error { g.Close(errors.New("the disk is full")); return nil }, "the disk is full"},
		"first fails":  {0, func(g *Group) error { g.Close(errors.New("the disk is full")); return nil }, "the disk is full"},
		"fails in it":  {1, func(g *Group) error { _, err := g.Exchange("x", nil, errors.New("no reward")); return err }, "no reward"},
		"dies":         {1, func(g *Group) error { g.links[0].data.Close(); g.links[0].control.Close(); return nil }, "ended without a word"},
		"is elsewhere": {2, func(g *Group) error { _, err := g.Exchange("y", nil, nil); return err }, "in y (exchange 1), and rank 0 in x"},
		"hangs":        {1, func(g *Group) error { g.links[0].saying.Lock(); return nil }, "nothing was heard of it for 3s"},
		"first hangs":  {0, func(g *Group) error { g.links[1].saying.Lock(); g.links[2].saying.Lock(); return nil }, "nothing was heard"},
		"waits in another": {2, func(g *Group) error { // that says nothing
			return g.Do("y", func() error { <-g.Ended(); return errors.New("it was ended") })
		}, "in y (exchange 1), and rank 0 in x"},
		"fails in another": {1, func(g *Group) error { return g.Do("x", func() error { return errors.New("no memory") }) }, "x: no memory"},
		"ends too early":   {2, func(g *Group) error { g.Close(nil); return nil }, "this process goes on"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			groups := met(t, 3, timeout)
			begin := time.Now()
			errs := each(groups, func(g *Group) error {
				if g.Rank() == tc.guilty {
					return tc.do(g)
				}
				_, err := g.Exchange("x", nil, nil)
				if err != nil {
					g.Close(err)
				}
				return err
			})
			for rank, err := range errs {
				if rank == tc.guilty {
					continue
				}
				who := fmt.Sprintf("rank %d on ", tc.guilty)
				if name == "waits in another" && err != nil && strings.Contains(err.Error(), "in x (exchange 1), and rank 2 in y") {
					continue // both hear that they wait in different exchanges, and either may be the first
				}
				if err == nil || !strings.Contains(err.Error(), tc.said) || !strings.Contains(err.Error(), who) {
					t.Errorf("rank %d: %v, want rank %d and %q", rank, err, tc.guilty, tc.said)
				}
			}
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestStopped: where one process is asked to stop, all learn it in the same exchange, and nothing ends.
func TestStopped(t *testing.T) {
	groups := met(t, 3, 5*time.Second)
	for rank, err := range each(groups, func(g *Group) error {
		var asked error
		if g.Rank() == 1 {
			asked = context.Canceled
		}
		_, err := g.Exchange("the start of a step", nil, asked)
		if !errors.Is(err, context.Canceled) {
			return fmt.Errorf("%v, want a cancellation", err)
		}
		if by, ok := errors.AsType[*StoppedError](err); g.Rank() != 1 && (!ok || by.Rank != 1) {
			return fmt.Errorf("%v, want rank 1's", err)
		}
		_, err = g.Exchange("another", nil, nil)
		return err
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// TestEndsLast: a process that is done stays until rank 0 is, which may be saving still; it is missed by nobody, however long that takes.
func TestEndsLast(t *testing.T) {
	groups := met(t, 3, 300*time.Millisecond)
	ended := make(chan int, len(groups))
	for _, g := range groups[1:] {
		go func() {
			g.Close(nil)
			ended <- g.Rank()
		}()
	}
	select {
	case rank := <-ended:
		t.Errorf("rank %d ends before rank 0", rank)
	case <-time.After(time.Second):
	}
	if err := groups[0].Why(nil); err != nil {
		t.Error(err)
	}
	if _, err := groups[0].Exchange("late", nil, nil); err == nil || !strings.Contains(err.Error(), "it has ended its run") {
		t.Errorf("an exchange with who is done: %v", err)
	}
	for range groups[1:] {
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Fatal("a process outlives rank 0")
		}
	}
}

// TestBusy: a process that computes for longer than the timeout is healthy.
func TestBusy(t *testing.T) {
	t.Parallel()
	groups := met(t, 2, 3*time.Second)
	for rank, err := range each(groups, func(g *Group) error {
		if g.Rank() == 1 {
			time.Sleep(7 * time.Second)
		}
		_, err := g.Exchange("x", nil, nil)
		return err
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// TestStandsStill: a process that slept past its deadline hears what was said meanwhile.
func TestStandsStill(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	l := &link{control: here, hears: bufio.NewReader(here)}
	if err := l.hear(time.Nanosecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("silence: %v", err)
	}
	go there.Write([]byte{1})
	if err := l.hear(time.Nanosecond); err != nil {
		t.Errorf("a heartbeat behind the deadline: %v", err)
	}
}

// TestRefused: processes that do not belong together do not meet, and all that asked learn why.
func TestRefused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := listener.Addr().String()
	first := make(chan error, 1)
	go func() {
		_, err := host(t.Context(), listener, &Place{Size: 3, Secret: "s"}, time.Second, nil, nil)
		first <- err
	}()
	guest := func(rank, size int) error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := Meet(ctx, &Place{Rank: rank, Size: size, Address: at, Secret: "s"}, time.Second)
		return err
	}
	other := make(chan error, 1)
	go func() { other <- guest(1, 3) }()
	time.Sleep(50 * time.Millisecond)
	wrong := guest(2, 4)
	if err := <-first; err == nil || !strings.Contains(err.Error(), "one of 4 processes") {
		t.Errorf("rank 0: %v, want both sizes", err)
	}
	for _, err := range []error{<-other, wrong} {
		if err == nil || !strings.Contains(err.Error(), "one of 4 processes") {
			t.Errorf("%v, want both sizes", err)
		}
	}
}

// TestFailedBefore: a process that fails before the others are there is named to all of them, early or late.
func TestFailedBefore(t *testing.T) {
	for guilty := range 3 {
		t.Run(fmt.Sprint("rank ", guilty), func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			errs := make([]error, 3)
			var all sync.WaitGroup
			for rank := range errs {
				p := &Place{Rank: rank, Size: 3, Address: listener.Addr().String(), Secret: "s"}
				if rank == guilty {
					p.failed = (&Error{rank, "h", "grpo.lr: want a number"}).Error()
				}
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					time.Sleep(time.Duration(rank) * 100 * time.Millisecond) // rank 2 is late
					if rank == 0 {
						_, errs[rank] = host(ctx, listener, p, time.Second, nil, nil)
					} else {
						_, errs[rank] = join(ctx, p)
					}
				})
			}
			all.Wait()
			for rank, err := range errs {
				if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("rank %d on ", guilty)) || !strings.Contains(err.Error(), "want a number") {
					t.Errorf("rank %d: %v", rank, err)
				}
			}
		})
	}
}

// TestHere reads the variables of torchrun and srun.
func TestHere(t *testing.T) {
	for _, tc := range []struct {
		env  map[string]string
		want *Place
		err  string
	}{
		{map[string]string{}, nil, ""},
		{map[string]string{"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "n1", "MASTER_PORT": "29500",
			"TORCHELASTIC_RUN_ID": "r", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_USE_AGENT_STORE": "True"},
			&Place{Rank: 3, Size: 4, Local: 1, By: "torchrun", Address: "n1:29500", Secret: "r/0", Store: true}, ""},
		{map[string]string{"RANK": "4", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "n1"}, nil, "RANK=4: want less than WORLD_SIZE=4"},
		{map[string]string{"RANK": "0", "WORLD_SIZE": "x", "LOCAL_RANK": "1", "MASTER_ADDR": "n1"}, nil, `WORLD_SIZE="x": want a number`},
		{map[string]string{"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "n1", "MASTER_PORT": "x"}, nil,
			`MASTER_PORT="x": want a number`},
		{map[string]string{"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "n1"}, nil, ""},
		{map[string]string{"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, nil, ""}, // a batch script
		{map[string]string{"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0", "SLURM_STEP_ID": "3", "SLURM_JOB_ID": "7",
			"SLURM_STEP_NODELIST": "gpu[03-05,9],cpu1"}, &Place{Rank: 1, Size: 2, By: "srun", Address: "gpu03:20920", Secret: "7.3"}, ""},
	} {
		for _, name := range []string{rankVariable, "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
			"TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_USE_AGENT_STORE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS",
			"SLURM_LOCALID", "SLURM_STEP_ID", "SLURM_JOB_ID", "SLURM_STEP_NODELIST"} {
			t.Setenv(name, tc.env[name])
		}
		got, err := Here()
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%v: %v, want %q", tc.env, err, tc.err)
			}
			continue
		}
		if err != nil || (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
			t.Errorf("%v: %+v, %v, want %+v", tc.env, got, err, tc.want)
		}
	}
}

// Who changes what Hosts returns changes no group.
func TestHostsAreACopy(t *testing.T) {
	g := &Group{hosts: []string{"a", "a", "b"}}
	g.Hosts()[1] = ""
	if !slices.Equal(g.hosts, []string{"a", "a", "b"}) {
		t.Errorf("hosts %q", g.hosts)
	}
}
