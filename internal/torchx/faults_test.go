package torchx_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"fulcrum/internal/tensorfile"
	"fulcrum/internal/torchx"
)

// TestCutFiles: a mapped file that is cut while libtorch, or Go, reads it gives zeros and is named by the next look; the process goes on,
// and other faults are Go's as before.
func TestCutFiles(t *testing.T) {
	torchx.CatchFaults(tensorfile.Records())
	torchx.Attach(2)
	values := make([]float32, 1<<21) // 8 MB: several threads read it
	for i := range values {
		values[i] = 1
	}
	for name, sum := range map[string]func(tensorfile.Tensor) float64{
		"libtorch": func(x tensorfile.Tensor) float64 {
			defer torchx.Scope()()
			return torchx.Sum(torchx.FromMapped(x.Data, torchx.Float32, x.Shape...)).Item()
		},
		"Go": func(x tensorfile.Tensor) (all float64) {
			values, err := x.Float32s()
			if err != nil {
				t.Error(err)
			}
			for _, v := range values {
				all += float64(v)
			}
			return all
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.safetensors")
			one := []tensorfile.Tensor{tensorfile.FromFloat32s("x", []int{len(values)}, values)}
			if err := tensorfile.WriteSafetensors(path, one, nil); err != nil {
				t.Fatal(err)
			}
			x, err := tensorfile.MapSafetensors(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := sum(x.Tensors[0]); got != float64(len(values)) {
				t.Fatalf("the sum is %v before the cut, want %d", got, len(values))
			}
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
			if got := sum(x.Tensors[0]); got != 0 {
				t.Errorf("the sum is %v after the cut, want 0", got)
			}
			var changed *tensorfile.ChangedError
			if err := tensorfile.Changed(); !errors.As(err, &changed) || changed.Path != path || !strings.Contains(err.Error(), "cut short") {
				t.Errorf("error %v, want one that names %s", err, path)
			}
			if err := x.Close(); err != nil {
				t.Error(err)
			}
			if err := tensorfile.Changed(); err == nil {
				t.Error("a mapping that was cut is forgotten when it is closed")
			}
			if err := tensorfile.Changed(); err != nil {
				t.Errorf("%v is said twice", err)
			}
		})
	}
	defer func() {
		if _, ok := recover().(runtime.Error); !ok {
			t.Error("a nil pointer is no panic any more")
		}
	}()
	var none *[1 << 20]byte
	_ = none[len(values)>>2]
}
