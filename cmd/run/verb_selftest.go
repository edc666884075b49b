package main

import (
	"encoding/json"
	"os"

	"fulcrum/experiments/measure"
	"fulcrum/internal/interrupt"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
)

// selftestVerb compares short trainings with recorded losses, on each device.
func selftestVerb() *verb {
	f := noFlags()
	device := f.String("device", "auto", "cpu, cuda, cuda:N, or auto: the CPU, then a GPU if there is one")
	dir := f.String("dir", "", "folder that keeps the data (a temporary one if not given)")
	specs := f.Bool("specs", false, "print the cases as JSON, one a line, and run nothing; needs --dir")
	return &verb{
		usage: "run selftest --device cpu\n\nrun selftest [flags]\n" +
			"Trains a few steps and compares the losses with PyTorch's in float64.\n\n" + f.FlagUsages(),
		flags: f,
		run: func(s *session, args []string) error {
			if len(args) > 0 {
				return usage.Errorf("want: `run selftest [--device auto|cpu|cuda] [--dir DIR]`")
			}
			return selftest(s, *device, *dir, *specs)
		},
	}
}

// selftest makes the data in a folder, "" for a temporary one, and prints the cases or trains them.
func selftest(s *session, device, folder string, specs bool) error {
	if folder == "" {
		temporary, remove, err := interrupt.Folder("", "fulcrum-selftest-")
		if err != nil {
			return err
		}
		defer remove()
		folder = temporary
	} else if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	cases, err := measure.SelftestCases(folder)
	if err != nil {
		return err
	}
	if specs {
		for _, c := range cases {
			if err := json.NewEncoder(s.out).Encode(c); err != nil {
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
	return measure.Selftest(s.ctx, s.out, cases, devices, folder)
}
