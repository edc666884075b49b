package torchx

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFastDecodeEmulated: our kernel for a step of decoding, compiled for the CPU with its instructions emulated, against float64. A wait
// that is left out, another turn of the pieces and values that are not transposed are seen.
func TestFastDecodeEmulated(t *testing.T) {
	source, err := os.ReadFile("csrc/kernels_decode.cu")
	if err != nil {
		t.Fatal(err)
	}
	text := string(source)
	cut := func(from, to string) {
		a, b := strings.Index(text, from), strings.Index(text, to)
		if a < 0 || b < a {
			t.Fatalf("no %q before %q in the kernel", from, to)
		}
		text = text[:a] + text[b:]
	}
	replace := func(in, from, to string) string {
		if !strings.Contains(in, from) {
			t.Fatalf("no %q in the kernel", from)
		}
		return strings.ReplaceAll(in, from, to)
	}
	cut(`R"cuda(`, "\n//")
	cut("#define ATTEND", `)cuda"`)
	text = strings.TrimSuffix(strings.TrimSpace(text), `)cuda"`)
	cut("__device__ inline unsigned place(", "__device__ inline unsigned pair(")
	text = replace(text, "extern __shared__ __align__(16) unsigned char memory[];", "unsigned char *memory = shared_memory;")
	text = replace(text, `asm volatile("cp.async.commit_group;" ::: "memory")`, "commit_group()")
	text = replace(text, `asm volatile("cp.async.wait_group 1;" ::: "memory")`, "wait_group(1)")
	text = replace(text, `asm volatile("cp.async.wait_all;" ::: "memory")`, "wait_group(0)")

	compiler := cmp.Or(os.Getenv("CXX"), "g++")
	if _, err := exec.LookPath(compiler); err != nil {
		t.Skip("no C++ compiler here")
	}
	run := func(t *testing.T, kernel string) (far []string) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "kernel.inc"), []byte(kernel), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(compiler, "-std=c++20", "-O1", "-pthread", "-w", "-I", dir, "-o", filepath.Join(dir, "emulated"),
			"testdata/emulated_decode.cc").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		few, want := []string{}, 36
		if testing.Short() {
			few, want = []string{"few"}, 12
		}
		said, err := exec.Command(filepath.Join(dir, "emulated"), few...).Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		lines := strings.Split(strings.TrimSpace(string(said)), "\n")
		if len(lines) != want {
			t.Fatalf("%d decodings, want %d:\n%s", len(lines), want, said)
		}
		for _, line := range lines {
			var off float64
			if _, err := fmt.Sscan(line, &off); err != nil || !(off < 3e-3) { // rounding to bfloat16 is 1.7e-3 of the norm
				far = append(far, line)
			}
		}
		return far
	}
	if far := run(t, text); len(far) > 0 {
		t.Errorf("off by more than roundings, relative to the norm:\n%s", strings.Join(far, "\n"))
	}
	if testing.Short() {
		return
	}
	for name, fault := range map[string][2]string{
		"no wait":        {"wait_group(1)", "wait_group(2)"},
		"not transposed": {"load_transposed(b, values", "load_matrices(b, values"},
		"other turn":     {"keys + r * kRow + ((column ^ (r & 7)) * 16)", "keys + r * kRow + column * 16"},
		"all see all":    {"now.stretch == 0 || ", "true || "},
		"no rescaling":   {"o[j][i] *= less[i / 2]", "o[j][i] *= 1"},
	} {
		t.Run(name, func(t *testing.T) {
			if far := run(t, replace(text, fault[0], fault[1])); len(far) == 0 {
				t.Error("not seen")
			}
		})
	}
}
