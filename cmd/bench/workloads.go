package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"fulcrum/experiments/bench"
	"fulcrum/internal/regular"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
)

// workloads measures training steps on named workloads.
func workloads() verb {
	opt := bench.Options{Progress: stdout.Errors()}
	f := usage.Flags()
	f.StringSliceVar(&opt.Phases, "phases", nil, "rce, grpo (KL estimator k3) and grpo-exact, or "+
		"shape-decode, shape-update, shape-step; all if not given")
	f.StringVar(&opt.Device, "device", "cpu", "cpu, cuda or cuda:N")
	f.IntVar(&opt.Threads, "threads", 1, "threads of one tensor operation")
	f.IntVar(&opt.Repeats, "repeats", 3, "processes for each row; the table shows medians")
	f.IntVar(&opt.Passes, "passes", 1, "passes over the data in a process")
	f.IntVar(&opt.MaxSteps, "steps", 0, "at most so many steps a pass (0: the workload's own)")
	f.IntVar(&opt.Queries, "queries", 0, "at most so many queries (0: the workload's own)")
	f.StringVar(&opt.Dir, "dir", "", "folder that keeps the generated data (a temporary one if not given)")
	f.StringVar(&opt.Peer, "peer", "", "torch_floor.py, to be run in turns with ours")
	f.StringVar(&opt.ShapePeer, "shape-peer", "", "peer_gpu.py, the same for published shapes")
	f.StringToIntVar(&opt.Sizes, "sizes", nil, "sizes of published shapes instead of their own, such as layers=2,new=32")
	f.StringVar(&opt.Whole, "whole", "", "train all weights of published shapes, and keep moments as this says: float32, bfloat16 or offload")
	f.StringVar(&opt.Python, "python", "", "a Python that has torch, for the peer")
	f.StringVar(&opt.Format, "format", "table", "table, markdown, json, or specs: one line for each row, to be given to "+
		"bench measure; needs --dir")
	from := f.String("from", "", "print the tables of this file, which --format json made, and measure nothing")
	return verb{
		usage: workloadsUsage(),
		flags: f,
		run: func(ctx context.Context, args []string) error {
			if *from != "" {
				return reprint(*from, opt.Format)
			}
			return runWorkloads(ctx, opt, args)
		},
	}
}

// process returns the verb of a measuring process, whose one argument is a bench.Spec or bench.ShapeSpec.
func process(print func(ctx context.Context, out io.Writer, spec string) error) func() verb {
	return func() verb {
		return verb{flags: usage.Flags(), run: func(ctx context.Context, args []string) error {
			if len(args) != 1 {
				return usage.Errorf("want one argument: a row that bench workloads --format specs has printed")
			}
			return print(ctx, stdout.Writer(), args[0])
		}}
	}
}

// reprint prints the tables of a report.
func reprint(file, format string) error {
	raw, err := regular.ReadFile(file)
	if err == nil {
		err = bench.Reprint(raw, format, stdout.Writer())
	}
	if err != nil {
		return usage.Errorf("--from=%s: %v", file, err)
	}
	return nil
}

// runWorkloads measures the workloads that args name, with the overrides among them.
func runWorkloads(ctx context.Context, opt bench.Options, args []string) error {
	for _, arg := range args {
		if strings.Contains(arg, "=") {
			opt.Overrides = append(opt.Overrides, arg)
		} else {
			opt.Workloads = append(opt.Workloads, arg)
		}
	}
	switch {
	case !slices.Contains([]string{"table", "markdown", "json", "specs"}, opt.Format):
		return usage.Errorf("--format=%s: want table, markdown, json or specs", opt.Format)
	case opt.Format == "specs" && opt.Dir == "":
		return usage.Errorf("--format=specs names files that must stay: give --dir")
	case !slices.Contains([]string{"", "float32", "bfloat16", "offload"}, opt.Whole), opt.Whole != "" && opt.ShapePeer != "":
		return usage.Errorf("--whole=%s: want float32, bfloat16 or offload, and no --shape-peer, which trains adapters", opt.Whole)
	case opt.Repeats < 1 || opt.Passes < 1 || opt.Threads < 1 || opt.Threads > 1024:
		return usage.Errorf("want --repeats, --passes and --threads of at least 1, and at most 1024 threads")
	}
	if opt.Peer != "" || opt.ShapePeer != "" {
		if python := bench.FindPython(opt.Python); python != "" {
			opt.Python = python
		} else if opt.Python != "" {
			return usage.Errorf("--python=%s has no torch", opt.Python)
		} else {
			stdout.Message(stdout.Errors(), "bench: no Python with torch here (--python): the peer is left out")
			opt.Peer, opt.ShapePeer = "", ""
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	opt.Program, opt.ShapeProgram = []string{self, "measure"}, []string{self, "measure-shape"}
	return bench.Run(ctx, opt, stdout.Writer())
}

// workloadsUsage says how the verb is called and lists the workloads.
func workloadsUsage() string {
	var b strings.Builder
	b.WriteString("bench workloads rl_k64_b32 --phases rce        one workload, one phase\n" +
		"bench workloads --device cuda                  all of them on a GPU\n\n" +
		"bench workloads [WORKLOAD…] [flags] [overrides of the configuration]\n\nworkloads:\n")
	for _, w := range bench.Workloads() {
		fmt.Fprintf(&b, "  %-18s %d queries, K=%d, %d to %d candidates, batch %d\n", w.Name, w.Data.Queries, w.Data.Pool,
			w.Data.Min, w.Data.Max, w.Batch)
	}
	for _, w := range bench.ShapeWorkloads() {
		fmt.Fprintf(&b, "  %-18s published shape, random %s weights: %d layers, width %d, vocabulary %d\n", w.Name, w.DType, w.Layers,
			w.Hidden, w.Vocab)
	}
	b.WriteString("\nflags:")
	return b.String()
}
