package torchx

// #include "csrc/fulcrum_torch.h"
import "C"

import (
	"fmt"
	"strings"
)

// CUDADevice is what one CUDA device is and what of it libtorch can use.
type CUDADevice struct {
	Name            string
	Capability      string // compute capability, such as 9.0
	Multiprocessors string
	Runtime, Driver string // versions of CUDA: of the runtime in use, and the newest that the driver knows
	BFloat16        bool   // has fast arithmetic
	Flash           bool   // libtorch's flash attention runs
	NVRTC           bool   // kernels can be compiled at run time
}

// CUDAMemory is a CUDA device's memory in bytes: what the driver says of it, and what libtorch's allocator has given to
// tensors and taken from the driver, with the peaks since they were last reset.
type CUDAMemory struct {
	Free, Total             float64
	Allocated, AllocatedMax float64
	Reserved, ReservedMax   float64
}

// CUDADevices returns how many CUDA devices libtorch sees.
func CUDADevices() int { return int(C.fc_cuda_device_count()) }

// DescribeCUDA returns what cuda:device is. The error says that this build knows nothing of CUDA, or why the device does
// not answer.
func DescribeCUDA(device int) (d CUDADevice, err error) {
	defer Recover(&err)
	var text *C.char
	check("cuda device", C.fc_cuda_describe(C.int(device), &text))
	defer C.fc_free_string(text)
	f := strings.Split(C.GoString(text), "\t")
	if len(f) != 8 {
		return d, fmt.Errorf("torchx: cuda device: got %q, want 8 fields", f)
	}
	return CUDADevice{Name: f[0], Capability: f[1], Multiprocessors: f[2], Runtime: f[3], Driver: f[4], BFloat16: f[5] == "1",
		Flash: f[6] == "1", NVRTC: f[7] == "1"}, nil
}

// MemoryOfCUDA returns the memory of cuda:device, and with reset lets its peaks start again from what is in use now.
func MemoryOfCUDA(device int, reset bool) (m CUDAMemory, err error) {
	defer Recover(&err)
	var v [6]C.int64_t
	check("cuda memory", C.fc_cuda_memory(C.int(device), &v[0], C.bool(reset)))
	return CUDAMemory{Free: float64(v[0]), Total: float64(v[1]), Allocated: float64(v[2]), AllocatedMax: float64(v[3]),
		Reserved: float64(v[4]), ReservedMax: float64(v[5])}, nil
}

// OutOfMemory reports whether the operation found no room on its device.
func (e *OpError) OutOfMemory() bool { return strings.Contains(e.Msg, "CUDA out of memory") }

// inShort drops libtorch's advice on the settings of its allocator from a message.
func inShort(msg string) string {
	msg, _, _ = strings.Cut(msg, "\n")
	if at := strings.Index(msg, " Of the allocated memory"); at >= 0 && strings.Contains(msg, "out of memory") {
		return strings.TrimRight(msg[:at], ".; ")
	}
	return msg
}
