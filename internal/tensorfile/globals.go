package tensorfile

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"fulcrum/internal/list"
)

// storage is the memory behind one or more PyTorch tensors.
type storage struct {
	dtype  DType // "" for an untyped storage
	data   []byte
	absent bool  // first pass over a legacy file: sizes are known, bytes are not
	budget *int  // bytes that non-contiguous tensors of this file may still copy
	numel  int64 // as the pickle says
}

// object is a NumPy array or dtype under construction: BUILD supplies its state.
type object struct {
	class global
	state Tuple
	done  any
}

const (
	numpyArray  global = "numpy ndarray"
	numpyDtype  global = "numpy dtype"
	orderedDict global = "collections OrderedDict"
)

// lookupGlobal allows the names that tensors, state dicts and arrays are made of. Nothing else is
// ever resolved, whatever it is.
func lookupGlobal(module, name string) (any, error) {
	module = strings.Replace(module, "numpy._core", "numpy.core", 1) // NumPy 2
	if module == "__builtin__" {
		module = "builtins"
	}
	g := global(module + " " + name)
	if module == "torch" {
		if _, ok := storageType(name); ok || name == "Size" || name == "device" {
			return g, nil
		}
		if _, ok := torchDtype("torch." + name); ok {
			return "torch." + name, nil
		}
	}
	switch g {
	case orderedDict, numpyArray, numpyDtype, "builtins set", "_codecs encode",
		"torch._utils _rebuild_tensor", "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor_v3",
		"torch._utils _rebuild_parameter", "torch.storage UntypedStorage",
		"numpy.core.multiarray _reconstruct", "numpy.core.multiarray scalar", "numpy.core.numeric _frombuffer",
		"pathlib PosixPath", "pathlib PurePosixPath", "builtins int", "builtins float", "builtins list", "builtins dict", "builtins str",
		"builtins bytes":
		return g, nil
	}
	if dictLike(g) {
		return g, nil
	}
	return nil, fmt.Errorf("refused: the file asks for %.100q, and only tensors, arrays and plain values are read", module+"."+name)
}

// dictLike says which classes of Lightning's hyper-parameters are read as plain dicts.
func dictLike(g global) bool {
	switch g {
	case "collections defaultdict", "argparse Namespace", "pytorch_lightning.utilities.parsing AttributeDict",
		"lightning_fabric.utilities.data AttributeDict", "lightning.fabric.utilities.data AttributeDict":
		return true
	}
	return false
}

func storageType(class string) (DType, bool) {
	d, ok := map[string]DType{"FloatStorage": F32, "DoubleStorage": F64, "HalfStorage": F16, "BFloat16Storage": BF16,
		"LongStorage": I64, "IntStorage": I32, "ShortStorage": I16, "CharStorage": I8, "ByteStorage": U8, "BoolStorage": BOOL,
		"ComplexFloatStorage": C64}[class]
	return d, ok
}

func torchDtype(name string) (DType, bool) {
	d, ok := map[string]DType{"torch.float32": F32, "torch.float64": F64, "torch.float16": F16, "torch.bfloat16": BF16,
		"torch.int64": I64, "torch.int32": I32, "torch.int16": I16, "torch.int8": I8, "torch.uint8": U8, "torch.uint16": U16,
		"torch.uint32": U32, "torch.uint64": U64, "torch.bool": BOOL, "torch.complex64": C64,
		"torch.float8_e4m3fn": F8E4, "torch.float8_e5m2": F8E5}[name]
	return d, ok
}

// call carries out REDUCE and NEWOBJ for the allowed globals.
func call(target, arg any) (any, error) {
	g, ok := target.(global)
	args, isTuple := arg.(Tuple)
	if !ok || !isTuple {
		return nil, fmt.Errorf("refused: the file calls %s", TypeName(target))
	}
	if dictLike(g) && len(args) <= 1 {
		return NewDict(), nil // a defaultdict's factory is dropped
	}
	switch g {
	case "pathlib PosixPath", "pathlib PurePosixPath":
		return callPath(g, args)
	case "builtins bytes":
		if len(args) == 0 {
			return []byte{}, nil
		}
	case "torch._utils _rebuild_tensor", "torch._utils _rebuild_tensor_v2":
		if len(args) >= 4 {
			return rebuildTensor(args, "")
		}
	case "torch._utils _rebuild_tensor_v3":
		name, _ := argString(args, 6)
		if dtype, ok := torchDtype(name); ok {
			return rebuildTensor(args, dtype)
		}
	case "torch._utils _rebuild_parameter":
		if len(args) > 0 {
			if t, ok := args[0].(Tensor); ok {
				return t, nil
			}
		}
	case orderedDict:
		return callDict(args)
	case "builtins set", "torch Size":
		return callSequence(g, args)
	case "torch device":
		if len(args) > 0 {
			return Show(args[0]), nil
		}
	case "_codecs encode":
		return callEncode(args)
	case "numpy.core.multiarray _reconstruct":
		if len(args) > 0 && args[0] == any(numpyArray) {
			return &object{class: numpyArray}, nil
		}
	case numpyDtype:
		if name, ok := argString(args, 0); ok {
			return &object{class: numpyDtype, done: name}, nil
		}
	case "numpy.core.multiarray scalar":
		if len(args) == 2 {
			return numpyScalar(args[0], args[1])
		}
	case "numpy.core.numeric _frombuffer":
		if len(args) == 4 {
			order, _ := argString(args, 3)
			return numpyFrom(args[0], args[1], args[2], order == "F")
		}
	}
	return nil, unexpected(g)
}

