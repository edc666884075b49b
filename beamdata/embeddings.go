package beamdata

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"fulcrum/beamdata/audit"
	"fulcrum/internal/list"
	"fulcrum/internal/registry"
	"fulcrum/internal/tensorfile"
)

// Table is an embedding table [Rows, Dim]; the row index is the global id of a training example, used
// for queries and candidates alike. Data may be mapped from the file: it is read-only.
type Table struct {
	Rows, Dim int
	Data      []float32

	digest func() []byte // computed once
}

// NewTable wraps data, row-major [rows, dim], without copying.
func NewTable(rows, dim int, data []float32) *Table {
	t := &Table{Rows: rows, Dim: dim, Data: data}
	t.digest = sync.OnceValue(t.sum)
	return t
}

// Row returns row i, shared with the table.
func (t *Table) Row(i int) []float32 { return t.Data[i*t.Dim : (i+1)*t.Dim] }

// Lengths returns the L2 norms of at most most rows, evenly spread.
func (t *Table) Lengths(most int) []float64 {
	var out []float64
	for i := 0; i < t.Rows; i += audit.Every(t.Rows, most) {
		squares := 0.0
		for _, v := range t.Row(i) {
			squares += float64(v) * float64(v)
		}
		out = append(out, math.Sqrt(squares))
	}
	return out
}

// sum hashes the values in blocks with CRC-32C (hardware: a table of 1 GB takes 0.1 s); the digests of
// the blocks enter the fingerprint.
func (t *Table) sum() []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(t.Rows))
	out = binary.LittleEndian.AppendUint64(out, uint64(t.Dim))
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	const block = 1 << 16
	for at := 0; at < len(t.Data); at += block {
		values := t.Data[at:min(at+block, len(t.Data))]
		bytes := tensorfile.FromFloat32s("", []int{len(values)}, values).Data
		out = binary.LittleEndian.AppendUint32(out, crc32.Checksum(bytes, castagnoli))
	}
	return out
}

// OpenTable reads an embedding table of any float type as float32: a matrix in .npy, the only matrix
// of a .safetensors file or of what torch.save wrote (.pt, .pth, .ckpt; a pickled NumPy array too).
// A float32 table is mapped, not copied. Rows with NaN or infinite values are refused by number.
func OpenTable(path string) (*Table, error) {
	tensor, err := openMatrix(path)
	if err != nil {
		return nil, err
	}
	if len(tensor.Shape) != 2 || tensor.Shape[0] == 0 || tensor.Shape[1] == 0 {
		return nil, fmt.Errorf("%s: shape %v, want an embedding matrix [rows, dim]%s", path, tensor.Shape, asMatrix(tensor.Shape))
	}
	values, err := tensor.Float32s()
	if err != nil {
		return nil, fmt.Errorf("%s: embeddings of type %s, want a float type: save x.float() (PyTorch) or x.astype(np.float32)", path,
			tensor.DType)
	}
	t := NewTable(tensor.Shape[0], tensor.Shape[1], values)
	if i := slices.IndexFunc(values, func(v float32) bool { return math.Float32bits(v)&0x7f800000 == 0x7f800000 }); i >= 0 {
		why := ""
		if tensor.DType == tensorfile.F16 {
			why = ": float16 ends at 65,504: save float32"
		}
		return nil, fmt.Errorf("%s: row %d holds a value that is not finite%s", path, i/t.Dim, why) // the exponent's bits are all ones
	}
	return t, nil
}

