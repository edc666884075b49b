package experiments

import (
	"errors"
	"fmt"

	"fulcrum/experiments/job"
	"fulcrum/internal/torchx"
)

// withRoom adds advice to an error about a full device memory: the keys that make a run smaller.
func withRoom(err error, c *job.Config) error {
	if full, ok := errors.AsType[*torchx.OpError](err); !ok || !full.OutOfMemory() {
		return err
	}
	text := "" // what only token policies have
	if c.Text() != nil {
		text = fmt.Sprintf(", the phase's group_size, %s.generation.max_new_tokens, or set %[1]s.generation.slots, %[1]s.dtype=bfloat16, "+
			"%[1]s.gradient_checkpointing=true", c.Section())
	}
	return fmt.Errorf("%w; lower the phase's micro_batch (the same loss in more passes), data.batch_size%s", err, text)
}
