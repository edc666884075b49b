package torchx

// #cgo LDFLAGS: -lcgotorch
// #include "forward/forward.h"
import "C"
import "errors"

// Load opens libtorch: about 0.6 s and 160 MB, paid by whoever needs a tensor first and by nobody
// else. It must have succeeded before any other function of this package or of gotorch is called;
// a call too early aborts the program and names the function. Load may be called again and from any
// goroutine; the first outcome stands. The error is one line that names the library and the remedy.
func Load() error {
	if message := C.fulcrum_forward_load(); message != nil {
		return errors.New("torchx: " + C.GoString(message))
	}
	return nil
}
