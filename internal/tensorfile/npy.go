package tensorfile

import (
	"archive/zip"
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"fulcrum/internal/atomicfile"
)

// Array is one NumPy array: a Tensor, or strings for the types <U and |S.
type Array struct {
	Tensor
	Strings []string // row-major; nil unless the array holds text
}

// ReadNPY maps a .npy file for good. C-ordered little-endian data is not copied.
func ReadNPY(path string) (*Array, error) {
	a, _, err := parseMapped(path, "a valid .npy", ParseNPY)
	return a, err
}

// WriteNPY writes an F32 tensor as numpy.save does and replaces path in one step.
func WriteNPY(path string, t Tensor) error {
	if t.DType != F32 {
		return fmt.Errorf("cannot write %s: a tensor of type %s, want F32", path, t.DType)
	}
	shape := strings.Trim(strings.ReplaceAll(fmt.Sprint(t.Shape), " ", ", "), "[]")
	if len(t.Shape) == 1 {
		shape += ","
	}
	head := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }", shape)
	head += strings.Repeat(" ", 63-(len(head)+10)%64) + "\n" // data begins at a multiple of 64
	return atomicfile.Stream(path, func(w *bufio.Writer) error {
		fmt.Fprintf(w, "\x93NUMPY\x01\x00%s%s", binary.LittleEndian.AppendUint16(nil, uint16(len(head))), head)
		w.Write(t.Data) // the end of the file says what failed
		return nil
	})
}

// ReadNPZ reads all arrays of a .npz file, by name without ".npy".
func ReadNPZ(path string) (map[string]*Array, error) {
	arrays, mem, err := parseMapped(path, "a valid .npz", parseNPZ)
	if err == nil {
		mem.Close() // what was unpacked is a copy
	}
	return arrays, err
}

func parseNPZ(data []byte) (map[string]*Array, error) {
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	u := newUnpacker(data)
	arrays := map[string]*Array{}
	for _, entry := range z.File {
		name, ok := strings.CutSuffix(entry.Name, ".npy")
		if !ok {
			continue
		}
		if _, dup := arrays[name]; dup {
			return nil, fmt.Errorf("array %.60q appears twice", name)
		}
		var a *Array
		content, err := u.unzip(entry)
		if err == nil {
			a, err = ParseNPY(content)
		}
		if err != nil {
			return nil, fmt.Errorf("array %.60q: %w", name, err)
		}
		a.Name = name
		arrays[name] = a
	}
	if len(arrays) == 0 {
		return nil, fmt.Errorf("no .npy entry")
	}
	return arrays, nil
}

// ParseNPY decodes format versions 1 to 3.
func ParseNPY(data []byte) (*Array, error) {
	if len(data) < 10 || string(data[:6]) != "\x93NUMPY" {
		return nil, fmt.Errorf("no NumPy magic at the start")
	}
	start, n := 10, int(binary.LittleEndian.Uint16(data[8:]))
	switch data[6] {
	case 1:
	case 2, 3:
		if len(data) < 12 {
			return nil, fmt.Errorf("header is truncated")
		}
		start, n = 12, int(binary.LittleEndian.Uint32(data[8:]))
	default:
		return nil, fmt.Errorf("format version %d, want 1 to 3", data[6])
	}
	if n > len(data)-start {
		return nil, fmt.Errorf("header of %d bytes is truncated", n)
	}
	descr, fortran, shape, err := npyHeader(string(data[start : start+n]))
	if err != nil {
		return nil, err
	}
	return npyArray(descr, fortran, shape, data[start+n:])
}

// npyArray builds the array of a NumPy type string ("<f4", "|b1", "<U21") from raw bytes.
func npyArray(descr string, fortran bool, shape []int, body []byte) (*Array, error) {
	count, err := elements(shape)
	if err != nil {
		return nil, err
	}
	dtype, size, err := npyType(descr)
	if err != nil {
		return nil, err
	}
	if size > 0 && count > len(body)/size || len(body) > max(count*size, 1) { // of several arrays NumPy would read the first
		return nil, fmt.Errorf("%d bytes of data, want %d elements of %d bytes: truncated, or several arrays in a file?", len(body), count, size)
	}
	body = body[:count*size]
	big := descr[0] == '>'
	if big || fortran {
		body = slices.Clone(body)
	}
	unit := size // bytes that belong together in byte order
	if descr[1] == 'U' {
		unit = 4
	}
	if big {
		for i := 0; i+unit <= len(body) && unit > 1; i += unit {
			slices.Reverse(body[i : i+unit])
		}
	}
	if fortran && len(shape) > 1 {
		body = gather(body, size, shape, fortranStrides(shape), 0)
	}
	a := &Array{Tensor: Tensor{DType: dtype, Shape: shape, Data: body}}
	if dtype == "" {
		a.Data = nil
		a.Strings = make([]string, count)
		for i := range a.Strings {
			if a.Strings[i], err = npyText(descr[1], body[i*size:(i+1)*size]); err != nil {
				return nil, fmt.Errorf("element %d: %w", i, err)
			}
		}
	}
	return a, nil
}

