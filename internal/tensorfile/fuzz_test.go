package tensorfile

import (
	"os"
	"path/filepath"
	"testing"
)

// Whatever the bytes, parsing ends with a value or an error: no panic, no runaway memory. A value
// that is accepted can be read.
func fuzzFiles(f *testing.F, pattern string) {
	paths, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(paths) == 0 {
		f.Fatalf("no seeds for %s", pattern)
	}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

func FuzzPT(f *testing.F) {
	fuzzFiles(f, "*.pt")
	fuzzFiles(f, "*.pkl")
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := parsePT(data)
		if err != nil {
			return
		}
		if tensors, ok := tensorsOf(v); ok {
			for _, x := range tensors {
				x.Float64s()
			}
		}
	})
}

// FuzzPickle feeds the interpreter directly: zip checksums keep most mutations away from it in FuzzPT.
func FuzzPickle(f *testing.F) {
	fuzzFiles(f, "*.pkl")
	fuzzFiles(f, "*_legacy.pt")
	f.Fuzz(func(t *testing.T, data []byte) {
		unpickle(data, func(any) (any, error) { return &storage{dtype: F32, data: make([]byte, 64), budget: new(int)}, nil })
	})
}

func FuzzNPY(f *testing.F) {
	fuzzFiles(f, "*.npy")
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := ParseNPY(data)
		if err == nil && a.Strings == nil && len(a.Data) != a.Len()*a.DType.Size() {
			t.Errorf("%d bytes for %s %v", len(a.Data), a.DType, a.Shape)
		}
		parseNPZ(data)
	})
}

func FuzzSafetensors(f *testing.F) {
	header, _ := safetensorsHeader([]Tensor{FromFloat32s("a", []int{1}, []float32{1})}, map[string]string{"k": "v"})
	f.Add(append(header, 0, 0, 128, 63))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := parseSafetensors(data)
		if err != nil {
			return
		}
		for _, x := range file.Tensors {
			if len(x.Data) != x.Len()*x.DType.Size() {
				t.Errorf("%d bytes for %s %v", len(x.Data), x.DType, x.Shape)
			}
		}
	})
}
