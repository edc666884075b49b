package preflight

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"fulcrum/internal/hostmem"
	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/doctor"
)

// Memory makes one step of every stage, on a clone, with as many queries as the phase takes and the largest that
// there are, and returns a line about what it took of what was free, for run.log, and the share of it, for Crowded.
func Memory(ctx context.Context, t Trial, stages []Stage, device string) (line string, worst float64, err error) {
	free, before := hostmem.Free(), hostmem.Resident()
	hostmem.ResetPeak()
	cuda, onCUDA := torchx.CUDAIndex(device)
	if onCUDA {
		if _, err := torchx.MemoryOfCUDA(cuda, true); err != nil {
			return "", 0, err
		}
	}
	var parts []string
	for _, s := range stages {
		if s.Largest == nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return "", 0, err
		}
		what, err := largestStep(ctx, t, s)
		if full, ok := errors.AsType[*torchx.OpError](err); ok && full.OutOfMemory() {
			return "", 0, fmt.Errorf("%s: the largest step does not fit: %w", s.Name, err)
		}
		if err != nil {
			return "", 0, nil // the probes have said what is wrong with the phase
		}
		parts = append(parts, what)
	}
	if len(parts) == 0 {
		return "", 0, nil
	}
	took := max(hostmem.Peak()-before, 0)
	line = fmt.Sprintf("memory: largest step (%s) took %s on top of %s, of %s free", strings.Join(parts, "; "), hostmem.Size(took),
		hostmem.Size(before), hostmem.Size(free))
	worst = took / free
	if onCUDA {
		if m, err := torchx.MemoryOfCUDA(cuda, false); err == nil { // libtorch keeps what it once took: less is free after the peak
			line += fmt.Sprintf("; %s: %s at the peak, %s taken for it, %s of %s free", device, hostmem.Size(m.AllocatedMax),
				hostmem.Size(m.ReservedMax), hostmem.Size(m.Free), hostmem.Size(m.Total))
			worst = max(worst, 1-m.Free/m.Total)
		}
	}
	return line, worst, nil
}

// crowded is the share of the free memory from which a run may be killed: other programs and the allocator want some too.
const crowded = 0.9

// Crowded adds a finding where a step takes too much of the memory.
func (r *Report) Crowded(share float64, phase string) {
	if share > crowded {
		r.found(Name, "memory", phase+".micro_batch", share, crowded, "a step with the largest shapes takes %.0f %% of the memory that is "+
			"there: lower micro_batch or data.batch_size, or the run may be killed in the middle", 100*share)
	}
}

// largestStep makes one step of a phase on its largest batch and says what its shapes were.
func largestStep(ctx context.Context, t Trial, s Stage) (what string, err error) {
	phase, err := s.Build(s.Source)
	if err != nil {
		return "", err
	}
	queries := s.Largest(min(phase.Info().BatchSize, s.Source.Len()))
	p, src := newPart(s.Source, queries)
	p.strict = true
	if phase, err = s.Build(src); err != nil {
		return "", err
	}
	policy := t.Policy.Clone()
	defer policy.Free()
	_, seen := watch(policy)
	err = torchx.Try(func() error {
		defer torchx.Scope()()
		if err := phase.Begin(t.env(seen), total); err != nil {
			return err
		}
		defer phase.End()
		phases.BeginEpoch(phase, 1)
		_, err := phase.Step(ctx, phases.At{Epoch: 1, Queries: stat.Indices(len(queries))})
		return err
	})
	if err != nil || p.last == nil {
		return "", err
	}
	return fmt.Sprintf("%s %d × %d × %d", s.Name, p.last.B(), p.last.G, p.last.T), nil // queries × candidates × steps
}

// Disk adds a finding where what a run writes takes too much of the bytes that are free in its folder (NaN: unknown): a stop where it
// cannot fit, unless the run may end early.
func (r *Report) Disk(need, free float64, mayEnd bool) {
	worst, said := doctor.Stop, "do not fit"
	share := need / math.Max(free, 1)
	switch {
	case math.IsNaN(free), share <= crowded:
		return
	case share <= 1:
		worst, said = doctor.Warning, "fill the disk"
	case mayEnd:
		worst, said = doctor.Warning, "do not fit unless the run ends early"
	}
	r.add(Name, worst, doctor.Finding{Check: "disk", Value: share, Limit: crowded, Key: "checkpoint.keep",
		Message: fmt.Sprintf("checkpoints and states take up to %s of the %s that are free in the run's folder: they %s; set checkpoint.keep, "+
			"raise checkpoint.every_epochs, or choose another hydra.run.dir", hostmem.Size(need), hostmem.Size(free), said)})
}
