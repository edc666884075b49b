package iclshapes

import (
	"math"
	"math/rand/v2"

	"fulcrum/beamdata/shapes"
)

// thing is an object in its scene.
type thing struct {
	scene shapes.Solo
	place int // 0 to 8: where it stands, row by row
}

const places = 9

// newThing draws an object of a shape and a hue, anywhere on any ground.
func newThing(r *rand.Rand, shape, hue int) thing {
	_, _, tints := shapes.Solos()
	t := thing{place: r.IntN(places)}
	t.scene = shapes.Solo{Shape: shape, Hue: hue, Tint: r.IntN(tints), Radius: 0.31 + 0.05*r.Float64(),
		X: 0.5 + 0.09*float64(t.place%3-1), Y: 0.5 + 0.09*float64(t.place/3-1),
		Angle: (2*r.Float64() - 1) * math.Pi / 12, Shade: 0.85 + 0.25*r.Float64()}
	return t
}
