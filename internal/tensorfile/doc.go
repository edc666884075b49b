// Package tensorfile reads and writes the files tensors live in: safetensors, PyTorch's .pt, .pth and
// .ckpt (zip and legacy), NumPy's .npy and .npz. It is pure Go and executes nothing: pickles are
// decoded by an interpreter that knows a short list of globals and refuses every other one by name.
//
//	f, err := tensorfile.ReadSafetensors("model.safetensors") // mapped, not copied
//	defer f.Close()
//	w, ok := f.Get("input_proj.weight")
//	values, err := w.Float32s()
//
// Foreign bytes are never trusted: a damaged or malicious file gives one line naming it.
package tensorfile
