package main

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"

	"fulcrum/internal/build"
	"fulcrum/internal/hostmem"
	"fulcrum/internal/torchx"
)

// doctorVerb says what of libtorch, BLAS, CUDA and threads works here.
func doctorVerb() *verb {
	return &verb{
		usage: `run doctor
Says what of libtorch, BLAS, CUDA (devices, their memory, bfloat16, flash attention, NVRTC) and threads works here.
`,
		flags: noFlags(),
		run:   doctor,
	}
}

// doctor loads libtorch and multiplies two matrices.
func doctor(s *session, _ []string) error {
	fmt.Fprintf(s.out, "fulcrum   %s, %s, %s/%s, %d cores\n", build.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	var disk syscall.Statfs_t
	if err := syscall.Statfs(".", &disk); err == nil {
		fmt.Fprintf(s.out, "disk      %.1f GiB free here\n", float64(disk.Bavail)*float64(disk.Bsize)/(1<<30))
	}
	if err := torchx.Load(); err != nil {
		return fmt.Errorf("libtorch does not load: %w", err)
	}
	torchx.Attach(runtime.NumCPU())
	fmt.Fprintf(s.out, "libtorch  %s\n", torchx.Version())
	fmt.Fprintf(s.out, "threads   %d\n", torchx.Threads())
	for _, line := range strings.Split(strings.TrimSpace(torchx.BuildConfig()), "\n") {
		fmt.Fprintf(s.out, "          %s\n", strings.TrimSpace(line))
	}
	if err := doctorCUDA(s); err != nil {
		return err
	}
	return torchx.Try(func() error {
		defer torchx.Scope()()
		x := torchx.Full(1, 512, 512)
		if got := torchx.Sum(torchx.MatMul(x, x)).Item(); got != 512*512*512 {
			return fmt.Errorf("a matrix product gives %g, want %d: this libtorch is broken", got, 512*512*512)
		}
		fmt.Fprintln(s.out, "products  a 512×512 matrix product is right")
		return nil
	})
}

// doctorCUDA describes each CUDA device and multiplies on it what doctor multiplies on the CPU.
func doctorCUDA(s *session) error {
	if !torchx.CUDAAvailable() {
		fmt.Fprintln(s.out, "cuda      not available: device=cpu; for a GPU build with LIBTORCH=python or LIBTORCH=/path (make help)")
		return nil
	}
	fmt.Fprintln(s.out, "cuda      available (device=cuda)")
	for i := range torchx.CUDADevices() {
		d, err := torchx.DescribeCUDA(i)
		if err != nil {
			return err
		}
		m, err := torchx.MemoryOfCUDA(i, false)
		if err != nil {
			return err
		}
		fmt.Fprintf(s.out, "cuda:%d    %s, compute capability %s, %s multiprocessors, %s free of %s\n", i, d.Name, d.Capability,
			d.Multiprocessors, hostmem.Size(m.Free), hostmem.Size(m.Total))
		fmt.Fprintf(s.out, "          CUDA %s, the driver knows up to %s\n", d.Runtime, d.Driver)
		fmt.Fprintf(s.out, "          bfloat16 %s, flash attention %s, kernels compiled at run time (NVRTC) %s\n", usable(d.BFloat16),
			usable(d.Flash), usable(d.NVRTC))
	}
	return torchx.Try(func() error {
		defer torchx.Scope()()
		x := torchx.Full(1, 512, 512).ToDevice("cuda:0")
		if got := torchx.Sum(torchx.MatMul(x, x)).Item(); got != 512*512*512 {
			return fmt.Errorf("a matrix product on cuda:0 gives %g, want %d: this libtorch does not fit the device", got, 512*512*512)
		}
		return nil
	})
}

func usable(yes bool) string {
	if yes {
		return "usable"
	}
	return "not usable"
}
