package vl

import (
	"fmt"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/vl/pixels"
)

// TestVision compares the tower's arrangement (exactly) and every intermediate result (spec §2: 5e-5) with Hugging
// Face's.
func TestVision(t *testing.T) {
	arrays := fixture(t, "vision")
	m := openTiny(t, "tiny_tied", nil)
	for name, from := range map[string]string{"two_images": "two_images", "partial_windows": "big_image", "video": "video"} {
		t.Run(name, func(t *testing.T) {
			p := prompt(t, from)
			pictures := append(append([]pixels.Patches(nil), p.Images...), p.Videos...)
			l := m.cfg.Vision.layout(gridsOf(pictures))
			golden.Close(t, asFloats(l.order), asFloats(ints(t, arrays, name+".window_index")), 0)
			golden.Close(t, ends(l.windows), asFloats(ints(t, arrays, name+".cu_window_seqlens")), 0)
			golden.Close(t, ends(l.frames), asFloats(ints(t, arrays, name+".cu_seqlens")), 0)
			freqs, _ := floats(t, arrays, name+".rotary_freqs")
			var angles []float32
			for _, place := range l.places {
				for _, at := range place {
					for _, f := range frequencies(10000, m.cfg.Vision.Hidden/m.cfg.Vision.Heads/4) {
						angles = append(angles, float32(at)*f)
					}
				}
			}
			golden.Close(t, asFloats(angles), freqs, 1e-6)

			defer torchx.Scope()()
			defer torchx.NoGrad()()
			seen := 0
			out := m.see(pictures, &lora.Pass{}, func(step string, x torchx.Tensor) {
				want, _ := floats(t, arrays, name+"."+step)
				golden.Close(t, x.Floats(), want, 5e-5)
				seen++
			})
			if want := 1 + m.cfg.Vision.Depth + 1; seen != want {
				t.Errorf("compared %d intermediate results, want %d", seen, want)
			}
			want, _ := floats(t, arrays, name+".output")
			golden.Close(t, out.Floats(), want, 5e-5)
		})
	}
}

// ends returns where spans end, with the 0 that the first begins at.
func ends(spans []torchx.Span) []float64 {
	out := []float64{0}
	for _, s := range spans {
		out = append(out, float64(s.Q+s.QLen))
	}
	return out
}

func asFloats[T int64 | float32](v []T) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}

// TestPicturesTogetherAreAsAlone: several pictures in one pass do not see each other.
func TestPicturesTogetherAreAsAlone(t *testing.T) {
	m := openTiny(t, "tiny_tied", nil)
	pictures := append(prompt(t, "two_images").Images, prompt(t, "big_image").Images...)
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	together := m.see(pictures, &lora.Pass{}, nil).Floats()
	var alone []float64
	for i := range pictures {
		alone = append(alone, m.see(pictures[i:i+1], &lora.Pass{}, nil).Floats()...)
	}
	golden.Close(t, together, alone, 1e-5) // sums over other numbers of rows round differently
}

// TestPicturesInOnePass: pictures that are looked at together get the vectors that each gets alone, also where one comes twice
// or is known already, and are forgotten one by one.
func TestPicturesInOnePass(t *testing.T) {
	m, alone := openTiny(t, "tiny_tied", nil), openTiny(t, "tiny_tied", nil)
	defer torchx.Scope()()
	two, big := prompt(t, "two_images").Images, prompt(t, "big_image").Images[0]
	unnamed := two[1]
	unnamed.Key = ""
	m.remembered(two[1:], &lora.Pass{}, 0)
	pictures := []pixels.Patches{big, two[0], two[1], unnamed, two[0]}
	got, want := m.remembered(pictures, &lora.Pass{}, big.Rows+two[0].Rows), alone.look(pictures, &lora.Pass{})
	for i := range want {
		golden.Close(t, got[i].Floats(), want[i].Floats(), 1e-5)
	}
	if n := len(m.features.Values); n != 3 {
		t.Errorf("%d pictures are known, want 3", n)
	}
	m.features.Clear()
	golden.Close(t, got[3].Floats(), want[3].Floats(), 1e-5) // nobody remembers it, so nobody forgot it
}

// TestFeaturesAreRemembered: a picture with a key is looked at once, until the memory is full.
func TestFeaturesAreRemembered(t *testing.T) {
	m := openTiny(t, "tiny_tied", nil)
	picture := prompt(t, "one_image").Images[0]
	defer torchx.Scope()()
	first := m.look([]pixels.Patches{picture}, &lora.Pass{})[0].Floats()
	picture.Data = make([]float32, len(picture.Data)) // another content under the old key
	golden.Close(t, m.look([]pixels.Patches{picture}, &lora.Pass{})[0].Floats(), first, 0)
	picture.Key = ""
	if other := m.look([]pixels.Patches{picture}, &lora.Pass{})[0].Floats(); fmt.Sprint(other) == fmt.Sprint(first) {
		t.Error("a picture without a key got the vectors of another")
	}
	f := m.features
	f.Limit = f.Total - 1
	if f.Trim(); len(f.Values) != 0 {
		t.Errorf("%d pictures remembered beyond the limit", len(f.Values))
	}
	two := prompt(t, "two_images").Images
	m.look(two, &lora.Pass{})
	m.features.Limit = f.Total - 1
	if f.Trim(); len(f.Values) != 1 || f.Values[two[1].Key].Numel() == 0 {
		t.Errorf("%d of 2 pictures remembered where there is room for the last one", len(f.Values))
	}
}
