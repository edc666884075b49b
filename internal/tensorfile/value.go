package tensorfile

import (
	"fmt"
	"math/big"
)

// Values inside a PyTorch file are nil, bool, int64, *big.Int, float64, string, []byte, Tuple, *List, *Dict and Tensor.

// Tuple is a Python tuple (or torch.Size).
type Tuple []any

// List is a Python list or set.
type List struct{ Items []any }

// Dict is a Python dict or OrderedDict: insertion order, any key.
type Dict struct {
	Ordered bool // an OrderedDict
	Keys    []any
	Values  []any
	index   map[any]int // of the keys that Go can compare
}

func NewDict() *Dict { return &Dict{index: map[any]int{}} }

func (d *Dict) Set(key, value any) {
	if comparableKey(key) {
		if i, ok := d.index[key]; ok {
			d.Values[i] = value
			return
		}
		d.index[key] = len(d.Keys)
	}
	d.Keys = append(d.Keys, key)
	d.Values = append(d.Values, value)
}

func (d *Dict) Get(key any) (any, bool) {
	if comparableKey(key) {
		if i, ok := d.index[key]; ok {
			return d.Values[i], true
		}
	}
	return nil, false
}

func comparableKey(key any) bool {
	switch key.(type) {
	case nil, bool, int64, float64, string:
		return true
	}
	return false
}

// Show returns a short one-line text of a value, for messages: foreign values may be huge, hold line breaks,
// or share their parts so often that printing them whole never ends.
func Show(v any) string {
	switch v := v.(type) {
	case bool, int64, float64:
		return fmt.Sprint(v)
	case string:
		return fmt.Sprintf("%.60q", v)
	}
	return TypeName(v)
}

// TypeName returns the Python-like name of a value's type, for messages.
func TypeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case []byte:
		return "bytes"
	case Tuple:
		return "tuple"
	case *List:
		return "list"
	case *Dict:
		return "dict"
	case Tensor:
		return "tensor"
	case global:
		return "global " + string(v)
	}
	return fmt.Sprintf("%T", v)
}
