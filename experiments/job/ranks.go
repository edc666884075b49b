package job

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/cpu"

	"fulcrum/internal/build"
	"fulcrum/internal/list"
	"fulcrum/internal/ranks"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
	"fulcrum/phases"
)

// Alike refuses processes that would not compute the same: their configuration, data, program and libtorch are compared before any works.
func (j *Job) Alike(env *phases.Env) error {
	if env.Ranks == nil {
		return nil
	}
	const overrides = "overrides"
	mine := map[string]string{"configuration": env.ConfigHash, overrides: strings.Join(j.Overrides, "\n"), "data": env.DataHash,
		"program": build.Name(), "libtorch": torchx.Version(), "threads": fmt.Sprint(torchx.Threads()), "CPU kernels": kernels()}
	all, err := ranks.Gather(env.Ranks, "the comparison of processes", mine, nil)
	if err != nil {
		return err
	}
	for _, what := range slices.Sorted(maps.Keys(mine)) {
		for rank, theirs := range all {
			if theirs[what] == all[0][what] || what == overrides { // these may differ in keys that change no number
				continue
			}
			first, other := all[0][what], theirs[what]
			if a, b := all[0][overrides], theirs[overrides]; what == "configuration" && a != b {
				first, other = without(a, b), without(b, a)
			}
			return usage.Errorf("the processes of the run differ: %s is %q of rank 0 on %s, and %q of rank %d on %s", what, first,
				env.Ranks.Hosts()[0], other, rank, env.Ranks.Hosts()[rank])
		}
	}
	j.Logf("%d processes, %d shards a step: rank 0 is on %s", env.Ranks.Size(), env.Shards, env.Ranks.Hosts()[0])
	return nil
}

// JoinPeers lets the processes exchange tensors as the configuration says; those of a proof do it by gloo.
func (j *Job) JoinPeers(env *phases.Env) error {
	backend, err := j.Config.Parallel.Backend, error(nil)
	switch {
	case env.Ranks == nil:
		return nil
	case env.Backwards:
		backend = "gloo"
	case backend == "auto":
		backend, err = j.backend(env)
	}
	if err == nil {
		j.Logf("the tensors of a step go between processes by %s", backend)
		err = env.JoinPeers(backend, j.Device)
	}
	return err
}

// backend is nccl where every process has a GPU of its own and finds NCCL, and gloo elsewhere.
func (j *Job) backend(env *phases.Env) (string, error) {
	gpu := ""
	if _, cuda := torchx.CUDAIndex(j.Device); cuda {
		if _, err := torchx.NCCLVersion(); err == nil {
			gpu = env.Ranks.Hosts()[env.Ranks.Rank()] + " " + j.Device
		}
	}
	all, err := ranks.Gather(env.Ranks, "the GPUs of processes", gpu, nil)
	if set := list.Set(all); set[""] || len(set) < len(all) {
		return "gloo", err
	}
	return "nccl", err
}

// without are the overrides of a that b lacks.
func without(a, b string) string {
	has := list.Set(strings.Split(b, "\n"))
	return strings.Join(list.Filter(strings.Split(a, "\n"), func(o string) bool { return !has[o] }), " ")
}

// kernels names what libtorch and BLAS choose their kernels by.
func kernels() string {
	x := cpu.X86
	return fmt.Sprintf("AVX2 %t, AVX-512 %t, VNNI %t, AMX %t %s%s", x.HasAVX2, x.HasAVX512F && x.HasAVX512DQ && x.HasAVX512BW && x.HasAVX512VL,
		x.HasAVX512VNNI, x.HasAMXBF16, os.Getenv("ATEN_CPU_CAPABILITY"), os.Getenv("OPENBLAS_CORETYPE"))
}

// Follow trains beside rank 0, which alone checks, judges and writes.
func Follow(ctx context.Context, plan phases.Plan, env *phases.Env) error {
	plan.Doctor, env.Rec = nil, unrecorded{}
	_, err := phases.Run(ctx, plan, env, nil)
	return err
}

// unrecorded is the recorder of a process that writes nothing.
type unrecorded struct{}

func (unrecorded) Record(string, string, int, int, int, map[string]any) error { return nil }
func (unrecorded) Scores(phases.Scores) error                                 { return nil }
func (unrecorded) Completions(string, int, int, []phases.Completion) error    { return nil }
func (unrecorded) Mark() (rows, evals, completions int, err error)            { return 0, 0, 0, nil }
