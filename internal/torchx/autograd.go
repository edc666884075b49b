package torchx

// #include "csrc/fulcrum_torch.h"
import "C"

import "runtime"

// NoGrad switches gradient recording off until the returned function is called:
//
//	defer torchx.NoGrad()()
func NoGrad() (end func()) {
	runtime.LockOSThread() // the mode belongs to the OS thread
	before := C.fc_set_grad_enabled(false)
	return func() {
		C.fc_set_grad_enabled(before)
		runtime.UnlockOSThread()
	}
}

// Detach returns t without its history.
func Detach(t Tensor) Tensor {
	return made("detach", func(out *C.Tensor) *C.char { return C.fc_detach(t.c(), out) }, t)
}

// Backward adds the gradient of the scalar loss to the gradients of all parameters it depends on, also through
// the segments of Checkpoint.
func Backward(loss Tensor) {
	must("backward", loss)
	backward(loss, Tensor{}, 0)
}

// RequireGrad makes t a leaf whose gradient Backward accumulates. It returns t.
func RequireGrad(t Tensor) Tensor {
	must("requires_grad", t)
	check("requires_grad", C.fc_require_grad(t.c()), t)
	return t
}

// Grad returns the gradient of a leaf.
func Grad(t Tensor) Tensor {
	return made("grad", func(out *C.Tensor) *C.char { return C.fc_grad(t.c(), out) }, t)
}
