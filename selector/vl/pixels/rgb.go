package pixels

import (
	"image"
	"image/color"
)

// RGB is an image of three bytes a pixel, rows from the top.
type RGB struct {
	Pix  []uint8 // [H, W, 3]
	W, H int
}

func newRGB(w, h int) *RGB { return &RGB{Pix: make([]uint8, w*h*3), W: w, H: h} }

// ColorModel, Bounds and At make RGB an image.Image.
func (m *RGB) ColorModel() color.Model { return color.RGBAModel }

// Bounds returns the rectangle from the origin.
func (m *RGB) Bounds() image.Rectangle { return image.Rect(0, 0, m.W, m.H) }

// At returns the opaque colour of a pixel; outside it is transparent.
func (m *RGB) At(x, y int) color.Color {
	if x < 0 || y < 0 || x >= m.W || y >= m.H {
		return color.RGBA{}
	}
	p := m.Pix[(y*m.W+x)*3:]
	return color.RGBA{R: p[0], G: p[1], B: p[2], A: 255}
}

// ToRGB converts as Pillow's convert("RGB"): alpha is dropped, not blended; grey is repeated; palettes
// are looked up; 16-bit grey is clipped at 255 and 16-bit colours keep their high byte; CMYK takes
// Pillow's integer formula.
func ToRGB(img image.Image) *RGB {
	if m, ok := img.(*RGB); ok {
		return m
	}
	b := img.Bounds()
	out := newRGB(b.Dx(), b.Dy())
	to := out.Pix
	each := func(f func(x, y int) (r, g, b uint8)) *RGB {
		for y := b.Min.Y; y < b.Max.Y; y++ {
			for x := b.Min.X; x < b.Max.X; x++ {
				to[0], to[1], to[2] = f(x, y)
				to = to[3:]
			}
		}
		return out
	}
	switch m := img.(type) {
	case *image.NRGBA:
		for y := range out.H {
			from := m.Pix[y*m.Stride:][:out.W*4]
			for len(from) >= 4 {
				to[0], to[1], to[2] = from[0], from[1], from[2]
				to, from = to[3:], from[4:]
			}
		}
		return out
	case *image.RGBA:
		if m.Opaque() {
			return ToRGB(&image.NRGBA{Pix: m.Pix, Stride: m.Stride, Rect: m.Rect})
		}
	case *image.Gray:
		return each(func(x, y int) (r, g, b uint8) {
			v := m.Pix[m.PixOffset(x, y)]
			return v, v, v
		})
	case *image.Gray16:
		return each(func(x, y int) (r, g, b uint8) {
			v := uint8(min(m.Gray16At(x, y).Y, 255))
			return v, v, v
		})
	case *image.NRGBA64:
		return each(func(x, y int) (r, g, b uint8) {
			p := m.Pix[m.PixOffset(x, y):]
			return p[0], p[2], p[4]
		})
	case *image.RGBA64:
		if m.Opaque() {
			return each(func(x, y int) (r, g, b uint8) {
				p := m.Pix[m.PixOffset(x, y):]
				return p[0], p[2], p[4]
			})
		}
	case *image.Paletted:
		var palette [256][3]uint8
		for i, c := range m.Palette[:min(len(m.Palette), 256)] {
			palette[i] = straight(c)
		}
		return each(func(x, y int) (r, g, b uint8) {
			c := palette[m.Pix[m.PixOffset(x, y)]]
			return c[0], c[1], c[2]
		})
	case *image.CMYK:
		return each(func(x, y int) (r, g, b uint8) {
			p := m.Pix[m.PixOffset(x, y):]
			return cmyk(p[0], p[3]), cmyk(p[1], p[3]), cmyk(p[2], p[3])
		})
	case *image.YCbCr:
		return fromJPEG(m)
	case *image.NYCbCrA:
		return fromJPEG(&m.YCbCr)
	}
	return each(func(x, y int) (r, g, b uint8) {
		c := straight(img.At(x, y))
		return c[0], c[1], c[2]
	})
}

// straight returns a colour without its alpha, not multiplied by it.
func straight(c color.Color) [3]uint8 {
	n := color.NRGBAModel.Convert(c).(color.NRGBA)
	return [3]uint8{n.R, n.G, n.B}
}

// cmyk is (255 - k)·(255 - ink)/255 in Pillow's rounding.
func cmyk(ink, k uint8) uint8 {
	white := 255 - int(k)
	t := int(ink)*white + 128
	return uint8(max(white-(t>>8+t)>>8, 0))
}
