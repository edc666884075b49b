package pixels

import "math"

// Resize returns the image at width × height by Pillow's bicubic filter for 8-bit images, exactly: an
// antialiased filter (its support grows with the reduction), the horizontal pass first, each pass
// skipped where the size stays, weights in 22-bit fixed point, and each pass rounded to bytes.
func (m *RGB) Resize(width, height int) *RGB {
	out := m
	if width != out.W {
		out = out.horizontal(width)
	}
	if height != out.H {
		out = out.vertical(height)
	}
	return out
}

// taps are the weights of the input samples from lo on for one output sample. 22 bits and |weights|
// that sum to less than 1.5 keep 255·weight sums inside int32.
type taps struct {
	lo      int
	weights []int32
}

const precision = 22

// bicubic returns the taps of every one of out samples over in samples.
func bicubic(in, out int) []taps {
	cubic := func(x float64) float64 { // a = -0.5
		switch x = math.Abs(x); {
		case x < 1:
			return (1.5*x-2.5)*x*x + 1
		case x < 2:
			return ((-0.5*x+2.5)*x-4)*x + 2
		}
		return 0
	}
	scale := float64(in) / float64(out)
	stretch := max(scale, 1)
	support := 2 * stretch
	all := make([]taps, out)
	var weights []float64
	for i := range all {
		center := (float64(i) + 0.5) * scale
		lo := max(0, int(center-support+0.5))
		hi := min(in, int(center+support+0.5))
		weights = weights[:0]
		sum := 0.0
		for k := lo; k < hi; k++ {
			w := cubic((float64(k) - center + 0.5) * (1 / stretch))
			weights = append(weights, w)
			sum += w
		}
		all[i] = taps{lo: lo, weights: make([]int32, len(weights))}
		for k, w := range weights {
			all[i].weights[k] = int32(math.Round(w / sum * (1 << precision))) // half away from zero
		}
	}
	return all
}

// clip rounds a fixed-point sum, which began at half, to a byte.
func clip(sum int32) uint8 {
	return uint8(min(max(sum>>precision, 0), 255))
}

const half = 1 << (precision - 1)

func (m *RGB) horizontal(width int) *RGB {
	out := newRGB(width, m.H)
	columns := bicubic(m.W, width)
	for y := range m.H {
		row := m.Pix[y*m.W*3:][:m.W*3]
		to := out.Pix[y*width*3:][:width*3]
		for x, c := range columns {
			r, g, b := int32(half), int32(half), int32(half)
			from := row[c.lo*3:][:len(c.weights)*3]
			for _, w := range c.weights {
				r += w * int32(from[0])
				g += w * int32(from[1])
				b += w * int32(from[2])
				from = from[3:]
			}
			to[3*x], to[3*x+1], to[3*x+2] = clip(r), clip(g), clip(b)
		}
	}
	return out
}

func (m *RGB) vertical(height int) *RGB {
	out := newRGB(m.W, height)
	stride := m.W * 3
	sums := make([]int32, stride)
	for y, c := range bicubic(m.H, height) {
		for i := range sums {
			sums[i] = half
		}
		for k, w := range c.weights {
			from := m.Pix[(c.lo+k)*stride:][:stride]
			for i, v := range from {
				sums[i] += w * int32(v)
			}
		}
		to := out.Pix[y*stride:][:stride]
		for i, s := range sums {
			to[i] = clip(s)
		}
	}
	return out
}
