package job

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"fulcrum/internal/hostmem"
	"fulcrum/internal/regular"
	"fulcrum/internal/torchx"
	"fulcrum/reports/record"
)

// systemEvery is the least time between two lines of system.jsonl.
const systemEvery = 10 * time.Second

// measureSystem appends the memory in use to system.jsonl, now and then. It has a file of its own because metrics.jsonl
// holds only what equal runs have equal. A line that cannot be written is left out.
func (j *Job) measureSystem(phase string, step int) {
	now := time.Now()
	if now.Sub(j.measured) < systemEvery {
		return
	}
	j.measured = now
	line := record.System{Time: float64(now.UnixMilli()) / 1000, Phase: phase, GlobalStep: step, Memory: hostmem.Resident(),
		MemoryPeak: hostmem.Peak()}
	if device, ok := torchx.CUDAIndex(j.Device); ok {
		if m, err := torchx.MemoryOfCUDA(device, false); err == nil {
			line.GPU, line.GPUPeak, line.GPUFree = m.Allocated, m.AllocatedMax, m.Free
		}
	}
	text, err := json.Marshal(line)
	if err != nil {
		return
	}
	f, err := regular.OpenFile(filepath.Join(j.Dir, record.SystemFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return
	}
	defer f.Close()
	fmt.Fprintf(f, "%s\n", text)
}
