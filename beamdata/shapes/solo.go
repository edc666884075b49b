package shapes

import "image"

// Solo is a scene of one large object on a plain ground: a picture that stays readable when it is made small.
type Solo struct {
	Shape, Hue, Tint int     // below Solos()
	X, Y             float64 // of its centre, in parts of the picture: 0.5 = the middle
	Radius           float64 // in parts of the picture
	Angle, Shade     float64 // radians; factor of the brightness
}

// Solos says how many shapes, hues and tints there are.
func Solos() (shapes, hueNames []string, numTints int) {
	for _, h := range hues {
		hueNames = append(hueNames, h.name)
	}
	return append(shapes, shapeNames[:]...), hueNames, len(tints)
}

// Image draws it, [ImageSize, ImageSize] pixels.
func (s Solo) Image() image.Image {
	in := scene{tint: tints[s.Tint], tint2: tints[s.Tint], period: 1, objects: []object{{shape: shape(s.Shape), hue: s.Hue,
		x: s.X * ImageSize, y: s.Y * ImageSize, r: s.Radius * ImageSize, angle: s.Angle, shade: s.Shade}}}
	return in.render()
}
