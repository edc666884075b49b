package clip

import (
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector/pointer"
)

// adapted opens the quick folder over its own pictures and texts, as many rows, in float32 or float64.
func adapted(t *testing.T, modality, dtype string, pictures, texts []string) (*Adapted, *torchx.Params) {
	t.Helper()
	path := filepath.Join("testdata", "quick")
	o := pointer.DefaultClipOptions()
	o.Path, o.Modality, o.LoRA.Rank, o.LoRA.Alpha = &path, modality, 2, 3
	var rows []string
	for _, name := range pictures {
		rows = append(rows, filepath.Join("testdata", "pictures", name))
	}
	model, err := OpenAdapted(o, rows, texts, dtype, "cpu")
	if err != nil {
		t.Fatal(err)
	}
	params := torchx.NewParamsOf(map[string]torchx.DType{"float32": torchx.Float32, "float64": torchx.Float64}[dtype], model.Specs(), "cpu")
	if err := model.Start(params, 1); err != nil {
		t.Fatal(err)
	}
	model = model.Over(params).(*Adapted)
	t.Cleanup(func() { model.Free(); params.Free() })
	return model, params
}

// weighted backpropagates Σ cos(k)·row_k of the rows and returns them.
func weighted(model *Adapted, params *torchx.Params, rows []int64) []float64 {
	defer torchx.Scope()()
	params.ZeroGrad()
	x := model.Rows(rows, false, 0)
	weights := make([]float32, x.Numel())
	for k := range weights {
		weights[k] = float32(math.Cos(float64(k)))
	}
	torchx.Backward(torchx.Sum(torchx.Mul(x, torchx.From(weights, x.Shape()...).To(x.DType()))))
	return x.Floats()
}

// TestLikePEFT: embeddings under adapters and the adapters' gradients are those of transformers under PEFT's, computed in float64
// (scripts/peers/clip_lora_goldens.py).
func TestLikePEFT(t *testing.T) {
	type side struct {
		Rows []float64
		Grad map[string][]float64
	}
	var file struct{ Image, Text side }
	var given theirs
	golden.JSON(t, filepath.Join("testdata", "quick.json"), &given)
	golden.JSON(t, filepath.Join("testdata", "lora.json"), &file)
	want := map[string]side{"image": file.Image, "text": file.Text}
	for _, side := range []string{"image", "text"} {
		for dtype, most := range map[string]float64{"float32": 1e-5, "float64": 1e-7} { // their weights cos(k) are float32 too
			pictures, texts := given.Pictures, given.Texts
			model, params := adapted(t, side, dtype, pictures, texts)
			names := slices.Sorted(maps.Keys(want[side].Grad))
			for i, name := range names {
				values := make([]float32, len(want[side].Grad[name]))
				for k := range values {
					values[k] = float32(0.3 * math.Sin(float64(7*i+k)))
				}
				if err := params.Set(name, values); err != nil {
					t.Fatal(err)
				}
			}
			if len(names) != 16 || len(params.Names()) != 16 {
				t.Fatalf("%s: %d adapters of theirs, %d of ours, want 16", side, len(names), len(params.Names()))
			}
			rows := make([]int64, len(model.sides[0].item))
			for i := range rows {
				rows[i] = int64(i)
			}
			worst := apart(weighted(model, params, rows), want[side].Rows)
			grad := params.Grad().Floats()
			for _, name := range names {
				from, to := params.Range(name)
				worst = max(worst, apart(grad[from:to], want[side].Grad[name]))
			}
			if worst > most {
				t.Errorf("%s in %s: %.3g apart, want at most %g", side, dtype, worst, most)
			}
			t.Logf("%s in %s: %.2g apart", side, dtype, worst)
		}
	}
}

// apart is the largest difference of two lists, in units of the largest entry where that is above 1.
func apart(got, want []float64) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	worst, size := 0.0, 1.0
	for i, w := range want {
		worst, size = max(worst, math.Abs(got[i]-w)), max(size, math.Abs(w))
	}
	return worst / size
}