// npyType returns the element type and its size; the type is empty for text.
func npyType(descr string) (DType, int, error) {
	if strings.Contains(descr, "O") {
		return "", 0, fmt.Errorf("dtype %q holds pickled Python objects, which are not read: save np.stack(x).astype(np.float32)", descr)
	}
	if len(descr) < 3 || !strings.ContainsRune("<>|=", rune(descr[0])) {
		return "", 0, fmt.Errorf("dtype %q is not supported", descr)
	}
	size, err := strconv.Atoi(descr[2:])
	if err == nil && size > 0 && size < 1<<24 {
		switch descr[1] {
		case 'U':
			return "", 4 * size, nil
		case 'S':
			return "", size, nil
		}
	}
	types := map[string]DType{"f2": F16, "f4": F32, "f8": F64, "i1": I8, "i2": I16, "i4": I32, "i8": I64,
		"u1": U8, "u2": U16, "u4": U32, "u8": U64, "b1": BOOL}
	if d, ok := types[descr[1:]]; ok {
		return d, d.Size(), nil
	}
	return "", 0, fmt.Errorf("dtype %q is not supported", descr)
}

func npyText(kind byte, raw []byte) (string, error) {
	if kind == 'S' {
		return strings.TrimRight(string(raw), "\x00"), nil
	}
	var b strings.Builder
	for i := 0; i+4 <= len(raw); i += 4 {
		r := binary.LittleEndian.Uint32(raw[i:])
		if r > utf8.MaxRune {
			return "", fmt.Errorf("code point %#x is not Unicode", r)
		}
		b.WriteRune(rune(r))
	}
	return strings.TrimRight(b.String(), "\x00"), nil
}

// npyHeader reads the Python dict of a header, {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, as JSON in another
// spelling.
func npyHeader(text string) (descr string, fortran bool, shape []int, err error) {
	var h struct {
		Descr   *string `json:"descr"`
		Fortran *bool   `json:"fortran_order"`
		Shape   []int   `json:"shape"`
	}
	spelled := strings.NewReplacer("'", `"`, "(", "[", ")", "]", "True", "true", "False", "false").Replace(text)
	spelled = regexp.MustCompile(`,(\s*[\]}])`).ReplaceAllString(spelled, "$1")   // a comma may follow the last
	spelled = regexp.MustCompile(`([\[ ]\d+)L\b`).ReplaceAllString(spelled, "$1") // long numbers of Python 2
	dec := json.NewDecoder(strings.NewReader(spelled))
	dec.DisallowUnknownFields()
	wrong := dec.Decode(&h)
	var structured *json.UnmarshalTypeError
	switch _, after := dec.Token(); {
	case errors.As(wrong, &structured) && structured.Field == "descr":
		err = fmt.Errorf("header %.80q: structured types are not supported", text)
	case wrong != nil:
		err = fmt.Errorf("header %.80q: want a dict of descr, fortran_order and shape", text)
	case after != io.EOF:
		err = fmt.Errorf("header %.80q: text after the dict", text)
	case h.Descr == nil || h.Fortran == nil || h.Shape == nil:
		err = fmt.Errorf("header %.80q: want descr, fortran_order and shape", text)
	case len(*h.Descr) < 2:
		err = fmt.Errorf("header %.80q: empty descr", text)
	case slices.ContainsFunc(h.Shape, func(d int) bool { return d < 0 }):
		err = fmt.Errorf("header %.80q: shape must hold sizes", text)
	default:
		return *h.Descr, *h.Fortran, h.Shape, nil
	}
	return "", false, nil, err
}

func fortranStrides(shape []int) []int {
	backwards := slices.Clone(shape)
	slices.Reverse(backwards)
	strides := rowMajor(backwards)
	slices.Reverse(strides)
	return strides
}

// gather copies a strided view (strides and offset in elements) into row-major order. The caller has
// checked that every index lies inside data.
func gather(data []byte, size int, shape, strides []int, offset int) []byte {
	n := Tensor{Shape: shape}.Len()
	out := make([]byte, 0, n*size)
	if n == 0 {
		return out
	}
	index, at := make([]int, len(shape)), offset
	for {
		out = append(out, data[at*size:(at+1)*size]...)
		k := len(shape) - 1
		for ; k >= 0; k-- {
			index[k]++
			at += strides[k]
			if index[k] < shape[k] {
				break
			}
			at -= index[k] * strides[k]
			index[k] = 0
		}
		if k < 0 {
			return out
		}
	}
}
