package main

import (
	"cmp"
	"fmt"
	"runtime"
	"strings"

	"fulcrum/experiments/runfolder"
	"fulcrum/internal/build"
	"fulcrum/internal/hostmem"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
)

// doctorVerb says what of libtorch, BLAS, CUDA and threads works here.
func doctorVerb() *verb {
	f := usage.Flags()
	asJSON := jsonFlag(f)
	verbose := f.Bool("verbose", false, "with how libtorch was built")
	return &verb{
		usage: `run doctor --verbose

run doctor [--verbose] [--json]
Says what of libtorch, BLAS, CUDA (devices, memory, bfloat16, flash attention, NVRTC) and threads works here, and tries a
matrix product on each kind of device. --verbose adds how libtorch was built.
`,
		flags: f,
		takes: new(0),
		run: func(s *session, args []string) error {
			m, err := examined()
			if *asJSON && m != nil {
				if err := writeJSON(s.out, m); err != nil {
					return err
				}
			} else if m != nil {
				fmt.Fprint(s.out, m.text(*verbose))
			}
			return err
		},
	}
}

// machineJSON is what run doctor finds.
type machineJSON struct {
	Version  string       `json:"version"`
	Go       string       `json:"go"`
	Platform string       `json:"platform"` // linux/amd64
	Cores    int          `json:"cores"`
	DiskFree float64      `json:"disk_free"` // bytes, here; 0: unknown
	Libtorch string       `json:"libtorch"`  // "": it does not load
	Threads  int          `json:"threads"`
	Build    []string     `json:"build"`    // how libtorch was built
	CUDA     []deviceJSON `json:"cuda"`     // empty: none can be used
	Gloo     bool         `json:"gloo"`     // libtorch has it
	NCCL     string       `json:"nccl"`     // its version; "": there is none
	Products bool         `json:"products"` // matrix products are right, on the CPU and on cuda:0
}

// deviceJSON is a CUDA device.
type deviceJSON struct {
	Name            string  `json:"name"`
	Capability      string  `json:"capability"`
	Multiprocessors string  `json:"multiprocessors"`
	MemoryFree      float64 `json:"memory_free"`  // bytes
	MemoryTotal     float64 `json:"memory_total"` // bytes
	Runtime         string  `json:"runtime"`
	Driver          string  `json:"driver"` // the newest CUDA that it knows
	BFloat16        bool    `json:"bfloat16"`
	Flash           bool    `json:"flash_attention"`
	NVRTC           bool    `json:"nvrtc"`
}

// examined loads libtorch, asks for devices, and multiplies matrices. What was found comes with the error.
func examined() (*machineJSON, error) {
	m := &machineJSON{Version: build.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(),
		Build: []string{}, CUDA: []deviceJSON{}}
	if free := runfolder.Free("."); free > 0 { // not NaN, which JSON does not have
		m.DiskFree = free
	}
	if err := torchx.Load(); err != nil {
		return m, fmt.Errorf("libtorch does not load: %w", err)
	}
	torchx.Attach(runtime.NumCPU())
	m.Libtorch, m.Threads = torchx.Version(), torchx.Threads()
	for line := range strings.SplitSeq(strings.TrimSpace(torchx.BuildConfig()), "\n") {
		m.Build = append(m.Build, strings.TrimSpace(line))
	}
	m.Gloo = torchx.GlooBuilt()
	m.NCCL, _ = torchx.NCCLVersion() // "": none
	devices := []string{"cpu"}
	if torchx.CUDAAvailable() {
		devices = append(devices, "cuda:0")
		for i := range torchx.CUDADevices() {
			d, err := torchx.DescribeCUDA(i)
			if err != nil {
				return m, err
			}
			room, err := torchx.MemoryOfCUDA(i, false)
			if err != nil {
				return m, err
			}
			m.CUDA = append(m.CUDA, deviceJSON{Name: d.Name, Capability: d.Capability, Multiprocessors: d.Multiprocessors, MemoryFree: room.Free,
				MemoryTotal: room.Total, Runtime: d.Runtime, Driver: d.Driver, BFloat16: d.BFloat16, Flash: d.Flash, NVRTC: d.NVRTC})
		}
	}
	err := torchx.Try(func() error {
		defer torchx.Scope()()
		for _, device := range devices {
			x := torchx.Full(1, 512, 512).ToDevice(device)
			if got := torchx.Sum(torchx.MatMul(x, x)).Item(); got != 512*512*512 {
				return fmt.Errorf("a matrix product on %s gives %g, want %d: this libtorch is broken, or does not fit the device", device, got,
					512*512*512)
			}
		}
		return nil
	})
	m.Products = err == nil
	return m, err
}

// text is what a reader wants to know; verbose adds how libtorch was built.
func (m *machineJSON) text(verbose bool) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("fulcrum", "%s, %s, %s, %d cores", m.Version, m.Go, m.Platform, m.Cores)
	line("disk", "%s free here", hostmem.Size(runfolder.Free(".")))
	if m.Libtorch == "" {
		return b.String()
	}
	line("libtorch", "%s", m.Libtorch)
	line("threads", "%d", m.Threads)
	by := []string{}
	if m.Gloo {
		by = append(by, "by gloo")
	}
	if m.NCCL != "" {
		by = append(by, "by NCCL "+m.NCCL)
	}
	none := "by nothing: libtorch has no gloo, and there is no libnccl.so.2"
	line("processes", "exchange tensors %s (parallel.backend)", cmp.Or(strings.Join(by, ", or "), none))
	if verbose {
		for _, text := range m.Build {
			line("", "%s", text)
		}
	}
	if len(m.CUDA) == 0 {
		line("cuda", "not available: device=cpu (for a GPU: `make build LIBTORCH=python`)")
	}
	for i, d := range m.CUDA {
		line(fmt.Sprintf("cuda:%d", i), "%s, compute capability %s, %s multiprocessors", d.Name, d.Capability, d.Multiprocessors)
		line("", "%s free of %s; CUDA %s, the driver knows up to %s",
			hostmem.Size(d.MemoryFree), hostmem.Size(d.MemoryTotal), d.Runtime, d.Driver)
		line("", "bfloat16 %s, flash attention %s,", usable[d.BFloat16], usable[d.Flash])
		line("", "kernels compiled at run time (NVRTC) %s", usable[d.NVRTC])
	}
	if m.Products {
		line("products", "a 512×512 matrix product is right")
	}
	return b.String()
}

var usable = map[bool]string{true: "usable", false: "not usable"}
