package pixels

import "image"

// JPEG and lossy WebP store colour as luma and two chroma planes, most often at half the size. How the
// chroma is spread over the pixels again and how it becomes RGB is not in the formats; Go repeats it,
// libjpeg and libwebp, which Pillow uses, interpolate. Here both are done as those libraries do it, in
// their integer arithmetic: on a picture with sharp colours the difference is ten levels of 255 in the
// mean.

// fromJPEG converts what Go's decoder has as libjpeg does.
func fromJPEG(m *image.YCbCr) *RGB {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	ratio := map[image.YCbCrSubsampleRatio][2]int{image.YCbCrSubsampleRatio444: {1, 1}, image.YCbCrSubsampleRatio422: {2, 1},
		image.YCbCrSubsampleRatio420: {2, 2}, image.YCbCrSubsampleRatio440: {1, 2}, image.YCbCrSubsampleRatio411: {4, 1},
		image.YCbCrSubsampleRatio410: {4, 2}}[m.SubsampleRatio]
	chroma := m.COffset(m.Rect.Min.X, m.Rect.Min.Y)
	return join([]*plane{
		newPlane(m.Y[m.YOffset(m.Rect.Min.X, m.Rect.Min.Y):], m.YStride, w, h, 1, 1),
		newPlane(m.Cb[chroma:], m.CStride, w, h, ratio[0], ratio[1]),
		newPlane(m.Cr[chroma:], m.CStride, w, h, ratio[0], ratio[1])}, w, h, fromYCC)
}

// colours makes rows of values, one of each component, a row of colours.
type colours func(rows [][]uint8, to []uint8)

// join spreads the planes of a picture and gives the pixels their colours.
func join(planes []*plane, w, h int, convert colours) *RGB {
	out := newRGB(w, h)
	rows := make([][]uint8, len(planes))
	for y := range h {
		for i, p := range planes {
			p.spread(y)
			rows[i] = p.row[:w]
		}
		convert(rows, out.Pix[y*w*3:][:w*3])
	}
	return out
}

// fromYCC converts luma and chroma in the 16-bit fixed point of libjpeg's jdcolor.c.
func fromYCC(rows [][]uint8, to []uint8) {
	const round = 1 << 15
	luma, blue, red := rows[0], rows[1][:len(rows[0])], rows[2][:len(rows[0])]
	for x, l := range luma {
		l, b, r := int(l), int(blue[x])-128, int(red[x])-128
		to[3*x] = clamp(l + (91881*r+round)>>16) // 1.402, 0.34414, 0.71414 and 1.772 times 2^16
		to[3*x+1] = clamp(l + (-22554*b-46802*r+round)>>16)
		to[3*x+2] = clamp(l + (116130*b+round)>>16)
	}
}

// fromWebP converts as libwebp: chroma by a bilinear filter (upsampling.c), and the limited range of
// ITU-R BT.601 in 14-bit fixed point (yuv.h), where Go takes JPEG's full range.
func fromWebP(m *image.YCbCr) *RGB {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	out := newRGB(w, h)
	cb, cr := newPlane(m.Cb, m.CStride, w, h, 2, 2), newPlane(m.Cr, m.CStride, w, h, 2, 2)
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

// plane is one component of an image and the row of it that was spread last, one value a pixel.
type plane struct {
	pix        []uint8
	stride     int
	w, h       int     // samples, without the padding of the coded blocks
	wide, high int     // pixels that a sample stands for
	row        []uint8 // as wide as the image; the triangle filters write one more where its width is odd
}

func newPlane(pix []uint8, stride, width, height, wide, high int) *plane {
	return &plane{pix: pix, stride: stride, w: up(width, wide), h: up(height, high), wide: wide, high: high, row: make([]uint8, width+1)}
}

// spread makes row y of the image as libjpeg does: triangle filters for half the width, the height or both
// (jdsample.c), repetition for other ratios and for planes of two columns.
func (p *plane) spread(y int) {
	switch {
	case p.wide == 2 && p.high == 1 && p.w > 2:
		p.triangleWide(y)
	case p.wide == 2 && p.high == 2 && p.w > 2:
		p.triangleBoth(y)
	case p.wide == 1 && p.high == 2:
		p.triangleHigh(y)
	default:
		in := p.line(y / p.high)
		for x := range len(p.row) - 1 {
			p.row[x] = in[x/p.wide]
		}
	}
}

// line returns a row of the plane; rows outside stand for the nearest one.
func (p *plane) line(y int) []uint8 { return p.pix[min(max(y, 0), p.h-1)*p.stride:][:p.w] }

// triangleWide spreads a plane of half the width: 3/4 of the nearer value, 1/4 of the farther one.
func (p *plane) triangleWide(y int) {
	in := p.line(y)
	for i, v := range in {
		left, right := int(in[max(i-1, 0)]), int(in[min(i+1, p.w-1)])
		p.row[2*i] = uint8((3*int(v) + left + 1) >> 2)
		p.set(2*i+1, (3*int(v)+right+2)>>2)
	}
}

// triangleHigh spreads a plane of half the height.
func (p *plane) triangleHigh(y int) {
	near, far := p.lines(y)
	round := 1 + y&1
	for i, v := range near {
		p.row[i] = uint8((3*int(v) + int(far[i]) + round) >> 2)
	}
}

// triangleBoth spreads a plane of half the width and height.
func (p *plane) triangleBoth(y int) {
	near, far := p.lines(y)
	sum := func(i int) int {
		i = min(max(i, 0), p.w-1)
		return 3*int(near[i]) + int(far[i])
	}
	last, this := sum(0), sum(0)
	for i := range p.w {
		next := sum(i + 1)
		p.row[2*i] = uint8((3*this + last + 8) >> 4)
		p.set(2*i+1, (3*this+next+7)>>4)
		last, this = this, next
	}
}

// bilinear spreads a plane of half the width and height as libwebp does.
func (p *plane) bilinear(y int) {
	near, far := p.lines(y)
	p.row[0] = uint8((3*int(near[0]) + int(far[0]) + 2) >> 2)
	for i := 1; i < p.w; i++ {
		n0, n1, f0, f1 := int(near[i-1]), int(near[i]), int(far[i-1]), int(far[i])
		sum := n0 + n1 + f0 + f1 + 8
		p.row[2*i-1] = uint8(((sum+2*(n1+f0))>>3 + n0) >> 1)
		p.set(2*i, ((sum+2*(n0+f1))>>3+n1)>>1)
	}
	if k := p.w - 1; 2*k+2 < len(p.row) {
		p.row[2*k+1] = uint8((3*int(near[k]) + int(far[k]) + 2) >> 2)
	}
}

// lines returns the rows of a plane of half the height above and below pixel row y, the nearer first.
func (p *plane) lines(y int) (near, far []uint8) {
	return p.line(y / 2), p.line(y/2 - 1 + 2*(y&1))
}

func (p *plane) set(x, v int) {
	if x < len(p.row) {
		p.row[x] = uint8(v)
	}
}