func unexpected(g global) error {
	return fmt.Errorf("%s: unexpected arguments", strings.Replace(string(g), " ", ".", 1))
}

func argString(args Tuple, i int) (string, bool) {
	if i >= len(args) {
		return "", false
	}
	s, ok := args[i].(string)
	return s, ok
}

func callPath(g global, args Tuple) (any, error) {
	parts := make([]string, len(args))
	for i := range args {
		part, ok := argString(args, i)
		if !ok {
			return nil, unexpected(g)
		}
		parts[i] = part
	}
	return path.Join(parts...), nil
}

// callSequence makes a set, as a List, or a torch.Size, as a Tuple.
func callSequence(g global, args Tuple) (any, error) {
	var items []any
	if len(args) > 0 {
		var ok bool
		if items, ok = itemsOf(args[0]); !ok || len(args) > 1 {
			return nil, unexpected(g)
		}
	}
	if g == "torch Size" {
		return Tuple(items), nil
	}
	return &List{Items: slices.Clone(items)}, nil
}

func callDict(args Tuple) (any, error) {
	d := NewDict()
	d.Ordered = true
	if len(args) == 0 {
		return d, nil
	}
	pairs, ok := args[0].(*List)
	if !ok || len(args) != 1 {
		return nil, unexpected("OrderedDict")
	}
	for _, p := range pairs.Items {
		kv, _ := itemsOf(p)
		if len(kv) != 2 {
			return nil, unexpected("OrderedDict")
		}
		d.Set(kv[0], kv[1])
	}
	return d, nil
}

// callEncode is _codecs.encode(text, "latin1"): how protocol 2 spells bytes.
func callEncode(args Tuple) (any, error) {
	text, ok := argString(args, 0)
	enc, _ := argString(args, 1)
	if !ok || enc != "latin1" && enc != "latin-1" {
		return nil, unexpected("_codecs encode")
	}
	out := make([]byte, 0, len(text))
	for _, r := range text {
		if r > 255 {
			return nil, fmt.Errorf("_codecs.encode: character %q is not latin1", r)
		}
		out = append(out, byte(r))
	}
	return out, nil
}

// build carries out BUILD. Dicts drop the attributes that PyTorch hangs on state dicts (_metadata).
func build(target, state any) (any, error) {
	switch t := target.(type) {
	case *Dict:
		return t, nil
	case *object:
		s, ok := state.(Tuple)
		if !ok {
			return nil, fmt.Errorf("%s: unexpected state", t.class)
		}
		t.state = s
		return t, nil
	}
	return nil, fmt.Errorf("refused: the file sets attributes of %s", TypeName(target))
}

// finish turns a completed NumPy array into a Tensor; other values pass.
func finish(v any) (any, error) {
	o, ok := v.(*object)
	if !ok || o.class != numpyArray {
		return v, nil
	}
	if o.done == nil {
		if len(o.state) != 5 { // version, shape, dtype, is_fortran, bytes
			return nil, fmt.Errorf("numpy array without its state")
		}
		fortran, _ := o.state[3].(bool)
		a, err := numpyFrom(o.state[4], o.state[2], o.state[1], fortran)
		if err != nil {
			return nil, err
		}
		o.done, o.state = a, nil
	}
	return o.done, nil
}

func numpyFrom(data, dtype, shape any, fortran bool) (any, error) {
	raw, ok := data.([]byte)
	if !ok {
		return nil, fmt.Errorf("numpy array of Python objects, which are not read")
	}
	descr, err := numpyDescr(dtype)
	if err != nil {
		return nil, err
	}
	dims, err := ints(shape)
	if err != nil {
		return nil, fmt.Errorf("numpy shape: %w", err)
	}
	a, err := npyArray(descr, fortran, dims, raw)
	if err != nil {
		return nil, err
	}
	if a.Strings != nil {
		return &List{Items: list.Map(a.Strings, func(s string) any { return s })}, nil
	}
	return a.Tensor, nil
}

