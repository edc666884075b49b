package torchx

// #include "csrc/fulcrum_torch.h"
// #include "csrc/version.h"
import "C"

// Version returns the version of the libtorch this program was built against, such as "1.13.1".
func Version() string { return C.GoString(C.fc_libtorch_version()) }

// BuildConfig returns libtorch's own account of how it was built (compiler, BLAS, LAPACK, CPU
// capability), some ten lines.
func BuildConfig() string {
	var text *C.char
	check("build config", C.fc_libtorch_config(&text))
	defer C.fc_free_string(text)
	return C.GoString(text)
}
