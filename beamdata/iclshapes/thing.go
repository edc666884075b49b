package iclshapes

import (
	"math"
	"math/rand/v2"

	"fulcrum/beamdata/shapes"
)

// thing is an object of a colour on a village's ground. What it is called is the question about it.
type thing struct {
	scene   shapes.Solo
	hue     int // below kinds
	village int // whose ground it stands on
	place   int // 0 to 8: where it stands, row by row
}

const (
	places   = 9
	villages = 3 * kinds
)

// newThing draws an object of any shape, anywhere on any village's ground.
func newThing(r *rand.Rand) thing {
	of, _, _ := shapes.Solos()
	t := thing{hue: r.IntN(kinds), village: r.IntN(villages), place: r.IntN(places)}
	t.scene = shapes.Solo{Shape: r.IntN(len(of)), Hue: [kinds]int{0, 4, 2}[t.hue], Tint: t.village, Radius: 0.31 + 0.05*r.Float64(),
		X: 0.5 + 0.09*float64(t.place%3-1), Y: 0.5 + 0.09*float64(t.place/3-1),
		Angle: (2*r.Float64() - 1) * math.Pi / 12, Shade: 0.85 + 0.25*r.Float64()}
	return t
}

// features are blocks of indicators: the scene's colour, ground and place. Each block has its share of the squared length, and most of
// it is in what no choice of demonstrations should heed.
func (t thing) features() []float32 {
	var out []float32
	for _, b := range [...]struct {
		at, size int
		share    float64
	}{{t.hue, kinds, 0.2}, {t.village, villages, 0.5}, {t.place, places, 0.3}} {
		block := make([]float32, b.size)
		block[b.at] = float32(math.Sqrt(b.share))
		out = append(out, block...)
	}
	return out
}