// numpyDescr returns "<f8" for the dtype object that numpy.dtype('f8') and its state (3, '<', …) make.
func numpyDescr(dtype any) (string, error) {
	o, ok := dtype.(*object)
	if !ok || o.class != numpyDtype {
		return "", fmt.Errorf("numpy dtype is %s", TypeName(dtype))
	}
	name, _ := o.done.(string)
	order, _ := argString(o.state, 1)
	return cmp.Or(strings.TrimPrefix(order, "="), "<") + name, nil
}

func numpyScalar(dtype, data any) (any, error) {
	v, err := numpyFrom(data, dtype, Tuple{}, false)
	if err != nil {
		return nil, err
	}
	if list, isText := v.(*List); isText {
		return list.Items[0], nil
	}
	t := v.(Tensor)
	if t.DType.IsFloat() {
		f, err := t.Float64s()
		if err != nil {
			return nil, err
		}
		return f[0], nil
	}
	i, err := t.Int64s()
	if err != nil {
		return nil, err
	}
	if t.DType == BOOL {
		return i[0] != 0, nil
	}
	return i[0], nil
}

// rebuildTensor makes a tensor from (storage, offset, size, stride, …), all in elements.
func rebuildTensor(args Tuple, dtype DType) (any, error) {
	s, ok := args[0].(*storage)
	if !ok {
		return nil, fmt.Errorf("tensor without a storage")
	}
	if s.dtype != "" {
		dtype = s.dtype
	}
	if dtype == "" {
		return nil, fmt.Errorf("tensor over a storage of unknown type")
	}
	offset, ok := args[1].(int64)
	if !ok || offset < 0 || offset > math.MaxInt32*int64(1<<20) {
		return nil, fmt.Errorf("tensor offset %s", Show(args[1]))
	}
	size, err := ints(args[2])
	if err != nil {
		return nil, fmt.Errorf("tensor size: %w", err)
	}
	if bits, ok := args[len(args)-1].(*Dict); ok { // metadata: the values differ from the bytes
		for _, bit := range []string{"neg", "conj"} {
			if set, _ := bits.Get(bit); set == true {
				return nil, fmt.Errorf("tensor with PyTorch's %s bit: save it by .resolve_%s()", bit, bit)
			}
		}
	}
	stride, err := ints(args[3])
	if err != nil {
		return nil, fmt.Errorf("tensor stride: %w", err)
	}
	return s.view(dtype, int(offset), size, stride)
}

func (s *storage) view(dtype DType, offset int, size, stride []int) (any, error) {
	if len(size) != len(stride) {
		return nil, fmt.Errorf("tensor of size %v with stride %v", size, stride)
	}
	count, err := elements(size)
	if err != nil {
		return nil, err
	}
	t := Tensor{DType: dtype, Shape: size}
	width := dtype.Size()
	if s.absent {
		return t, nil
	}
	if count == 0 {
		t.Data = []byte{}
		return t, nil
	}
	held := len(s.data) / width
	last := offset
	for i, d := range size {
		if stride[i] != 0 && d-1 > held/stride[i] { // no overflow below
			last = held
			break
		}
		last += (d - 1) * stride[i]
	}
	if last >= held || last < 0 {
		return nil, fmt.Errorf("tensor of size %v, stride %v, offset %d reaches outside its storage of %d elements", size, stride, offset,
			held)
	}
	if contiguous(size, stride) {
		t.Data = s.data[offset*width : (offset+count)*width]
		return t, nil
	}
	if *s.budget -= count * width; *s.budget < 0 {
		return nil, fmt.Errorf("tensors blow up to many times the file's size")
	}
	t.Data = gather(s.data, width, size, stride, offset)
	return t, nil
}

func contiguous(size, stride []int) bool {
	for i, n := range rowMajor(size) {
		if size[i] != 1 && stride[i] != n {
			return false
		}
	}
	return true
}

func rowMajor(size []int) []int {
	stride, n := make([]int, len(size)), 1
	for i := len(size) - 1; i >= 0; i-- {
		stride[i] = n
		n *= size[i]
	}
	return stride
}

// itemsOf returns what a tuple or list holds.
func itemsOf(v any) (items []any, ok bool) {
	switch v := v.(type) {
	case Tuple:
		return v, true
	case *List:
		return v.Items, true
	}
	return nil, false
}

// ints returns a tuple or list of non-negative integers.
func ints(v any) ([]int, error) {
	items, ok := itemsOf(v)
	if !ok {
		return nil, fmt.Errorf("want a tuple, found %s", TypeName(v))
	}
	if len(items) > 64 {
		return nil, fmt.Errorf("%d dimensions, want at most 64", len(items))
	}
	out := make([]int, len(items))
	for i, x := range items {
		n, ok := x.(int64)
		if !ok || n < 0 {
			return nil, fmt.Errorf("want non-negative integers, found %s", Show(x))
		}
		out[i] = int(n)
	}
	return out, nil
}
