package pixels

import (
	"math/rand/v2"
	"testing"
)

// One image of a megapixel to patches: with the resize of nearly the same size, from a photograph of
// 12 megapixels, and without one.
func BenchmarkImage(b *testing.B) {
	noise := func(w, h int) *RGB {
		m := newRGB(w, h)
		r := rand.New(rand.NewPCG(1, 2))
		for i := range m.Pix {
			m.Pix[i] = uint8(r.Uint32())
		}
		return m
	}
	for _, c := range []struct {
		name string
		img  *RGB
		max  int
	}{
		{"1000x1000", noise(1000, 1000), 12845056},
		{"4000x3000 to a megapixel", noise(4000, 3000), 1003520},
		{"1008x1008 as it is", noise(1008, 1008), 12845056},
	} {
		config := DefaultConfig()
		config.MaxPixels = c.max
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := config.Image(c.img); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