// TestAdaptedGradient: gradients of pictures and texts together are slopes, in float64, where rows share an item.
func TestAdaptedGradient(t *testing.T) {
	pictures, texts := []string{"tall.png", "wide.png", "tall.png"}, []string{"what is it", "the thing", "the thing"}
	model, params := adapted(t, "both", "float64", pictures, texts)
	if model.Dim() != 24 {
		t.Fatalf("%d columns", model.Dim())
	}
	start := make([]float32, params.Numel())
	for i := range start {
		start[i] = float32(0.3 * math.Sin(float64(i)))
	}
	loss := func(values []float32) float64 {
		params.SetValues(values)
		sum := 0.0
		for k, v := range weighted(model, params, []int64{0, 2, 1, 0}) {
			sum += float64(float32(math.Cos(float64(k)))) * v
		}
		return sum
	}
	loss(start)
	grad := params.Grad().Floats()
	looked := 0
	for i := 0; i < len(start); i += 29 {
		const h = 1.0 / 1024 // a power of two: the moved values are exact in float32, but for the last bits of start
		up, down := slices.Clone(start), slices.Clone(start)
		up[i] += h
		down[i] -= h
		slope := (loss(up) - loss(down)) / (float64(up[i]) - float64(down[i]))
		if d := math.Abs(slope - grad[i]); d > 1e-5*(1+math.Abs(slope)) { // a central difference of h is off by h²
			t.Errorf("parameter %d: gradient %g, slope %g", i, grad[i], slope)
		}
		looked++
	}
	if looked < 40 {
		t.Errorf("%d parameters were looked at", looked)
	}
}

// TestAdaptedMemory: what passes without gradient remember is what they would compute, bit for bit, in any order and by any bound on
// pixels, and it follows the adapters.
func TestAdaptedMemory(t *testing.T) {
	names := []string{"tall.png", "wide.png", "small.png", "exact.png"}
	model, params := adapted(t, "image", "float32", names, nil)
	rows := func(of ...int64) []float32 {
		defer torchx.Scope()()
		defer torchx.NoGrad()()
		return torchx.Data[float32](model.Rows(of, false, 0))
	}
	base, err := model.encoder.Images([][]float32{model.picture(model.sides[0].pictures, 1)})
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range rows(1) {
		if math.Abs(float64(v-base[i])) > 1e-6 {
			t.Fatalf("fresh adapters change an embedding: %v, want %v", v, base[i])
		}
	}
	values := params.Values()
	for i := range values {
		values[i] += float32(0.1 * math.Sin(float64(i)))
	}
	params.SetValues(values)
	moved := rows(0, 1, 2, 3)
	if slices.Equal(moved[12:24], base) || len(model.memos) != 2 {
		t.Fatalf("moved adapters change nothing, %d sets are remembered", len(model.memos))
	}
	model.memos, model.pixels, model.options.CacheMiB = nil, map[int][]float32{}, 0
	if other := rows(3, 0); !slices.Equal(other[:12], moved[36:]) || !slices.Equal(other[12:], moved[:12]) || len(model.pixels) != 0 {
		t.Errorf("in another order, and without pixels in memory: %v, want %v and %v", other, moved[36:], moved[:12])
	}
	clone := model.Over(params)
	defer clone.Free()
	for range 5 {
		values[0]++
		params.SetValues(values)
		rows(2)
	}
	if len(model.memos) != mostMemos {
		t.Errorf("%d sets of adapters are remembered", len(model.memos))
	}
}

// TestAdaptedChecksTable: a table of something else is named by its row.
func TestAdaptedChecksTable(t *testing.T) {
	names := []string{"tall.png", "wide.png"}
	model, _ := adapted(t, "image", "float32", names, nil)
	table := func(swap int) func(i int) []float32 {
		return func(i int) []float32 {
			row, err := model.encoder.Images([][]float32{model.picture(model.sides[0].pictures, (i+swap)%2)})
			if err != nil {
				t.Fatal(err)
			}
			return row
		}
	}
	if err := model.Check(2, table(0)); err != nil {
		t.Error(err)
	}
	if err := model.Check(2, table(1)); err == nil || !strings.Contains(err.Error(), "row 0 of data.embeddings is not what") {
		t.Errorf("rows in another order: %v", err)
	}
	o := model.options
	o.LoRA.TargetModules = []string{"q_prj"}
	if _, err := OpenAdapted(o, names, nil, "float32", "cpu"); err == nil || !strings.Contains(err.Error(), "q_proj") {
		t.Errorf("an unknown module: %v", err)
	}
}
