package shapes

import (
	"image"
	"math"
	"slices"
)

// rows of sub-scanlines per pixel; horizontally coverage is exact.
const subRows = 4

func (s *scene) render() *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, ImageSize, ImageSize))
	for y := range ImageSize {
		for x := range ImageSize {
			c := s.background(x, y)
			at := img.PixOffset(x, y)
			img.Pix[at], img.Pix[at+1], img.Pix[at+2], img.Pix[at+3] = level(c[0]), level(c[1]), level(c[2]), 255
		}
	}
	for _, o := range s.objects {
		fill(img, o)
	}
	return img
}

func (s *scene) background(x, y int) [3]float64 {
	along := x
	if s.vertical {
		along = y
	}
	mix := 0.0
	switch s.pattern {
	case gradient:
		mix = float64(along) / (ImageSize - 1)
	case stripes:
		mix = float64(along / s.period % 2)
	case checks:
		mix = float64((x/s.period + y/s.period) % 2)
	case grain:
		h := (s.grainSeed + uint64(y*ImageSize+x)) * 0x9E3779B97F4A7C15
		h ^= h >> 29
		h *= 0xBF58476D1CE4E5B9
		mix = float64(h>>40) / (1 << 24)
	}
	var c [3]float64
	for k := range c {
		c[k] = s.tint[k] + float64(mix*(s.tint2[k]-s.tint[k]))
	}
	return c
}

type point struct{ x, y float64 }

// outline returns the closed polygons of an object; a pixel is inside by the even-odd rule.
func (o object) outline() [][]point {
	polar := func(n int, phase float64, radius func(i int) float64) []point {
		p := make([]point, n)
		for i := range p {
			a := o.angle + phase + 2*math.Pi*float64(i)/float64(n)
			p[i] = point{o.x + float64(radius(i)*math.Sin(a)), o.y - float64(radius(i)*math.Cos(a))}
		}
		return p
	}
	constant := func(r float64) func(int) float64 { return func(int) float64 { return r } }
	switch o.shape {
	case circle:
		return [][]point{polar(32, 0, constant(o.r*0.92))}
	case ring:
		return [][]point{polar(32, 0, constant(o.r*0.97)), polar(32, 0, constant(o.r*0.52))}
	case square:
		return [][]point{polar(4, math.Pi/4, constant(o.r*1.08))}
	case triangle:
		return [][]point{polar(3, 0, constant(o.r*1.1))}
	case star:
		return [][]point{polar(10, 0, func(i int) float64 { return o.r * []float64{1.1, 0.46}[i%2] })}
	}
	p := make([]point, 0, 12) // cross: a plus sign
	w, l := 0.34*o.r, 1.0*o.r
	sin, cos := math.Sin(o.angle), math.Cos(o.angle)
	for _, q := range [12]point{{-w, -l}, {w, -l}, {w, -w}, {l, -w}, {l, w}, {w, w}, {w, l}, {-w, l}, {-w, w}, {-l, w}, {-l, -w},
		{-w, -w}} {
		p = append(p, point{o.x + float64(q.x*cos) - float64(q.y*sin), o.y + float64(q.x*sin) + float64(q.y*cos)})
	}
	return [][]point{p}
}

// fill paints one object: sub-scanlines, their crossings with the outline sorted, spans between pairs.
func fill(img *image.RGBA, o object) {
	polygons := o.outline()
	top, bottom := max(0, int(o.y-1.2*o.r)-1), min(ImageSize-1, int(o.y+1.2*o.r)+1)
	c := o.rgb()
	var cover [ImageSize]float64
	var crossings []float64
	for y := top; y <= bottom; y++ {
		cover = [ImageSize]float64{}
		for sub := range subRows {
			at := float64(y) + (float64(sub)+0.5)/subRows
			crossings = crossings[:0]
			for _, p := range polygons {
				for i, a := range p {
					b := p[(i+1)%len(p)]
					if (a.y <= at) != (b.y <= at) {
						crossings = append(crossings, a.x+float64((at-a.y)/(b.y-a.y)*(b.x-a.x)))
					}
				}
			}
			slices.Sort(crossings)
			for i := 0; i+1 < len(crossings); i += 2 {
				addSpan(&cover, crossings[i], crossings[i+1])
			}
		}
		for x, v := range cover {
			if v == 0 {
				continue
			}
			v = min(1, v/subRows)
			at := img.PixOffset(x, y)
			for k, ink := range [3]uint8{c.R, c.G, c.B} {
				old := float64(img.Pix[at+k])
				img.Pix[at+k] = level(old + float64(v*(float64(ink)-old)))
			}
		}
	}
}

// addSpan adds the horizontal overlap of [from, to] with every pixel.
func addSpan(cover *[ImageSize]float64, from, to float64) {
	from, to = max(from, 0), min(to, ImageSize)
	for x := int(from); x < ImageSize && float64(x) < to; x++ {
		cover[x] += min(to, float64(x+1)) - max(from, float64(x))
	}
}
