package tensorfile

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"fulcrum/internal/list"
	"fulcrum/internal/testkit/golden"
)

func floats(t *testing.T, v any) []float64 {
	t.Helper()
	x, ok := v.(Tensor)
	if !ok {
		t.Fatalf("found %s, want a tensor", TypeName(v))
	}
	f, err := x.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func get(t *testing.T, d any, key string) any {
	t.Helper()
	v, ok := d.(*Dict).Get(key)
	if !ok {
		t.Fatalf("no key %q", key)
	}
	return v
}

// A sign that PyTorch keeps in a tensor's metadata is not lost: such files are refused.
func TestPTRefusesLazySigns(t *testing.T) {
	for name, bit := range map[string]string{"neg.pt": "neg", "neg_v3.pt": "neg", "conj.pt": "conj"} {
		_, err := ReadPT(filepath.Join("testdata", name))
		want := "tensor with PyTorch's " + bit + " bit: save it by .resolve_" + bit + "()"
		if err == nil || !strings.Contains(err.Error(), name) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

// The same nested value in the zip format, the legacy format and pickle protocol 4 (testdata/make.py).
func TestPTNestedValues(t *testing.T) {
	for _, name := range []string{"nested.pt", "nested_legacy.pt", "nested_proto4.pt"} {
		t.Run(name, func(t *testing.T) {
			p, err := ReadPT(filepath.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			for key, want := range map[string]any{
				"epoch": int64(3), "big": int64(1) << 40, "lr": 1e-4, "phase": "rce", "flag": true, "none": nil, "npscalar": 0.25,
				"list": &List{Items: []any{int64(1), 2.5, "x"}}, "tuple": Tuple{int64(1), Tuple{int64(2), int64(3)}},
				"size": Tuple{int64(2), int64(3)},
			} {
				if got := get(t, p.Value, key); !reflect.DeepEqual(got, want) {
					t.Errorf("%s: got %#v, want %#v", key, got, want)
				}
			}
			for key, want := range map[string]struct {
				shape  []int
				values []float64
			}{
				"expanded": {[]int{3, 2}, []float64{7, 7, 7, 7, 7, 7}},
				"scalar":   {[]int{}, []float64{5}},
				"empty":    {[]int{0, 4}, []float64{}},
				"half":     {[]int{4}, []float64{1.5, -2, 65504, 5.9604644775390625e-08}},
				"bf16":     {[]int{2}, []float64{1, -3}},
				"double":   {[]int{1}, []float64{0.1}},
				"bool":     {[]int{2}, []float64{1, 0}},
				"bytes":    {[]int{2}, []float64{1, 255}},
				"param":    {[]int{2}, []float64{1, 2}},
				"int32":    {[]int{2}, []float64{-1, 2}},
				"numpy":    {[]int{2, 3}, []float64{0, 1, 2, 3, 4, 5}},
				"fortran":  {[]int{2, 3}, []float64{0, 1, 2, 3, 4, 5}},
			} {
				v := get(t, p.Value, key)
				golden.Close(t, floats(t, v), want.values, 0)
				if got := v.(Tensor).Shape; !reflect.DeepEqual(got, want.shape) {
					t.Errorf("%s: shape %v, want %v", key, got, want.shape)
				}
			}
			state, ok := tensorsOf(get(t, p.Value, "state"))
			if !ok || len(state) != 4 || state[0].Name != "transposed" {
				t.Fatalf("state dict: %v, %v", state, ok)
			}
			golden.Close(t, floats(t, state[0])[:6], []float64{0, 6, 12, 18, 1, 7}, 0)
			golden.Close(t, floats(t, state[1]), []float64{8, 9, 10, 14, 15, 16}, 0)
			golden.Close(t, floats(t, state[2])[:6], []float64{0, 2, 4, 6, 8, 10}, 0)
		})
	}
}

func TestPlainPickles(t *testing.T) {
	for _, name := range []string{"plain.pkl", "plain5.pkl"} {
		p, err := ReadPT(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		golden.Close(t, floats(t, p.Value), []float64{0, 1, 2, 3}, 0)
	}
}

// What Python spells out in protocol 2: no bytes, as of an empty array; and tensors of PyTorch before 0.4, with their strides.
func TestOldSpellings(t *testing.T) {
	empty := proto(globalOp("__builtin__", "bytes") + ")R")
	if v, err := parsePT(empty); err != nil || fmt.Sprintf("%T %v", v, v) != "[]uint8 []" {
		t.Errorf("no bytes: got %T %v, %v", v, v, err)
	}
	tensor := globalOp("torch._utils", "_rebuild_tensor") + "(" + storageOp("FloatStorage", "0", 4) + intOp(0) + tupleOp(2, 2) +
		tupleOp(1, 2) + "tR"
	data := string(bytesOf([]float32{1, 2, 3, 4}))
	v, err := parsePT(archive(t, "a/data.pkl", string(proto(tensor)), "a/data/0", data))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(floats(t, v)); got != "[1 3 2 4]" {
		t.Errorf("a tensor by columns: got %s", got)
	}
}

func TestMaliciousPicklesAreRefusedByName(t *testing.T) {
	for _, name := range []string{"evil.pt", "evil_legacy.pt"} {
		_, err := ReadPT(filepath.Join("testdata", name))
		if err == nil || !strings.Contains(err.Error(), `"posix.system"`) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want one line naming posix.system", name, err)
		}
	}
}

// Every truncation and every flipped byte gives an error or a value, never a panic; most flips of a
// zip are seen by its checksums.
func TestDamagedPT(t *testing.T) {
	for _, name := range []string{"nested.pt", "nested_legacy.pt", "plain.pkl", "npy_f4.npy", "arrays.npz"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		parse := parserOf(name)
		for n := 0; n < len(data); n += 1 + n/50 {
			if err := parse(data[:n]); err == nil {
				t.Errorf("%s cut to %d of %d bytes was accepted", name, n, len(data))
			}
		}
		for i := range data {
			bad := append([]byte(nil), data...)
			bad[i] ^= 0x41
			parse(bad)
		}
	}
}

func parserOf(name string) func([]byte) error {
	return func(data []byte) (err error) {
		switch filepath.Ext(name) {
		case ".npy":
			_, err = ParseNPY(data)
		case ".npz":
			_, err = parseNPZ(data)
		case ".safetensors":
			_, err = parseSafetensors(data)
		default:
			_, err = parsePT(data)
		}
		return err
	}
}

func TestNPY(t *testing.T) {
	for name, want := range map[string][]float64{
		"f2": {1.5, -2}, "f4": {0, 1, 2, 3, 4, 5}, "f8": {0.1, 0.2}, "big": {1, 2}, "fortran": {0, 1, 2, 3, 4, 5},
		"i4": {-1, 2}, "i8": {1 << 40}, "u1": {255}, "b1": {1, 0}, "empty": {}, "scalar": {3},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := ReadNPY("testdata/npy_" + name + ".npy")
			if err != nil {
				t.Fatal(err)
			}
			golden.Close(t, floats(t, a.Tensor), want, 0)
		})
	}
	two := filepath.Join(t.TempDir(), "two.npy") // as of numpy.save twice: NumPy reads the first
	data, err := os.ReadFile("testdata/npy_f4.npy")
	if err == nil {
		err = os.WriteFile(two, append(data, data...), 0o644)
	}
	if _, got := ReadNPY(two); err != nil || got == nil || !strings.Contains(got.Error(), two+": ") ||
		!strings.Contains(got.Error(), "or several arrays in a file") {
		t.Errorf("bytes behind the array: %v, %v", err, got)
	}
	mapped := filepath.Join(t.TempDir(), "mapped.npy") // as of numpy's open_memmap without elements: a file of nothing cannot be mapped
	data, err = os.ReadFile("testdata/npy_empty.npy")
	if err == nil {
		err = os.WriteFile(mapped, append(data, 0), 0o644)
	}
	if none, got := ReadNPY(mapped); err != nil || got != nil || len(none.Data) != 0 {
		t.Errorf("an empty array and a byte: %v, %v", err, got)
	}
	a, err := ReadNPY("testdata/npy_text.npy")
	if err != nil || !reflect.DeepEqual(a.Strings, []string{"ab", "é", ""}) {
		t.Errorf("text: %q, %v", a.Strings, err)
	}
	if _, err := ReadNPY("testdata/npy_object.npy"); err == nil || !strings.Contains(err.Error(), "pickled Python objects") {
		t.Errorf("object array: %v", err)
	}
	z, err := ReadNPZ("testdata/arrays.npz")
	if err != nil || len(z) != 2 || !reflect.DeepEqual(z["names"].Strings, []string{"a", "bc"}) {
		t.Errorf("npz: %v, %v", z, err)
	}
}

func TestHalfIsExact(t *testing.T) {
	for h, want := range map[uint16]float32{0x0000: 0, 0x3c00: 1, 0xc000: -2, 0x7bff: 65504, 0x0001: 1.0 / (1 << 24),
		0x03ff: 1023.0 / (1 << 24), 0x3555: 0.333251953125} {
		if got := HalfToFloat32(h); got != want {
			t.Errorf("%#04x: got %v, want %v", h, got, want)
		}
	}
	data := make([]byte, 2<<17) // the table agrees with the conversion
	for i := range 1 << 17 {
		data[2*i], data[2*i+1] = byte(i), byte(i>>8)
	}
	for i, got := range list.Map(shared[uint16](data, 1<<17), HalfToFloat32) {
		if want := HalfToFloat32(uint16(i)); got != want && want == want {
			t.Fatalf("%#04x: table %v, direct %v", uint16(i), got, want)
		}
	}
}

func TestSafetensorsRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.safetensors")
	in := []Tensor{
		FromFloat32s("b", []int{2, 2}, []float32{1, 2, 3, 4}), int64s("z", []int{1}, -5),
		FromFloat32s("a", nil, []float32{9}), {Name: "empty", DType: F16, Shape: []int{0, 3}, Data: []byte{}},
	}
	meta := map[string]string{"phase": "grpo", "epoch": "2", DigestKey: "of the file that the metadata comes from"}
	if err := WriteSafetensors(path, in, meta); err != nil {
		t.Fatal(err)
	}
	first, _ := os.ReadFile(path)
	f, err := ReadSafetensors(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	wantMeta := map[string]string{"phase": "grpo", "epoch": "2", // tail -c 28 a.safetensors | sha256sum
		DigestKey: "0af6fded1e72c3059abc6012595ddae668a596e0f6655bfbce0f17666f8c3022"}
	if got := fmt.Sprint(f.Names()); got != "[z a b empty]" || !reflect.DeepEqual(f.Metadata, wantMeta) {
		t.Errorf("names %s metadata %v", got, f.Metadata)
	}
	b, _ := f.Get("b")
	golden.Close(t, floats(t, b), []float64{1, 2, 3, 4}, 0)
	in[0], in[2] = in[2], in[0]
	if err := WriteSafetensors(path, in, meta); err != nil {
		t.Fatal(err)
	}
	if second, _ := os.ReadFile(path); string(first) != string(second) {
		t.Error("equal tensors in another order gave other bytes")
	}
}

// The digest finds damage that leaves a valid file; a file of another program has none.
func TestSafetensorsDigest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.safetensors")
	if err := WriteSafetensors(path, []Tensor{FromFloat32s("a", []int{4}, []float32{1, 2, 3, 4})}, nil); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := append([]byte(nil), good...)
	flipped[len(flipped)-3] ^= 1
	foreign := []byte(strings.Replace(string(flipped), DigestKey, "another_sha256", 1))
	for _, tc := range []struct {
		name string
		data []byte
		want string // "" = accepted
	}{
		{"as written", good, ""},
		{"one bit of a tensor", flipped, "damaged: its tensors have the SHA-256"},
		{"another digest", []byte(strings.Replace(string(good), DigestKey+`":"`, DigestKey+`":"0`, 1)[:len(good)]),
			"damaged: its tensors have the SHA-256"},
		{"no digest", foreign, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := os.WriteFile(path, tc.data, 0o644); err != nil {
				t.Fatal(err)
			}
			f, err := ReadSafetensors(path)
			if err == nil {
				f.Close()
			}
			if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if f, err = MapSafetensors(path); err != nil {
				t.Fatalf("mapped without reading: %v", err)
			}
			f.Close()
		})
	}
}