// openMatrix returns the tensor of the file. Mapped files stay mapped for the life of the process:
// the table shares their memory.
func openMatrix(path string) (tensorfile.Tensor, error) {
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".npy":
		a, err := tensorfile.ReadNPY(path)
		if err != nil {
			return tensorfile.Tensor{}, err
		}
		return a.Tensor, nil
	case ".safetensors":
		f, err := tensorfile.ReadSafetensors(path)
		if err != nil {
			return tensorfile.Tensor{}, err
		}
		return onlyMatrix(path, f.Tensors)
	case ".pt", ".pth", ".ckpt", ".bin":
		p, err := tensorfile.ReadPT(path)
		if err != nil {
			return tensorfile.Tensor{}, err
		}
		switch v := p.Value.(type) {
		case tensorfile.Tensor:
			return v, nil
		case *tensorfile.Dict:
			if rows := stacked(v); rows != "" {
				return tensorfile.Tensor{}, fmt.Errorf("%s: holds a dict, want an embedding matrix [rows, dim]%s", path, rows)
			}
			var tensors []tensorfile.Tensor
			for i, x := range v.Values {
				if t, ok := x.(tensorfile.Tensor); ok {
					t.Name = tensorfile.Show(v.Keys[i])
					tensors = append(tensors, t)
				}
			}
			return onlyMatrix(path, tensors)
		}
		return tensorfile.Tensor{}, fmt.Errorf("%s: holds a %s, want an embedding matrix [rows, dim]%s", path,
			tensorfile.TypeName(p.Value), stacked(p.Value))
	default:
		near, ok := registry.Nearest(ext, []string{".npy", ".safetensors", ".pt", ".pth"})
		hint := registry.DidYouMean(near, ok && ext != "")
		if ext == ".json" || ext == ".jsonl" {
			hint = " (beam files are data.beams)"
		}
		return tensorfile.Tensor{}, fmt.Errorf("%s: unknown embedding format %q%s: want .pt, .pth, .npy or .safetensors", path, ext, hint)
	}
}

func onlyMatrix(path string, tensors []tensorfile.Tensor) (tensorfile.Tensor, error) {
	found := list.Filter(tensors, func(t tensorfile.Tensor) bool { return len(t.Shape) == 2 && t.DType.IsFloat() })
	if len(found) == 1 {
		return found[0], nil
	}
	remedy := "save it alone, as NumPy's .npy or with torch.save"
	if len(found) > 1 {
		name := found[0].Name
		if strings.HasSuffix(path, ".safetensors") { // of a pickle's it is Python's spelling
			name = strconv.Quote(name)
		}
		remedy = fmt.Sprintf("save the matrix whose rows are the ids alone: torch.save(x[%s], FILE)", name)
	}
	return tensorfile.Tensor{}, fmt.Errorf("%s: %d float matrices among %d tensors (%s), want exactly one: %s", path, len(found),
		len(tensors), listed(tensors), remedy)
}

// listed names tensors with their types and shapes.
func listed(tensors []tensorfile.Tensor) string {
	const most = 6
	if len(tensors) == 0 {
		return "none"
	}
	parts := list.Map(tensors[:min(most, len(tensors))], func(t tensorfile.Tensor) string {
		return fmt.Sprintf("%s %s %v", t.Name, t.DType, t.Shape)
	})
	if len(tensors) > most {
		parts = append(parts, "…")
	}
	return strings.Join(parts, ", ")
}

// stacked returns advice on how to make one matrix of a list or dict of vectors; "" if there are no vectors.
func stacked(value any) string {
	items, how := []any(nil), ""
	switch v := value.(type) {
	case *tensorfile.List:
		items, how = v.Items, "torch.save(torch.stack(x), FILE)"
	case tensorfile.Tuple:
		items, how = v, "torch.save(torch.stack(x), FILE)"
	case *tensorfile.Dict:
		items, how = v.Values, "torch.save(torch.stack([x[k] for k in sorted(x, key=int)]), FILE), where row i is key i"
	}
	for _, item := range items {
		if t, ok := item.(tensorfile.Tensor); !ok || len(t.Shape) != 1 && (len(t.Shape) != 2 || t.Shape[0] != 1) {
			return ""
		}
	}
	if len(items) < 2 {
		return ""
	}
	return fmt.Sprintf(": its %d items are vectors: %s", len(items), how)
}

// asMatrix returns advice on how to make a matrix of a tensor of this shape.
func asMatrix(shape []int) string {
	switch {
	case len(shape) < 2:
		return ""
	case slices.Contains(shape, 0):
		return ": it is empty"
	case len(shape) == 3:
		return fmt.Sprintf(": one vector a row, such as x.mean(1) or x[:, 0] for %d vectors of %d", shape[0], shape[2])
	}
	return fmt.Sprintf(": one vector a row, such as x.flatten(1) for %d rows", shape[0])
}
