package chart

import (
	"image/color"
	"math"
)

// Ramp returns colours of viridis (Smith and van der Walt 2015), from dark to light: lightness alone
// orders them, for readers who see no hues and for grey print. Its lightest end would not be seen on
// white.
func Ramp(t float64) color.NRGBA {
	anchors := []color.NRGBA{{0x44, 0x01, 0x54, 0xff}, {0x47, 0x2d, 0x7b, 0xff}, {0x3b, 0x52, 0x8b, 0xff}, {0x2c, 0x72, 0x8e, 0xff},
		{0x21, 0x91, 0x8c, 0xff}, {0x28, 0xae, 0x80, 0xff}, {0x5e, 0xc9, 0x62, 0xff}, {0xad, 0xdc, 0x30, 0xff}}
	x := Clamp01(t) * float64(len(anchors)-1)
	i := min(int(x), len(anchors)-2)
	mix := func(a, b uint8) uint8 { return uint8(math.Round(float64(a) + (x-float64(i))*(float64(b)-float64(a)))) }
	a, b := anchors[i], anchors[i+1]
	return color.NRGBA{mix(a.R, b.R), mix(a.G, b.G), mix(a.B, b.B), 0xff}
}
