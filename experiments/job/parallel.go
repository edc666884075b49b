package job

import (
	"time"

	"fulcrum/internal/option"
)

// ParallelOptions spreads the optimizer steps of a run over processes (config section parallel).
type ParallelOptions struct {
	// processes on this machine; those of torchrun and srun count instead, where they start the run
	Processes int `koanf:"processes" range:"[1,1024]" also:"nproc_per_node,num_processes,n_gpus_per_node,world_size"`
	// parts of whole groups that a step is cut into, for at most as many processes; a run's bytes depend on these, not on the
	// processes; null = 1
	Shards *int `koanf:"shards" range:"[1,4096]"`
	// how tensors go between processes: by gloo, or nccl from GPU to GPU; auto: nccl where each has a GPU
	Backend string `koanf:"backend" enum:"auto,gloo,nccl" also:"distributed_backend,ddp_backend,tcp=gloo" when:"shards"`
	// silence, in seconds, after which a process counts as dead; a step may take longer
	TimeoutSeconds float64 `koanf:"timeout_seconds" range:"[1,86400]" when:"shards"`
}

// Validate refuses processes without a shard.
func (o ParallelOptions) Validate() error { return o.Fits(o.Processes, "parallel.processes") }

// Fits refuses so many processes, which are named by who starts them, where there are fewer shards.
func (o ParallelOptions) Fits(processes int, by string) error {
	if shards := o.Cut(); processes > shards {
		return option.Errorf("shards", "%s=%d: want at most %d, the shards of a step; parallel.shards=%d changes what the run computes, within "+
			"rounding", by, processes, shards, processes)
	}
	return nil
}

// Cut is the number of shards of a step.
func (o ParallelOptions) Cut() int { return option.Or(o.Shards, 1) }

// Timeout is the silence after which a process counts as dead.
func (o ParallelOptions) Timeout() time.Duration {
	return time.Duration(o.TimeoutSeconds * float64(time.Second))
}
