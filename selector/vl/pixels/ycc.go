package pixels

import "image"

// JPEG and lossy WebP store colour as luma and two chroma planes, most often at half the size. How the
// chroma is spread over the pixels again and how it becomes RGB is not in the formats; Go repeats it,
// libjpeg and libwebp, which Pillow uses, interpolate. Here both are done as those libraries do it, in
// their integer arithmetic: on a picture with sharp colours the difference is ten levels of 255 in the
// mean. (jpeg.go decodes most JPEG files as libjpeg does. The inverse cosine transform of Go's decoder, which has the rest,
// differs by one level here and there.)

// fromJPEG converts as libjpeg: triangle filters for chroma at half the width, the height or both
// (jdsample.c), repetition for other ratios, and the 16-bit fixed point of jdcolor.c.
func fromJPEG(m *image.YCbCr) *RGB {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	out := newRGB(w, h)
	cb, cr := newChroma(m, m.Cb), newChroma(m, m.Cr)
	var spread func(c *chroma, y int)
	switch m.SubsampleRatio {
	case image.YCbCrSubsampleRatio422:
		spread = (*chroma).triangleWide
	case image.YCbCrSubsampleRatio420:
		spread = (*chroma).triangleBoth
	case image.YCbCrSubsampleRatio440:
		spread = (*chroma).triangleHigh
	default:
		spread = (*chroma).repeat
	}
	const one, round = 1 << 16, 1 << 15
	for y := range h {
		spread(cb, y)
		spread(cr, y)
		luma := m.Y[m.YOffset(m.Rect.Min.X, m.Rect.Min.Y+y):][:w]
		to := out.Pix[y*w*3:][:w*3]
		for x, l := range luma {
			l, b, r := int(l), int(cb.row[x])-128, int(cr.row[x])-128
			to[3*x] = clamp(l + (91881*r+round)>>16) // 1.402, 0.34414, 0.71414 and 1.772 times 2^16
			to[3*x+1] = clamp(l + (-22554*b-46802*r+round)>>16)
			to[3*x+2] = clamp(l + (116130*b+round)>>16)
		}
	}
	return out
}

// fromWebP converts as libwebp: chroma by a bilinear filter (upsampling.c), and the limited range of
// ITU-R BT.601 in 14-bit fixed point (yuv.h), where Go takes JPEG's full range.
func fromWebP(m *image.YCbCr) *RGB {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	out := newRGB(w, h)
	cb, cr := newChroma(m, m.Cb), newChroma(m, m.Cr)
	for y := range h {
		cb.bilinear(y)
		cr.bilinear(y)
		luma := m.Y[m.YOffset(m.Rect.Min.X, m.Rect.Min.Y+y):][:w]
		to := out.Pix[y*w*3:][:w*3]
		for x, l := range luma {
			l, u, v := int(l)*19077>>8, int(cb.row[x]), int(cr.row[x])
			to[3*x] = clamp((l + v*26149>>8 - 14234) >> 6)
			to[3*x+1] = clamp((l - u*6419>>8 - v*13320>>8 + 8708) >> 6)
			to[3*x+2] = clamp((l + u*33050>>8 - 17685) >> 6)
		}
	}
	return out
}

func clamp(v int) uint8 { return uint8(min(max(v, 0), 255)) }

// chroma is one plane of an image and the row of it that was spread last, one value a pixel.
type chroma struct {
	m     *image.YCbCr
	plane []uint8
	w, h  int     // of the plane, without the padding of the coded blocks
	row   []uint8 // as wide as the image; the triangle filters write one more where its width is odd
}

func newChroma(m *image.YCbCr, plane []uint8) *chroma {
	c := &chroma{m: m, plane: plane, w: m.Rect.Dx(), h: m.Rect.Dy()}
	c.row = make([]uint8, c.w+1)
	switch m.SubsampleRatio {
	case image.YCbCrSubsampleRatio422:
		c.w = (c.w + 1) / 2
	case image.YCbCrSubsampleRatio420:
		c.w, c.h = (c.w+1)/2, (c.h+1)/2
	case image.YCbCrSubsampleRatio440:
		c.h = (c.h + 1) / 2
	}
	return c
}

// line returns a row of the plane; rows outside stand for the nearest one.
func (c *chroma) line(y int) []uint8 {
	return c.plane[min(max(y, 0), c.h-1)*c.m.CStride:][:c.w]
}

// repeat takes the chroma of a pixel as it is stored.
func (c *chroma) repeat(y int) {
	r := c.m.Rect
	for x := range r.Dx() {
		c.row[x] = c.plane[c.m.COffset(r.Min.X+x, r.Min.Y+y)]
	}
}

// triangleWide spreads a plane of half the width: 3/4 of the nearer value, 1/4 of the farther one.
func (c *chroma) triangleWide(y int) {
	in := c.line(y)
	if c.w <= 2 {
		c.repeat(y)
		return
	}
	for i, v := range in {
		left, right := int(in[max(i-1, 0)]), int(in[min(i+1, c.w-1)])
		c.row[2*i] = uint8((3*int(v) + left + 1) >> 2)
		c.set(2*i+1, (3*int(v)+right+2)>>2)
	}
}

// triangleHigh spreads a plane of half the height.
func (c *chroma) triangleHigh(y int) {
	near, far := c.lines(y)
	round := 1 + y&1
	for i, v := range near {
		c.row[i] = uint8((3*int(v) + int(far[i]) + round) >> 2)
	}
}

// triangleBoth spreads a plane of half the width and height.
func (c *chroma) triangleBoth(y int) {
	if c.w <= 2 {
		c.repeat(y)
		return
	}
	near, far := c.lines(y)
	sum := func(i int) int {
		i = min(max(i, 0), c.w-1)
		return 3*int(near[i]) + int(far[i])
	}
	last, this := sum(0), sum(0)
	for i := range c.w {
		next := sum(i + 1)
		c.row[2*i] = uint8((3*this + last + 8) >> 4)
		c.set(2*i+1, (3*this+next+7)>>4)
		last, this = this, next
	}
}

// bilinear spreads a plane of half the width and height as libwebp does.
func (c *chroma) bilinear(y int) {
	near, far := c.lines(y)
	c.row[0] = uint8((3*int(near[0]) + int(far[0]) + 2) >> 2)
	for i := 1; i < c.w; i++ {
		n0, n1, f0, f1 := int(near[i-1]), int(near[i]), int(far[i-1]), int(far[i])
		sum := n0 + n1 + f0 + f1 + 8
		c.row[2*i-1] = uint8(((sum+2*(n1+f0))>>3 + n0) >> 1)
		c.set(2*i, ((sum+2*(n0+f1))>>3+n1)>>1)
	}
	if k := c.w - 1; 2*k+1 < c.m.Rect.Dx() {
		c.row[2*k+1] = uint8((3*int(near[k]) + int(far[k]) + 2) >> 2)
	}
}

// lines returns the rows of a plane of half the height above and below pixel row y, the nearer first.
func (c *chroma) lines(y int) (near, far []uint8) {
	return c.line(y / 2), c.line(y/2 - 1 + 2*(y&1))
}

func (c *chroma) set(x, v int) {
	if x < len(c.row) {
		c.row[x] = uint8(v)
	}
}
