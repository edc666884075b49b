// Package measure times training steps and compares their losses with PyTorch's, for cmd/bench: with the files, loaders, phases
// and policies of a run.
package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"fulcrum/beamdata"
	"fulcrum/configs"
	"fulcrum/experiments/bench"
	"fulcrum/experiments/job"
	"fulcrum/experiments/tasks"
	"fulcrum/experiments/workload"
	"fulcrum/internal/hostmem"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/selector"
)

// Print measures what one row of the benchmark asks for, as a run would: compose, load, build the policy
// and the phase, step through the batches. It prints a bench.Measurement.
func Print(ctx context.Context, w io.Writer, text string) error {
	var spec bench.Spec
	if err := jsonwords.Unmarshal([]byte(text), &spec); err != nil {
		return usage.Errorf("measure: %v", err)
	}
	m, err := measureSpec(ctx, spec)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(m)
}

// open loads libtorch for this goroutine and returns the device that a name stands for.
func open(threads int, device string) (string, error) {
	if err := torchx.Load(); err != nil {
		return "", err
	}
	torchx.Attach(threads)
	name, err := torchx.Device(device, 0)
	if err != nil {
		return "", usage.Errorf("%v", err)
	}
	return name, nil
}

// measureSpec composes the configuration of spec and measures.
func measureSpec(ctx context.Context, spec bench.Spec) (bench.Measurement, error) {
	schema, err := tasks.Schema()
	if err != nil {
		return bench.Measurement{}, err
	}
	composed, err := configs.Compose(configs.Request{Library: configs.Library(), Schema: schema, Overrides: spec.Overrides,
		Now: time.Now(), AppName: "run"})
	if err != nil {
		return bench.Measurement{}, err
	}
	cfg, err := job.Decode(composed)
	if err != nil {
		return bench.Measurement{}, err
	}
	return Steps(ctx, cfg, spec)
}

// Steps trains a phase of cfg for the steps of spec and times them.
func Steps(ctx context.Context, cfg *job.Config, spec bench.Spec) (m bench.Measurement, err error) {
	defer torchx.Recover(&err)
	j := &job.Job{Config: cfg}
	if j.Device, err = open(j.Threads(), cfg.Device); err != nil {
		return m, err
	}
	m = bench.Measurement{Spec: spec, Libtorch: torchx.Version(), Device: j.Device, Threads: torchx.Threads()}

	clock := startClock()
	bundle, err := beamdata.Load(cfg.Data)
	if err != nil {
		return m, err
	}
	m.Load, _ = clock.read()
	m.LoadedMB = hostmem.Resident() / mb
	data := workload.NewPointerData(bundle)
	policy, err := workload.OpenPointer(j, bundle)
	if err != nil {
		return m, err
	}
	defer policy.Free()
	shots, err := workload.ShotsOf(policy, bundle)
	if err != nil {
		return m, err
	}
	policy.SetShots(shots)
	data.Serve(policy)
	initial := policy.Clone()
	defer initial.Free()
	phase, err := cfg.BuildPhase(spec.Phase, data)
	if err != nil {
		return m, err
	}
	steps := phases.StepsPerEpoch(phase)
	if spec.MaxSteps > 0 {
		steps = min(steps, spec.MaxSteps)
	}
	batches := slices.Collect(selector.Chunks(phase.Info().Source.Len(), phase.Info().BatchSize))
	batches = batches[:min(steps, len(batches))]
	for _, queries := range batches {
		m.Queries += len(queries)
		m.Candidates += phase.Info().Source.Recorded(queries).NumValid()
	}
	m.Batch, m.Steps, m.Pool = phase.Info().BatchSize, steps, len(bundle.RCE.Pool(0))

	env := &phases.Env{Policy: policy, Initial: initial, Data: data.ValidationData(cfg, *policy.Options().ShotNum), Seed: cfg.Seed}
	clock = startClock()
	if err := phase.Begin(env, spec.Warmup+steps*spec.Passes); err != nil {
		return m, err
	}
	defer phase.End()
	if p, ok := phase.(phases.Preparer); ok {
		if err := p.Prepare(ctx, stat.Indices(phase.Info().Source.Len())); err != nil {
			return m, err
		}
	}
	phases.BeginEpoch(phase, 1)
	m.Begin, _ = clock.read()
	err = timeSteps(ctx, phase, batches, &m)
	return m, err
}

// timeSteps makes the steps that do not count, then the passes, and notes their times and losses.
func timeSteps(ctx context.Context, phase phases.Phase, batches [][]int, m *bench.Measurement) error {
	done := 0
	step := func(queries []int, next ...[]int) (phases.Measured, error) { // as the scheduler's
		defer torchx.Scope()()
		at := phases.At{Epoch: 1, Step: done, Queries: queries}
		for k, queries := range next {
			at.Next = append(at.Next, phases.At{Epoch: 1, Step: done + 1 + k, Queries: queries})
		}
		done++
		return phase.Step(ctx, at)
	}
	for i := range m.Spec.Warmup {
		if _, err := step(batches[i%len(batches)]); err != nil {
			return err
		}
	}
	runtime.GC() // what loading left behind is not the steps' to collect
	var stepMS []float64
	for range m.Spec.Passes {
		clock := startClock()
		for i, queries := range batches {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			begin := time.Now()
			metrics, err := step(queries, batches[i+1:min(i+3, len(batches))]...)
			if err != nil {
				return fmt.Errorf("step %d: %w", i+1, err)
			}
			stepMS = append(stepMS, 1e3*time.Since(begin).Seconds())
			m.Losses = append(m.Losses, metrics.Row()["loss"].(float64))
		}
		wall, cpu := clock.read()
		m.Wall, m.CPU = append(m.Wall, wall), append(m.CPU, cpu)
	}
	m.StepMS, m.PeakMB = stat.Middle(stepMS), hostmem.Peak()/mb
	return nil
}

const mb = 1 << 20

// stopwatch measures wall time and the CPU time of all threads, after the device has done its work.
type stopwatch struct {
	wall time.Time
	cpu  float64
}

func startClock() stopwatch {
	synchronize()
	return stopwatch{time.Now(), cpuSeconds()}
}

func (s stopwatch) read() (wall, cpu float64) {
	synchronize()
	return time.Since(s.wall).Seconds(), cpuSeconds() - s.cpu
}

func synchronize() {
	if torchx.CUDAAvailable() {
		torchx.Synchronize()
	}
}

func cpuSeconds() float64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) // fails for unknown clocks only
	return float64(t.Nano()) / 1e9
}
