package torchx

// #include "csrc/fulcrum_torch.h"
import "C"

import (
	"fmt"
	"runtime"
)

// Attach binds the calling goroutine to its OS thread for good and sets how many threads an operation
// may use. libtorch's thread pool and gradient mode belong to the OS thread.
func Attach(threads int) {
	runtime.LockOSThread()
	C.fc_keep_freed_memory()
	C.fc_set_num_threads(C.int(max(threads, 1)))
}

func Threads() int { return int(C.fc_get_num_threads()) }

// SetDeterministic makes operations use a deterministic algorithm, or fail if they have none. It comes
// before the first operation on a device.
func SetDeterministic(on bool) {
	deterministic = on
	C.fc_set_deterministic(C.bool(on))
}

var deterministic bool

// Deterministic reports whether SetDeterministic was asked for it.
func Deterministic() bool { return deterministic }

// CUDAAvailable reports whether libtorch sees a CUDA device.
func CUDAAvailable() bool { return bool(C.fc_cuda_available()) }

// CUDAIndex returns the number of the CUDA device cuda:N; ok is false for any other name.
func CUDAIndex(device string) (n int, ok bool) {
	_, err := fmt.Sscanf(device, "cuda:%d", &n)
	return n, err == nil && n >= 0 && fmt.Sprintf("cuda:%d", n) == device
}

// Device resolves auto|cpu|cuda|cuda:N to a libtorch device name, or says why it can't. Processes of one machine, numbered by local, take
// its GPUs in turn where no number is given.
func Device(name string, local int) (string, error) {
	n := local % max(int(C.fc_cuda_device_count()), 1)
	switch {
	case name == "auto" && !CUDAAvailable() || name == "cpu":
		return "cpu", nil
	case name == "auto" || name == "cuda":
	default:
		var ok bool
		if n, ok = CUDAIndex(name); !ok {
			return "", fmt.Errorf("device=%s: want auto, cpu, cuda or cuda:N", name)
		}
	}
	if !CUDAAvailable() {
		return "", fmt.Errorf("device=%s: this libtorch sees no CUDA device (`run doctor` says more); use device=cpu, or build with one that "+
			"has CUDA: `make build LIBTORCH=python`, or LIBTORCH=/path", name)
	}
	if count := int(C.fc_cuda_device_count()); n >= count {
		return "", fmt.Errorf("device=%s: there are %d CUDA devices (cuda:0 … cuda:%d)", name, count, count-1)
	}
	return fmt.Sprintf("cuda:%d", n), nil
}

// Synchronize waits until the device has done all queued work.
func Synchronize() { check("synchronize", C.fc_cuda_synchronize()) }
