package beamdata

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
)

// npy returns a .npy file of a 2-D array.
func npy(descr string, rows, dim int, data []byte) []byte {
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d, %d), }", descr, rows, dim)
	header += strings.Repeat(" ", 64-(10+len(header)+1)%64) + "\n"
	out := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
	return append(append(out, header...), data...)
}

func TestOpenTableFormats(t *testing.T) {
	dir := t.TempDir()
	values := []float32{1, -2, 0.5, 4, 0.25, -6}
	var f4, f8, f2, bf16 []byte
	for _, v := range values {
		f4 = binary.LittleEndian.AppendUint32(f4, math.Float32bits(v))
		f8 = binary.LittleEndian.AppendUint64(f8, math.Float64bits(float64(v)))
		bf16 = binary.LittleEndian.AppendUint16(bf16, uint16(math.Float32bits(v)>>16))
	}
	for _, h := range []uint16{0x3c00, 0xc000, 0x3800, 0x4400, 0x3400, 0xc600} {
		f2 = binary.LittleEndian.AppendUint16(f2, h)
	}
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	paths := []string{write("f4.npy", npy("<f4", 3, 2, f4)), write("f8.npy", npy("<f8", 3, 2, f8)), write("f2.npy", npy("<f2", 3, 2, f2))}
	for _, x := range []tensorfile.Tensor{{Name: "e", DType: tensorfile.BF16, Shape: []int{3, 2}, Data: bf16},
		{Name: "e", DType: tensorfile.F64, Shape: []int{3, 2}, Data: f8}} {
		st, pt := filepath.Join(dir, string(x.DType)+".safetensors"), filepath.Join(dir, string(x.DType)+".pt")
		if err := tensorfile.WriteSafetensors(st, []tensorfile.Tensor{x}, nil); err != nil {
			t.Fatal(err)
		}
		wrapped := tensorfile.NewDict()
		wrapped.Set("embeddings", x)
		wrapped.Set("model", "clip")
		if err := tensorfile.WritePT(pt, wrapped); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, st, pt)
	}
	for _, path := range paths {
		table, err := OpenTable(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if table.Rows != 3 || table.Dim != 2 {
			t.Errorf("%s: [%d, %d]", path, table.Rows, table.Dim)
		}
		for i, v := range values {
			if table.Data[i] != v {
				t.Errorf("%s: value %d is %v, want %v", path, i, table.Data[i], v)
			}
		}
	}
}

func TestOpenTableRefusals(t *testing.T) {
	dir := t.TempDir()
	inf := make([]byte, 24)
	binary.LittleEndian.PutUint32(inf[12:], math.Float32bits(float32(math.Inf(1))))
	nan := make([]byte, 24)
	binary.LittleEndian.PutUint32(nan[20:], math.Float32bits(float32(math.NaN())))
	for _, tc := range []struct {
		name, file string
		data       []byte
		want       string
	}{
		{"infinite value", "a.npy", npy("<f4", 3, 2, inf), "row 1 holds a value that is not finite"},
		{"NaN", "a.npy", npy("<f4", 3, 2, nan), "row 2 holds a value that is not finite"},
		{"beyond float16", "a.npy", npy("<f2", 3, 2, append(make([]byte, 10), 0, 0x7c)), "row 2 holds a value that is not finite: float16 ends"},
		{"integers", "a.npy", npy("<i4", 3, 2, nan), "embeddings of type I32, want a float type"},
		{"truncated", "a.npy", npy("<f4", 3, 2, nan[:20]), "truncated"},
		{"no rows", "a.npy", npy("<f4", 0, 2, nil), "shape [0 2], want an embedding matrix"},
		{"empty file", "a.pt", nil, "is empty"},
		{"not a PyTorch file", "a.pt", []byte("hello"), "neither a zip archive nor a pickle"},
		{"unknown format", "a.h5", nil, `unknown embedding format ".h5"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(dir, tc.file)
			if err := os.WriteFile(path, tc.data, 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := OpenTable(path); err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), path) {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
}

func TestReferenceTables(t *testing.T) {
	pt, err := OpenTable(golden.Shared(t, "okvqa", "embeddings.pt"))
	if err != nil {
		t.Fatal(err)
	}
	np, err := OpenTable(golden.Shared(t, "okvqa", "embeddings.npy"))
	if err != nil {
		t.Fatal(err)
	}
	if pt.Rows != 10009 || pt.Dim != 768 || string(pt.digest()) != string(np.digest()) {
		t.Errorf("[%d, %d], same values: %v", pt.Rows, pt.Dim, string(pt.digest()) == string(np.digest()))
	}
	for _, set := range []string{"legacy", "rl_k64", "rl_old", "rl_s4"} {
		a, err := OpenTable(golden.Shared(t, "parity", "data", set, "emb.pt"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := OpenTable(golden.Shared(t, "parity", "data", set, "emb.npy"))
		if err != nil {
			t.Fatal(err)
		}
		if string(a.digest()) != string(b.digest()) {
			t.Errorf("%s: .pt and .npy differ", set)
		}
	}
}

func BenchmarkHalfTable(b *testing.B) {
	path := golden.Shared(b, "okvqa", "embeddings.npy")
	for b.Loop() {
		if _, err := OpenTable(path); err != nil {
			b.Fatal(err)
		}
	}
}

// The reference's pickled float64 array (parity pack) is an embedding table in float32.
func TestPickledArrayIsATable(t *testing.T) {
	table, err := OpenTable(golden.Shared(t, "parity", "units", "emb_numpy_f64.pth"))
	if err != nil {
		t.Fatal(err)
	}
	var want [][]float64
	golden.JSON(t, golden.Shared(t, "parity", "units", "emb_numpy_f64.json"), &want)
	if table.Rows != len(want) || table.Dim != len(want[0]) {
		t.Fatalf("%d×%d, want %d×%d", table.Rows, table.Dim, len(want), len(want[0]))
	}
	for i, row := range want {
		for k, x := range row {
			if table.Row(i)[k] != float32(x) {
				t.Errorf("row %d column %d: %v, want %v", i, k, table.Row(i)[k], float32(x))
			}
		}
	}
}
