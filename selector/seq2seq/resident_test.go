package seq2seq

import (
	"math"
	"slices"
	"testing"

	"fulcrum/internal/torchx"
)

// TestResident: decoding with the state on the device draws what the host draws, with its log-probabilities; on CUDA, where
// there is one, too.
func TestResident(t *testing.T) {
	each(t, func(t *testing.T, model string) {
		devices := []string{"cpu"}
		if torchx.CUDAAvailable() {
			devices = append(devices, "cuda:0")
		}
		host := openTiny(t, model, nil)
		sources := unpadded(t, fixture(t, model+".forward"))
		for _, device := range devices {
			m, err := Open(host.opt, device, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(m.Free)
			for what, change := range map[string]func(*GenerateOptions){
				"greedy": func(o *GenerateOptions) { o.Temperature = 0 },
				"drawn":  func(o *GenerateOptions) {},
				"shaped": func(o *GenerateOptions) { o.TopK, o.TopP, o.RepetitionPenalty, o.Temperature = 40, 0.9, 1.2, 0.8 },
				"ends":   func(o *GenerateOptions) { o.IgnoreEOS, o.EOS = false, endsEvery(12, m.cfg.Vocab) }, // half have ended after a few steps
				"forced": func(o *GenerateOptions) { o.First, o.Last = []int64{5, 6}, []int64{7} },
			} {
				opt := greedy(40)
				opt.SamplingOptions.Temperature, opt.Seed = 1, 9
				change(&opt)
				want, err := host.Generate(sources, 4, opt)
				if err != nil {
					t.Fatal(err)
				}
				opt.OnDevice = true
				got, err := m.Generate(sources, 4, opt)
				if err != nil {
					t.Fatal(err)
				}
				for i := range want {
					for j, w := range want[i] {
						g := got[i][j]
						if !slices.Equal(g.IDs, w.IDs) || g.Finished != w.Finished || len(g.Sampled) != len(w.Sampled) {
							t.Errorf("%s %s, source %d sample %d: %v finished=%v\nwant %v finished=%v", device, what, i, j, g.IDs, g.Finished, w.IDs, w.Finished)
							continue
						}
						for k, x := range w.Sampled {
							if y := g.Sampled[k]; math.IsNaN(x) != math.IsNaN(y) || math.Abs(x-y) > 1e-3 {
								t.Errorf("%s %s, source %d sample %d token %d: log-probability %g, want %g", device, what, i, j, k, y, x)
							}
						}
					}
				}
			}
		}
	})
}

func endsEvery(n int64, vocabulary int) (ids []int64) {
	for id := int64(0); id < int64(vocabulary); id += n {
		ids = append(ids, id)
	}
	return ids
}
