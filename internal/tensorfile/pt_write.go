package tensorfile

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"strconv"

	"fulcrum/internal/atomicfile"
)

// WritePT writes value as torch.save does (zip format, protocol 2), such that torch.load(path, weights_only=True) reads
// it. Value may hold nil, bool, int, int64, float64 (PyTorch 1.13 wants Scalar instead), string, Tuple, *List, *Dict
// and Tensor. Equal input gives equal bytes; path is replaced in one step.
func WritePT(path string, value any) error {
	p := &pickler{}
	p.b.WriteString("\x80\x02")
	if err := p.write(value, 0); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	p.b.WriteByte('.')
	f, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := p.archive(f); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return f.Commit()
}

type pickler struct {
	b       bytes.Buffer
	tensors []Tensor // storage i belongs to tensors[i]
}

const maxDepth = 100 // of nested values written

func (p *pickler) write(v any, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("values nested deeper than %d", maxDepth)
	}
	switch v := v.(type) {
	case nil:
		p.b.WriteByte('N')
	case bool:
		p.b.WriteByte(map[bool]byte{true: 0x88, false: 0x89}[v])
	case int:
		p.int(int64(v))
	case int64:
		p.int(v)
	case float64:
		p.b.WriteByte('G')
		p.b.Write(binary.BigEndian.AppendUint64(nil, math.Float64bits(v)))
	case string:
		p.text(v)
	case Tuple:
		return p.items("(", v, 't', depth)
	case *List:
		return p.items("](", v.Items, 'e', depth)
	case *Dict:
		if v.Ordered {
			p.b.WriteString("ccollections\nOrderedDict\n)R(")
		} else {
			p.b.WriteString("}(")
		}
		for i, k := range v.Keys {
			if err := p.write(k, depth+1); err != nil {
				return err
			}
			if err := p.write(v.Values[i], depth+1); err != nil {
				return fmt.Errorf("%v: %w", k, err)
			}
		}
		p.b.WriteByte('u')
	case Tensor:
		return p.tensor(v)
	default:
		return fmt.Errorf("a value of type %T cannot be stored", v)
	}
	return nil
}

func (p *pickler) items(begin string, items []any, end byte, depth int) error {
	p.b.WriteString(begin)
	for _, x := range items {
		if err := p.write(x, depth+1); err != nil {
			return err
		}
	}
	return p.b.WriteByte(end)
}

func (p *pickler) int(v int64) {
	if v == int64(int32(v)) {
		p.b.WriteByte('J')
		p.b.Write(binary.LittleEndian.AppendUint32(nil, uint32(v)))
		return
	}
	p.b.WriteString("\x8a\x08")
	p.b.Write(binary.LittleEndian.AppendUint64(nil, uint64(v)))
}

func (p *pickler) text(s string) {
	p.b.WriteByte('X')
	p.b.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(s))))
	p.b.WriteString(s)
}

func (p *pickler) sizes(v []int) {
	p.b.WriteByte('(')
	for _, d := range v {
		p.int(int64(d))
	}
	p.b.WriteByte('t')
}

func (p *pickler) tensor(t Tensor) error {
	class := ""
	for _, name := range []string{"FloatStorage", "DoubleStorage", "HalfStorage", "BFloat16Storage", "LongStorage",
		"IntStorage", "ShortStorage", "CharStorage", "ByteStorage", "BoolStorage"} {
		if d, _ := storageType(name); d == t.DType {
			class = name
		}
	}
	if class == "" || len(t.Data) != t.Len()*t.DType.Size() {
		return t.errorf("cannot be stored in a PyTorch file (%d bytes)", len(t.Data))
	}
	p.b.WriteString("ctorch._utils\n_rebuild_tensor_v2\n((")
	p.text("storage")
	p.b.WriteString("ctorch\n" + class + "\n")
	p.text(strconv.Itoa(len(p.tensors)))
	p.text("cpu")
	p.int(int64(t.Len()))
	p.b.WriteString("tQ")
	p.int(0)
	p.sizes(t.Shape)
	p.sizes(rowMajor(t.Shape))
	p.b.WriteString("\x89ccollections\nOrderedDict\n)RtR")
	p.tensors = append(p.tensors, t)
	return nil
}

// archive writes the zip entries as PyTorch lays them out: stored, data aligned to 64 bytes.
func (p *pickler) archive(w io.WriteSeeker) error {
	z := zip.NewWriter(w)
	add := func(name string, data []byte) error {
		h := &zip.FileHeader{Name: "archive/" + name, Method: zip.Store, CRC32: crc32.ChecksumIEEE(data),
			CompressedSize64: uint64(len(data)), UncompressedSize64: uint64(len(data))}
		if err := z.Flush(); err != nil {
			return err
		}
		at, err := w.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		pad := 64 - (at+30+int64(len(h.Name))+4)%64 // 30: local header; 4: id and length of the extra field
		h.Extra = append([]byte{'F', 'B', byte(pad), 0}, bytes.Repeat([]byte("Z"), int(pad))...)
		e, err := z.CreateRaw(h)
		if err != nil {
			return err
		}
		_, err = e.Write(data)
		return err
	}
	if err := add("data.pkl", p.b.Bytes()); err != nil {
		return err
	}
	for i, t := range p.tensors {
		if err := add("data/"+strconv.Itoa(i), t.Data); err != nil {
			return err
		}
	}
	if err := add("version", []byte("3\n")); err != nil {
		return err
	}
	return z.Close()
}
