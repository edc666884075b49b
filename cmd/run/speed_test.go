package main

import (
	"strconv"
	"testing"
	"time"

	"fulcrum/configs"
	"fulcrum/internal/testkit/golden"
)

// sweepRequest is a sweep over our own tree with the schema of the program: n jobs of two groups and
// three values.
func sweepRequest(tb testing.TB, n int) configs.Request {
	tb.Helper()
	schema, err := annexes().app.Schema()
	if err != nil {
		tb.Fatal(err)
	}
	return configs.Request{Library: configs.Library(), Schema: schema, Multirun: true, Overrides: []string{
		"exp=okvqa_v3", "seed=range(" + strconv.Itoa(n/4) + ")", "grpo/kl=adaptive,fixed", "rce.lr=1e-4,1e-3", "rce.epochs=2"}}
}

// composeJobs composes and checks all jobs of a sweep, as is done before the first one starts.
func composeJobs(tb testing.TB, req configs.Request, n int) {
	tb.Helper()
	c, err := configs.NewComposer(req)
	if err != nil {
		tb.Fatal(err)
	}
	master, err := c.Compose()
	if err != nil {
		tb.Fatal(err)
	}
	jobs, err := c.Expand(master)
	if err != nil {
		tb.Fatal(err)
	}
	if len(jobs) != n {
		tb.Fatalf("%d jobs, want %d", len(jobs), n)
	}
}

func BenchmarkSweep20(b *testing.B) {
	req := sweepRequest(b, 20)
	for b.Loop() {
		composeJobs(b, req, 20)
	}
}

func BenchmarkSweep10000(b *testing.B) {
	req := sweepRequest(b, 10000)
	for b.Loop() {
		composeJobs(b, req, 10000)
	}
}

// BenchmarkCompose is one config of eight groups and more, from nothing.
func BenchmarkCompose(b *testing.B) {
	for b.Loop() {
		schema, err := annexes().app.Schema()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := configs.Compose(configs.Request{Library: configs.Library(), Schema: schema,
			Overrides: []string{"exp=okvqa_v3"}}); err != nil {
			b.Fatal(err)
		}
	}
}

// The bound is generous, ten times what a quiet machine takes: 10,000 jobs cost 5 s of processor time.
func TestSweepSpeed(t *testing.T) {
	n := 10000
	if testing.Short() {
		n = 1000
	}
	begin := golden.ProcessorTime(t)
	composeJobs(t, sweepRequest(t, n), n)
	if d := golden.ProcessorTime(t) - begin; d > time.Duration(n)*5*time.Millisecond {
		t.Errorf("%d jobs took %v", n, d)
	}
}
