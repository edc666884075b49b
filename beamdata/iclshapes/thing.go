package iclshapes

import (
	"math"
	"math/rand/v2"

	"fulcrum/beamdata/shapes"
)

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

// Features are blocks of indicators: what is asked, then the scene's shape, colour, ground and place. Each block has its share
// of the squared length, and the scene's blocks have most of it in what no answer depends on.
func (q question) features() []float32 {
	of, hues, tints := shapes.Solos()
	var out []float32
	for _, b := range [...]struct {
		at, size int
		share    float64
	}{{int(q.about), 2, 0.12}, {q.scene.Shape, len(of), 0.13}, {q.scene.Hue, len(hues), 0.13},
		{q.scene.Tint, tints, 0.34}, {q.place, places, 0.28}} {
		block := make([]float32, b.size)
		block[b.at] = float32(math.Sqrt(b.share))
		out = append(out, block...)
	}
	return out
}
