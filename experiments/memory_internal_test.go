package experiments

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"fulcrum/experiments/job"
	"fulcrum/experiments/tasks"
	"fulcrum/internal/torchx"
)

// TestFullDevice: libtorch's message becomes one line without advice on its allocator, and names what makes the run smaller.
func TestFullDevice(t *testing.T) {
	config := func(policy string) *job.Config {
		c := job.DefaultConfig(tasks.Entries())
		c.Policy = policy
		return c
	}
	full := fmt.Errorf("grpo epoch 1: %w", &torchx.OpError{Op: "linear", Msg: "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 " +
		"has a total capacity of 79.18 GiB of which 1.20 GiB is free. 162 MiB allowed; Of the allocated memory 70 GiB is allocated by " +
		"PyTorch, and 6 GiB is reserved.\nsee"})
	got := withRoom(full, config("qwen2_5_vl")).Error()
	want := "grpo epoch 1: torchx: linear: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB of " +
		"which 1.20 GiB is free. 162 MiB allowed; lower the phase's micro_batch (the same loss in more passes), data.batch_size, the " +
		"phase's group_size, vl.generation.max_new_tokens, or set vl.generation.slots, vl.dtype=bfloat16, vl.gradient_checkpointing=true"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := withRoom(full, config("pointer")).Error(); strings.Contains(got, "vl.") || !strings.HasSuffix(got, "data.batch_size") {
		t.Error(got)
	}
	for _, err := range []error{nil, errors.New("CUDA out of memory"), &torchx.OpError{Op: "add", Msg: "shapes differ"}} {
		if got := withRoom(err, config("pointer")); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
}
