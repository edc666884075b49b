package torchx

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// drawCases are the rules of SampleTokens, alone and together.
func drawCases() []SampleOptions {
	return []SampleOptions{
		{}, {Temperature: 0.7}, {Temperature: 1.3}, {Temperature: 0.02}, {Temperature: 1e-4}, {Temperature: 50},
		{TopK: 1}, {TopK: 5}, {Temperature: 0.8, TopK: 50}, {TopK: 1 << 20}, {TopP: 1e-9}, {TopP: 0.3}, {Temperature: 1.5, TopP: 0.9}, {TopP: 1},
		{RepetitionPenalty: 1.3}, {Temperature: 0.9, TopK: 40, TopP: 0.8, RepetitionPenalty: 1.1},
	}
}

// randomLogits returns rows of logits, some of them impossible; coarse ones have many ties.
func randomLogits(r *rand.Rand, rows, size int, scale float64, coarse bool) []float32 {
	z := make([]float32, rows*size)
	for i := range z {
		x := scale * r.NormFloat64()
		if coarse {
			x = math.Round(x)
		}
		if z[i] = float32(x); r.IntN(7) == 0 && i%size != size/2 {
			z[i] = float32(math.Inf(-1))
		}
	}
	return z
}

// TestDrawTokens: the device's sampler draws what the host's draws, from the same numbers, and says the same of each draw. On
// a machine with CUDA it is held there too.
func TestDrawTokens(t *testing.T) {
	Attach(1)
	devices := []string{"cpu"}
	if CUDAAvailable() {
		devices = append(devices, "cuda:0")
	}
	for _, device := range devices {
		t.Run(device, func(t *testing.T) { drawTokens(t, device) })
	}
}

func drawTokens(t *testing.T, device string) {
	r := rand.New(rand.NewPCG(3, 4))
	draws, others := 0, 0
	for _, size := range []int{5, 640, 1024, 2500} {
		for c, opt := range drawCases() {
			for _, coarse := range []bool{false, true} {
				const rows = 24
				name := fmt.Sprintf("V=%d %+v coarse=%v", size, opt, coarse)
				z := randomLogits(r, rows, size, []float64{0.5, 3, 12}[c%3], coarse)
				suppress := []int64{1, int64(size - 1)}
				if c%2 == 0 {
					suppress = nil
				}
				seen, uniforms := make([][]int64, rows), make([]float64, rows)
				for i := range rows {
					seen[i] = []int64{int64(r.IntN(size)), int64(r.IntN(size)), int64(r.IntN(size))}
					uniforms[i] = r.Float64()
				}
				uniforms[0], uniforms[1] = 0, math.Nextafter(1, 0)
				d, o := compareDraws(t, name, device, z, size, opt, seen, suppress, uniforms)
				draws, others = draws+d, others+o
				compareDraws(t, name+" greedy", device, z, size, opt, seen, suppress, nil)
			}
		}
	}
	t.Logf("%s: %d of %d draws fell to a neighbour", device, others, draws)
	// The cumulative probability at a token's border is off by 1e-7 or so, and a row has up to 2,500 borders.
	if float64(others) > 1e-3*float64(draws) {
		t.Errorf("%d of %d draws differ", others, draws)
	}
}

// compareDraws draws on the device and on the host, and returns how many draws there were and how many differ.
func compareDraws(t *testing.T, name, device string, z []float32, size int, opt SampleOptions, seen [][]int64, suppress []int64,
	uniforms []float64) (draws, others int) {
	t.Helper()
	defer Scope()()
	rows := len(z) / size
	ids, kept, logp := SampleTokens(From(z, rows, size), opt, seen, slices.Repeat([][]int64{suppress}, rows), uniforms)
	marks := make([]bool, len(z))
	for i, list := range seen {
		for _, id := range list {
			marks[i*size+int(id)] = true
		}
	}
	var never, u Tensor
	if suppress != nil {
		never = From(suppress, len(suppress)).ToDevice(device)
	}
	if uniforms != nil {
		u = From(uniforms, rows).ToDevice(device)
	}
	there := func(x Tensor) Tensor { return x.ToDevice(device) }
	d := DrawTokens(there(From(append([]float32(nil), z...), rows, size)), opt, there(From(marks, rows, size)), never, u, true)
	got := Data[int64](d.IDs)
	for i := range got {
		switch {
		case got[i] == ids[i]:
		case uniforms == nil:
			t.Errorf("%s: row %d: token %d, want %d", name, i, got[i], ids[i])
		case uniforms[i] < 1-1e-6: // the last one above may be too improbable for float32
			others++
		}
	}
	if uniforms == nil {
		if !d.Kept.Nil() {
			t.Errorf("%s: says what greedy tokens were drawn from", name)
		}
		greedyLogP(t, name, z, size, got, d.LogP.Floats())
		return len(ids), 0
	}
	for i, x := range d.Kept.Floats() {
		if !(math.Abs(x-kept[i]) <= 2e-5) { // float32 probabilities, a penalty's rounding of logits of size 40
			t.Errorf("%s: row %d: kept %g, want %g", name, i, x, kept[i])
		}
	}
	for i, x := range d.LogP.Floats() {
		if got[i] == ids[i] && logp[i] > -80 && !(math.Abs(x-logp[i]) <= 1e-5*math.Max(1, math.Abs(logp[i]))) {
			t.Errorf("%s: row %d: token %d has log-probability %g, want %g", name, i, got[i], x, logp[i])
		}
	}
	return len(ids), others
}

// greedyLogP compares log-probabilities at temperature 1 with those of the rows.
func greedyLogP(t *testing.T, name string, z []float32, size int, ids []int64, got []float64) {
	t.Helper()
	for i, id := range ids {
		row := z[i*size : (i+1)*size]
		if want := math.Log(softmaxOf(row, 1)[id]); !(math.Abs(got[i]-want) <= 1e-5*math.Max(1, math.Abs(want))) {
			t.Errorf("%s: row %d: token %d has log-probability %g, want %g", name, i, id, got[i], want)
		}
	}
}