// BenchmarkSafetensorsDigest measures what the check adds to mapping a file: 256 MB of tensors.
func BenchmarkSafetensorsDigest(b *testing.B) {
	path := filepath.Join(b.TempDir(), "a.safetensors")
	if err := WriteSafetensors(path, []Tensor{FromFloat32s("a", []int{64 << 20}, make([]float32, 64<<20))}, nil); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(256 << 20)
	for b.Loop() {
		f, err := ReadSafetensors(path)
		if err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}

func TestSafetensorsValidation(t *testing.T) {
	file := func(header string, body int) []byte {
		return append(append([]byte{byte(len(header)), byte(len(header) >> 8), 0, 0, 0, 0, 0, 0}, header...), make([]byte, body)...)
	}
	for _, tc := range []struct {
		name, header string
		body         int
		want         string // "" = accepted
	}{
		{"one tensor", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8, ""},
		{"no tensor", `{}`, 0, ""},
		{"overlap", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, 12,
			"gap or overlap"},
		{"gap", `{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8, "gap or overlap"},
		{"bytes left over", `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 8, "cover 4 bytes"},
		{"outside the data", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 4, "data ends at 4"},
		{"wrong size", `{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}`, 8, "want 12"},
		{"unknown type", `{"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}}`, 8, `unknown dtype "F31"`},
		{"duplicate", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2,
			`"a" appears twice`},
		{"overflow", `{"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]}}`, 0, "overflows"},
		{"negative", `{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}}`, 0, "negative"},
		{"metadata not text", `{"__metadata__":{"a":1}}`, 0, "__metadata__"},
		{"not JSON", `{"a"`, 0, "ends too early"},
		{"text after the header", `{}{}`, 0, "after the JSON"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parseSafetensors(file(tc.header, tc.body))
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
	if _, err := parseSafetensors([]byte{255, 255, 255, 255, 0, 0, 0, 0}); err == nil {
		t.Error("a header longer than the file was accepted")
	}
}

func TestWritePTReadsBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.pt")
	state := NewDict()
	state.Ordered = true
	state.Set("w", FromFloat32s("", []int{2, 3}, []float32{1, 2, 3, 4, 5, 6}))
	state.Set("n", int64s("", []int{}, 7))
	metrics := NewDict()
	metrics.Set("kl", 0.25)
	d := NewDict()
	for _, kv := range []struct {
		k string
		v any
	}{{"epoch", 4}, {"big", int64(-1 << 40)}, {"phase", "grpo"}, {"model_state_dict", state}, {"kl_beta", 0.1}, {"metrics", metrics},
		{"flags", Tuple{true, false, nil}}, {"list", &List{Items: []any{1, "é"}}}} {
		d.Set(kv.k, kv.v)
	}
	if err := WritePT(path, d); err != nil {
		t.Fatal(err)
	}
	p, err := ReadPT(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if got := get(t, p.Value, "big"); got != any(int64(-1<<40)) {
		t.Errorf("big = %v", got)
	}
	tensors, ok := tensorsOf(get(t, p.Value, "model_state_dict"))
	if !ok || len(tensors) != 2 {
		t.Fatal("state dict lost")
	}
	golden.Close(t, floats(t, tensors[0]), []float64{1, 2, 3, 4, 5, 6}, 0)
	if keep := os.Getenv("KEEP_PT"); keep != "" { // development: check with torch.load(path, weights_only=True)
		data, _ := os.ReadFile(path)
		os.WriteFile(keep, data, 0o644)
	}
}

// The reference's embeddings: a pickled float64 NumPy array (parity pack, units/emb_numpy_f64).
func TestReferenceNumpyEmbeddings(t *testing.T) {
	p, err := ReadPT(golden.Shared(t, "parity", "units", "emb_numpy_f64.pth"))
	if err != nil {
		t.Fatal(err)
	}
	var want [][]float64
	golden.JSON(t, golden.Shared(t, "parity", "units", "emb_numpy_f64.json"), &want)
	v, err := p.Value.(Tensor).Float32s()
	if err != nil {
		t.Fatal(err)
	}
	var flat []float64
	for _, row := range want {
		flat = append(flat, row...)
	}
	golden.Close(t, convert[float64](v), flat, 0)
}

// The reference's checkpoints restore exactly the names and shapes of units/checkpoints.json.
func TestReferenceCheckpoints(t *testing.T) {
	var entries []struct {
		Init string
		Keys any
	}
	golden.JSON(t, golden.Shared(t, "parity", "units", "checkpoints.json"), &entries)
	seen := 0
	for _, e := range entries {
		if e.Init == "" {
			continue
		}
		seen++
		p, err := ReadPT(golden.Shared(t, "parity", "inits", e.Init, "init.pt"))
		if err != nil {
			t.Fatal(err)
		}
		value := p.Value
		if v, ok := value.(*Dict).Get("model_state_dict"); ok {
			value = v
		}
		tensors, ok := tensorsOf(value)
		if !ok {
			t.Fatalf("%s: no state dict in %s", e.Init, TypeName(p.Value))
		}
		want := e.Keys.(map[string]any)
		if len(tensors) != len(want) {
			t.Errorf("%s: %d tensors, want %d", e.Init, len(tensors), len(want))
		}
		for _, x := range tensors {
			if got := strings.ReplaceAll(fmt.Sprint(x.Shape), " ", ","); got != strings.ReplaceAll(fmt.Sprint(want[x.Name]), " ", ",") {
				t.Errorf("%s %s: shape %s, want %v", e.Init, x.Name, got, want[x.Name])
			}
		}
		p.Close()
	}
	if seen != 2 {
		t.Errorf("saw %d checkpoints, want 2", seen)
	}
	ckpt, err := ReadPT(golden.Shared(t, "parity", "inits", "L1", "init.ckpt"))
	if err != nil {
		t.Fatal(err)
	}
	if tensors, ok := tensorsOf(get(t, ckpt.Value, "state_dict")); !ok || len(tensors) != 11 {
		t.Errorf("Lightning checkpoint: %d tensors, want 11", len(tensors))
	}
}

// A whole Lightning checkpoint: what stands beside the weights is read as plain values or dropped.
func TestLightningCheckpoint(t *testing.T) {
	p, err := ReadPT("testdata/lightning.ckpt")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if tensors, ok := tensorsOf(get(t, p.Value, "state_dict")); !ok || len(tensors) != 1 ||
		tensors[0].Name != "lever_lm.pointer_selector.query_proj.weight" {
		t.Errorf("state dict %v", tensors)
	}
	if lr := get(t, get(t, p.Value, "hyper_parameters"), "lr"); lr != any(1e-4) {
		t.Errorf("lr %v", lr)
	}
	if dir := get(t, get(t, get(t, p.Value, "callbacks"), "ModelCheckpoint"), "dirpath"); dir != any("/a/b") {
		t.Errorf("dirpath %v", dir)
	}
}

// tensorsOf returns the entries of a dict whose values are all tensors (a state dict), named by their
// keys, in order; false for anything else.
func tensorsOf(v any) ([]Tensor, bool) {
	d, ok := v.(*Dict)
	if !ok || len(d.Keys) == 0 {
		return nil, false
	}
	out := make([]Tensor, 0, len(d.Keys))
	for i, k := range d.Keys {
		name, isName := k.(string)
		t, isTensor := d.Values[i].(Tensor)
		if !isName || !isTensor {
			return nil, false
		}
		t.Name = name
		out = append(out, t)
	}
	return out, true
}

func int64s(name string, shape []int, v ...int64) Tensor {
	return Tensor{Name: name, DType: I64, Shape: shape, Data: bytesOf(v)}
}
