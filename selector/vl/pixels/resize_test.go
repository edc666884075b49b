package pixels

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// Pillow 13's own results (testdata/make.py): smaller, larger, stretched, overshooting, one pass only, either pass first.
func TestResizeIsPillows(t *testing.T) {
	var want map[string]string // "width height width height" → digest
	golden.JSON(t, "testdata/resize.json", &want)
	if len(want) < 70 {
		t.Fatalf("%d sizes", len(want))
	}
	for size, digest := range want {
		var w, h, toW, toH int
		if _, err := fmt.Sscan(size, &w, &h, &toW, &toH); err != nil {
			t.Fatal(err)
		}
		m := newRGB(w, h)
		for i := range m.Pix {
			y, x, c := i/3/w, i/3%w, i%3
			m.Pix[i] = uint8(x*x*7 + y*13 + x*y*5 + c*101)
		}
		if got := m.Resize(toW, toH); got.W != toW || got.H != toH || hash(got.Pix) != digest {
			t.Errorf("%d×%d to %d×%d differs", w, h, toW, toH)
		}
	}
}

// The packed and grouped sums give what one sum after the other gives.
func FuzzResize(f *testing.F) {
	f.Add(uint8(5), uint8(7), uint8(9), uint8(3), uint64(1))
	f.Add(uint8(1), uint8(1), uint8(50), uint8(40), uint64(2))
	f.Add(uint8(60), uint8(33), uint8(4), uint8(2), uint64(3))
	f.Fuzz(func(t *testing.T, w, h, toW, toH uint8, seed uint64) {
		if w == 0 || h == 0 || toW == 0 || toH == 0 {
			return
		}
		m := newRGB(int(w), int(h))
		r := rand.New(rand.NewPCG(seed, 0))
		for i := range m.Pix {
			m.Pix[i] = uint8(r.IntN(2) * 255) // the largest sums
		}
		got, want := m.Resize(int(toW), int(toH)), plainResize(m, int(toW), int(toH))
		if !bytes.Equal(got.Pix, want.Pix) {
			t.Errorf("%d×%d to %d×%d differs", w, h, toW, toH)
		}
	})
}

func plainResize(m *RGB, w, h int) *RGB {
	pass := func(in *RGB, w, h int, at func(x, y, k int) int, taps func(x, y int) taps) *RGB {
		out := newRGB(w, h)
		for y := range h {
			for x := range w {
				c := taps(x, y)
				for ch := range 3 {
					sum := int64(1) << 21
					for k, weight := range c.weights {
						sum += int64(weight) * int64(in.Pix[at(x, y, c.lo+k)*3+ch])
					}
					if sum > math.MaxInt32 || sum < math.MinInt32 {
						panic("the sums of the real passes overflow")
					}
					out.Pix[(y*w+x)*3+ch] = uint8(min(max(sum>>22, 0), 255))
				}
			}
		}
		return out
	}
	horizontal := func(in *RGB) *RGB {
		columns := bicubic(in.W, w)
		return pass(in, w, in.H, func(_, y, k int) int { return y*in.W + k }, func(x, _ int) taps { return columns[x] })
	}
	vertical := func(in *RGB) *RGB {
		rows := bicubic(in.H, h)
		return pass(in, in.W, h, func(x, _, k int) int { return k*in.W + x }, func(_, y int) taps { return rows[y] })
	}
	order := []func(*RGB) *RGB{horizontal, vertical}
	if m.H > h && m.H-h > 2*(m.W-w) {
		slices.Reverse(order)
	}
	for _, pass := range order { // a pass that keeps the size changes nothing
		m = pass(m)
	}
	return m
}
