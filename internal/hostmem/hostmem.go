// Package hostmem says how much memory a process may take, and has taken, so that a size typed wrong is an error with
// a name instead of a process killed by the kernel; and what processor the machine has.
package hostmem

import (
	"fmt"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// Need returns an error when what needs more bytes than this machine, or the process's control group,
// can give. Where the system does not say, nothing is refused.
func Need(what string, bytes float64) error {
	have := math.Min(machine("/proc/meminfo"), group("/proc/self/cgroup", "/sys/fs/cgroup")) // what can still be had
	if bytes > have {
		return fmt.Errorf("%s: needs %s of memory, %s are available", what, Size(bytes), Size(have))
	}
	return nil
}

// machine returns what the kernel can give without an end to anything: free, caches and swap.
func machine(meminfo string) float64 {
	available, _ := figure(meminfo, "MemAvailable:")
	swap, _ := figure(meminfo, "SwapFree:")
	if available+swap == 0 {
		return math.Inf(1)
	}
	return available + swap
}

// group returns the lowest limit of the process's control group (version 2) and those around it.
func group(self, root string) float64 {
	return leastOf(self, root, func(dir string) (float64, bool) { return figure(path.Join(dir, "memory.max"), "") })
}

// leastOf returns the least figure of the process's control group and those around it; +Inf where none has one.
func leastOf(self, root string, of func(dir string) (float64, bool)) float64 {
	least := math.Inf(1)
	text, err := os.ReadFile(self)
	if err != nil {
		return least
	}
	for line := range strings.Lines(string(text)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for name = path.Clean("/" + name); ; name = path.Dir(name) {
			if v, known := of(path.Join(root, name)); known {
				least = math.Min(least, v)
			}
			if name == "/" {
				break
			}
		}
	}
	return least
}

// Free is the memory in bytes that this process can still take: like Available, but a control group's limit counts
// less what the group has in use, file caches apart; +Inf where the system does not say.
func Free() float64 {
	group := leastOf("/proc/self/cgroup", "/sys/fs/cgroup", func(dir string) (float64, bool) {
		limit, known := figure(path.Join(dir, "memory.max"), "")
		used, _ := figure(path.Join(dir, "memory.current"), "")
		cache, _ := figure(path.Join(dir, "memory.stat"), "inactive_file")
		return math.Max(limit-math.Max(used-cache, 0), 0), known
	})
	return math.Min(machine("/proc/meminfo"), group)
}

// figure reads a file that is one number, or the number behind a key, in bytes; false where there is none ("max").
func figure(file, key string) (float64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line) // MemAvailable:   24094456 kB
		scale := 1.0
		if len(f) == 3 && f[2] == "kB" {
			f, scale = f[:2], 1024
		}
		if key == "" && len(f) == 1 || len(f) == 2 && f[0] == key {
			v, err := strconv.ParseFloat(f[len(f)-1], 64)
			return scale * v, err == nil
		}
	}
	return 0, false
}

// Resident is the memory in bytes that this process has in use; 0 where the system does not say.
func Resident() float64 { return status("VmRSS:") }

// Peak is the most that Resident has been.
func Peak() float64 { return status("VmHWM:") }

// ResetPeak starts Peak anew, where the kernel lets a process do so.
func ResetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// status reads a figure of this process in bytes.
func status(key string) float64 {
	v, _ := figure("/proc/self/status", key)
	return v
}

// Processor is the kernel's name of the processor; "" where the system does not say.
func Processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Size writes a number of bytes with a unit: 1.5 GiB; NaN is unknown.
func Size(bytes float64) string {
	if math.IsNaN(bytes) {
		return "unknown"
	}
	unit := 0
	for bytes >= 1024 && unit < 6 {
		bytes /= 1024
		unit++
	}
	return fmt.Sprintf("%.3g %s", bytes, [...]string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}[unit])
}
