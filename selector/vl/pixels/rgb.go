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
func (m *RGB) Bounds() image.Rectangle { return image.Rect(0, 0, m.W, m.H) }

// At returns the opaque colour of a pixel; outside it is transparent.
func (m *RGB) At(x, y int) color.Color {
	if x < 0 || y < 0 || x >= m.W || y >= m.H {
		return color.RGBA{}
	}
	p := m.Pix[(y*m.W+x)*3:]
	return color.RGBA{R: p[0], G: p[1], B: p[2], A: 255}
}

// ToRGB converts as convert_to_rgb of transformers 5 does with an image that Pillow opened: what is transparent lies on
// white; grey is repeated; palettes are looked up; 16-bit grey is clipped at 255 and 16-bit colours keep their high byte;
// CMYK takes Pillow's integer formula.
func ToRGB(img image.Image) *RGB {
	if m, ok := img.(*RGB); ok {
		return m
	}
	b := img.Bounds()
	out := newRGB(b.Dx(), b.Dy())
	to := out.Pix
	each := func(f func(x, y int) [3]uint8) *RGB {
		for y := b.Min.Y; y < b.Max.Y; y++ {
			for x := b.Min.X; x < b.Max.X; x++ {
				*(*[3]uint8)(to) = f(x, y)
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
				*(*[3]uint8)(to) = onWhite(from[0], from[1], from[2], from[3])
				to, from = to[3:], from[4:]
			}
		}
		return out
	case *image.RGBA:
		if m.Opaque() {
			return ToRGB(&image.NRGBA{Pix: m.Pix, Stride: m.Stride, Rect: m.Rect})
		}
	case *image.Gray16:
		return each(func(x, y int) [3]uint8 {
			v := uint8(min(m.Gray16At(x, y).Y, 255))
			return [3]uint8{v, v, v}
		})
	case *image.NRGBA64:
		return each(func(x, y int) [3]uint8 {
			p := m.Pix[m.PixOffset(x, y):]
			return onWhite(p[0], p[2], p[4], p[6])
		})
	case *image.RGBA64:
		if m.Opaque() {
			return ToRGB(&image.NRGBA64{Pix: m.Pix, Stride: m.Stride, Rect: m.Rect})
		}
	case *image.CMYK:
		return each(func(x, y int) [3]uint8 {
			p := m.Pix[m.PixOffset(x, y):]
			return fromCMYK(p[0], p[1], p[2], p[3])
		})
	case *image.YCbCr:
		return fromJPEG(m)
	case *image.NYCbCrA:
		return fromJPEG(&m.YCbCr).onWhite(m)
	}
	return each(func(x, y int) [3]uint8 {
		n := color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA)
		return onWhite(n.R, n.G, n.B, n.A)
	})
}

// onWhite lays a pixel on white in the rounding of Pillow's alpha_composite, which keeps seven bits below the byte.
func onWhite(r, g, b, alpha uint8) [3]uint8 {
	switch alpha {
	case 255:
		return [3]uint8{r, g, b}
	case 0:
		return [3]uint8{255, 255, 255}
	}
	a := uint32(alpha)
	mix := func(v uint8) uint8 {
		t := (uint32(v)*a + 255*(255-a) + 128) << 7
		return uint8((t>>8 + t) >> 15)
	}
	return [3]uint8{mix(r), mix(g), mix(b)}
}

// onWhite lays m, which has the colours of an image, on white where that image is transparent.
func (m *RGB) onWhite(of *image.NYCbCrA) *RGB {
	for y := range m.H {
		alpha := of.A[of.AOffset(of.Rect.Min.X, of.Rect.Min.Y+y):]
		line := m.Pix[y*m.W*3:][:m.W*3]
		for x := range m.W {
			p := (*[3]uint8)(line[3*x:])
			*p = onWhite(p[0], p[1], p[2], alpha[x])
		}
	}
	return m
}

// fromCMYK is (255 - k)·(255 - ink)/255 in Pillow's rounding.
func fromCMYK(c, m, y, k uint8) [3]uint8 {
	white := 255 - int(k)
	rest := func(ink uint8) uint8 {
		t := int(ink)*white + 128
		return uint8(max(white-(t>>8+t)>>8, 0))
	}
	return [3]uint8{rest(c), rest(m), rest(y)}
}
