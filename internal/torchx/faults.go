package torchx

// #include "forward/faults.h"
import "C"
import "unsafe"

// CatchFaults makes reads of mapped files that were cut give zeros instead of ending the process, whichever thread reads. table is
// that of tensorfile.Records, where the files are marked. It needs no libtorch, and is called once, before any file is mapped.
func CatchFaults(table []uint64) {
	const words = 4
	C.fulcrum_catch_faults(unsafe.Pointer(unsafe.SliceData(table)), C.uint64_t(len(table)/words))
}
