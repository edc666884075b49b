// Package hostmem says how much memory a process may take, and has taken, so that a size typed wrong is an error with
// a name instead of a process killed by the kernel.
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
	if have := Available(); bytes > have {
		return fmt.Errorf("%s: needs %s of memory, %s are available", what, Size(bytes), Size(have))
	}
	return nil
}

// Available is the memory in bytes that can still be had; +Inf where the system does not say.
func Available() float64 {
	return math.Min(machine("/proc/meminfo"), group("/proc/self/cgroup", "/sys/fs/cgroup"))
}

// machine reads what the kernel can give without an end to anything: free, caches and swap.
func machine(meminfo string) float64 {
	text, err := os.ReadFile(meminfo)
	if err != nil {
		return math.Inf(1)
	}
	sum := 0.0
	for _, line := range strings.Split(string(text), "\n") {
		f := strings.Fields(line) // MemAvailable:   24094456 kB
		if len(f) == 3 && (f[0] == "MemAvailable:" || f[0] == "SwapFree:") {
			kB, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				return math.Inf(1)
			}
			sum += kB * 1024
		}
	}
	if sum == 0 {
		return math.Inf(1)
	}
	return sum
}

// group is the lowest limit of the process's control group (version 2) and those around it.
func group(self, root string) float64 {
	limit := math.Inf(1)
	text, err := os.ReadFile(self)
	if err != nil {
		return limit
	}
	for _, line := range strings.Split(string(text), "\n") {
		name, ok := strings.CutPrefix(line, "0::")
		if !ok {
			continue
		}
		for name = path.Clean("/" + name); ; name = path.Dir(name) {
			if text, err := os.ReadFile(path.Join(root, name, "memory.max")); err == nil {
				if v, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64); err == nil { // else "max"
					limit = math.Min(limit, v)
				}
			}
			if name == "/" {
				break
			}
		}
	}
	return limit
}

// Free is the memory in bytes that this process can still take: like Available, but a control group's limit counts
// less what the group has in use, file caches apart; +Inf where the system does not say.
func Free() float64 {
	return math.Min(machine("/proc/meminfo"), groupFree("/proc/self/cgroup", "/sys/fs/cgroup"))
}

// groupFree is the least that the process's control group and those around it may still take.
func groupFree(self, root string) float64 {
	free := math.Inf(1)
	text, err := os.ReadFile(self)
	if err != nil {
		return free
	}
	for line := range strings.Lines(string(text)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for name = path.Clean("/" + name); ; name = path.Dir(name) {
			limit, known := figure(path.Join(root, name, "memory.max"), "")
			used, _ := figure(path.Join(root, name, "memory.current"), "")
			cache, _ := figure(path.Join(root, name, "memory.stat"), "inactive_file")
			if known {
				free = math.Min(free, math.Max(limit-math.Max(used-cache, 0), 0))
			}
			if name == "/" {
				break
			}
		}
	}
	return free
}

// figure reads a file that is one number, or the number behind a key; false where there is none ("max").
func figure(file, key string) (float64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if key == "" && len(f) == 1 || len(f) == 2 && f[0] == key {
			v, err := strconv.ParseFloat(f[len(f)-1], 64)
			return v, err == nil
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
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line) // VmRSS:	  24094456 kB
		if len(f) == 3 && f[0] == key {
			kB, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				return 0
			}
			return kB * 1024
		}
	}
	return 0
}

// Size writes a number of bytes with a unit: 1.5 GiB.
func Size(bytes float64) string {
	unit := 0
	for bytes >= 1024 && unit < 6 {
		bytes /= 1024
		unit++
	}
	return fmt.Sprintf("%.3g %s", bytes, [...]string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}[unit])
}
