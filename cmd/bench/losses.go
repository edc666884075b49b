package main

import (
	"context"
	"encoding/json"
	"os"

	"fulcrum/experiments/measure"
	"fulcrum/internal/interrupt"
	"fulcrum/internal/stdout"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
)

// losses compares short trainings with recorded losses, on each device.
func losses() verb {
	f := usage.Flags()
	device := f.String("device", "auto", "cpu, cuda, cuda:N, or auto: the CPU, then a GPU if there is one")
	dir := f.String("dir", "", "folder that keeps the data (a temporary one if not given)")
	specs := f.Bool("specs", false, "print the cases as JSON, one a line, and run nothing; needs --dir")
	return verb{
		usage: "bench losses --device cpu\n\nbench losses [flags]\nTrains a few steps and compares the losses with PyTorch's in float64.\n",
		flags: f,
		run: func(ctx context.Context, args []string) error {
			if len(args) > 0 {
				return usage.Errorf("losses: want no word %q, flags alone: `bench losses [--device auto|cpu|cuda] [--dir DIR]`", args[0])
			}
			return compareLosses(ctx, *device, *dir, *specs)
		},
	}
}

// compareLosses makes the data in a folder, "" for a temporary one, and prints the cases or trains them.
func compareLosses(ctx context.Context, device, folder string, specs bool) error {
	if folder == "" {
		temporary, remove, err := interrupt.Folder("", "fulcrum-losses-")
		if err != nil {
			return err
		}
		defer remove()
		folder = temporary
	} else if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	cases, err := measure.LossCases(folder)
	if err != nil {
		return err
	}
	if specs {
		for _, c := range cases {
			if err := json.NewEncoder(stdout.Writer()).Encode(c); err != nil {
				return err
			}
		}
		return nil
	}
	if err := torchx.Load(); err != nil {
		return err
	}
	devices := []string{device}
	if device == "auto" {
		devices = []string{"cpu"}
		if torchx.CUDAAvailable() {
			devices = append(devices, "cuda")
		}
	}
	return measure.Losses(ctx, stdout.Writer(), cases, devices, folder)
}
