package pixels

import "math"

// Resize returns the image at width × height by Pillow 13's bicubic filter for 8-bit images, bit for bit: an
// antialiased filter (its support grows with the reduction), each pass skipped where the size stays, weights
// in 22-bit fixed point, and each pass rounded to bytes. The horizontal pass comes first, but where the height
// loses more than twice the pixels that the width does, as Pillow has it since 13.0 (src/libImaging/Resample.c);
// Pillow 12 and before always began with the rows, and differ there by up to 2 of 255.
func (m *RGB) Resize(width, height int) *RGB {
	out := m
	if lost := m.H - height; lost > 0 && lost > 2*(m.W-width) {
		out = out.vertical(height)
	}
	if width != out.W {
		out = out.horizontal(width)
	}
	if height != out.H {
		out = out.vertical(height)
	}
	return out
}

// resizeFrame is Resize for a frame of a video, whose rows are always filtered first: transformers resizes videos with torchvision
// alone, which does so. (It rounds its weights to fewer bits: half a percent of the bytes are off by 1.)
func (m *RGB) resizeFrame(width, height int) *RGB { return m.Resize(width, m.H).Resize(width, height) }

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
func clip(sum int32) uint8 { return uint8(min(max(sum>>precision, 0), 255)) }

const half = 1 << (precision - 1)

// horizontal filters the rows, two at a time and each channel apart: the two bytes at one place lie in
// the halves of a 64-bit word, so that one multiplication serves both.
func (m *RGB) horizontal(width int) *RGB {
	out := newRGB(width, m.H)
	columns := bicubic(m.W, width)
	red, green, blue := make([]int64, m.W), make([]int64, m.W), make([]int64, m.W)
	for y := 0; y < m.H; y += 2 {
		second := min(y+1, m.H-1) // the last row of an odd number stands for two
		upper, lower := m.Pix[y*m.W*3:][:m.W*3], m.Pix[second*m.W*3:][:m.W*3]
		for i := range red {
			red[i] = int64(upper[3*i]) | int64(lower[3*i])<<32
			green[i] = int64(upper[3*i+1]) | int64(lower[3*i+1])<<32
			blue[i] = int64(upper[3*i+2]) | int64(lower[3*i+2])<<32
		}
		to, to2 := out.Pix[y*width*3:][:width*3], out.Pix[second*width*3:][:width*3]
		for x := range columns {
			c := &columns[x]
			n := len(c.weights)
			reds, greens, blues := red[c.lo:][:n], green[c.lo:][:n], blue[c.lo:][:n]
			const start = half | half<<32
			r, g, b := int64(start), int64(start), int64(start)
			for k, w := range c.weights {
				r += int64(w) * reds[k]
				g += int64(w) * greens[k]
				b += int64(w) * blues[k]
			}
			to[3*x], to2[3*x] = clip2(r)
			to[3*x+1], to2[3*x+1] = clip2(g)
			to[3*x+2], to2[3*x+2] = clip2(b)
		}
	}
	return out
}

// clip2 is clip for both halves of a sum of words. A negative lower half has borrowed from the upper
// one.
func clip2(sum int64) (low, high uint8) {
	l := int32(sum)
	return clip(l), clip(int32((sum - int64(l)) >> 32))
}

// vertical filters the columns: each row of the output is a sum of whole rows, four at a time.
func (m *RGB) vertical(height int) *RGB {
	out := newRGB(m.W, height)
	stride := m.W * 3
	row := func(y int) []uint8 { return m.Pix[y*stride:][:stride] }
	sums := make([]int32, stride)
	for y, c := range bicubic(m.H, height) {
		to := out.Pix[y*stride:][:stride]
		for i := range sums {
			sums[i] = half
		}
		k := 0
		for ; k+4 <= len(c.weights); k += 4 {
			w0, w1, w2, w3 := c.weights[k], c.weights[k+1], c.weights[k+2], c.weights[k+3]
			r0, r1, r2, r3 := row(c.lo + k)[:len(sums)], row(c.lo + k + 1)[:len(sums)], row(c.lo + k + 2)[:len(sums)],
				row(c.lo + k + 3)[:len(sums)]
			for i := range sums {
				sums[i] += w0*int32(r0[i]) + w1*int32(r1[i]) + w2*int32(r2[i]) + w3*int32(r3[i])
			}
		}
		for ; k < len(c.weights); k++ {
			w, r := c.weights[k], row(c.lo + k)[:len(sums)]
			for i := range sums {
				sums[i] += w * int32(r[i])
			}
		}
		for i, s := range sums {
			to[i] = clip(s)
		}
	}
	return out
}
