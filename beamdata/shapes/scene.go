package shapes

import (
	"image"
	"image/color"
	"math"
	"math/rand/v2"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/rng"
)

// ImageSize is the width and height of a scene in pixels.
const ImageSize = 64

const cells = 3 // objects stand in a grid of cells × cells places, off their centres

type shape uint8

const (
	circle shape = iota
	square
	triangle
	star
	cross
	ring
	numShapes
)

var shapeNames = [numShapes]string{"circle", "square", "triangle", "star", "cross", "ring"}

var hues = [...]struct {
	name string
	rgb  [3]float64
}{
	{"red", [3]float64{215, 35, 40}},
	{"orange", [3]float64{240, 135, 20}},
	{"yellow", [3]float64{240, 215, 30}},
	{"green", [3]float64{40, 165, 60}},
	{"blue", [3]float64{35, 85, 220}},
	{"purple", [3]float64{135, 50, 190}},
	{"pink", [3]float64{240, 70, 170}},
}

const numHues = len(hues)

// tints are background colours: pale or dark and never saturated, so that objects stand out.
var tints = [...][3]float64{
	{232, 228, 215}, {205, 216, 228}, {212, 226, 208}, {226, 206, 208}, {190, 190, 190},
	{120, 124, 132}, {88, 96, 90}, {70, 66, 74}, {150, 142, 132}, {246, 246, 246},
}

type pattern uint8

const (
	plain pattern = iota
	gradient
	stripes
	checks
	grain
	numPatterns
)

type object struct {
	shape shape
	hue   int
	x, y  float64 // centre, pixels
	r     float64 // circumscribed radius, pixels
	angle float64 // radians
	shade float64 // brightness factor
	big   bool
}

type scene struct {
	tint, tint2 [3]float64
	pattern     pattern
	period      int // of stripes and checks, pixels
	vertical    bool
	grainSeed   uint64
	objects     []object
}

// newScene draws scene id: 1 to 4 objects, some sharing shape or colour with an earlier one, on a
// background that has nothing to do with any answer.
func newScene(seed int64, id int) scene {
	r := rng.New(seed, "shapes scene", id)
	s := scene{pattern: pattern(r.IntN(int(numPatterns))), period: 4 + r.IntN(7), vertical: r.IntN(2) == 0, grainSeed: r.Uint64()}
	s.tint = tints[r.IntN(len(tints))]
	s.tint2 = s.tint // the second tone of a pattern is a lighter or darker relative of the first
	shift := 22 + 18*r.Float64()
	if r.IntN(2) == 0 || s.tint[0] > 225 {
		shift = -shift
	}
	for c := range 3 {
		s.tint2[c] += shift
	}
	n := 1 + weighted(r, 20, 35, 30, 15)
	places := r.Perm(cells * cells)
	for i := range n {
		o := object{shape: shape(r.IntN(int(numShapes))), hue: r.IntN(numHues), big: r.IntN(5) < 2}
		if i > 0 && r.IntN(100) < 35 {
			o.shape = s.objects[r.IntN(i)].shape
		}
		if i > 0 && r.IntN(100) < 15 {
			o.hue = s.objects[r.IntN(i)].hue
		}
		o.r = 5.6 + 0.8*r.Float64()
		if o.big {
			o.r = 8.6 + 0.9*r.Float64()
		}
		cell := float64(ImageSize) / cells
		slack := cell/2 - o.r - 0.4
		o.x = (float64(places[i]%cells)+0.5)*cell + (2*r.Float64()-1)*slack
		o.y = (float64(places[i]/cells)+0.5)*cell + (2*r.Float64()-1)*slack
		o.angle = (2*r.Float64() - 1) * math.Pi / 12
		o.shade = 0.82 + 0.3*r.Float64()
		s.objects = append(s.objects, o)
	}
	return s
}

// weighted draws an index in proportion to integer weights.
func weighted(r *rand.Rand, weights ...int) int {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	at := r.IntN(sum)
	for i, w := range weights {
		if at -= w; at < 0 {
			return i
		}
	}
	return len(weights) - 1
}

func (s *scene) count(is func(object) bool) int { return list.Count(s.objects, is) }

// only returns the single object that satisfies is; ok is false for no such object or several.
func (s *scene) only(is func(object) bool) (object, bool) {
	if s.count(is) != 1 {
		return object{}, false
	}
	return s.objects[slices.IndexFunc(s.objects, is)], true
}

func (s *scene) shapeIs(sh shape) func(object) bool {
	return func(o object) bool { return o.shape == sh }
}
func (s *scene) hueIs(h int) func(object) bool { return func(o object) bool { return o.hue == h } }

func (o object) rgb() color.RGBA {
	c := hues[o.hue].rgb
	return color.RGBA{level(c[0] * o.shade), level(c[1] * o.shade), level(c[2] * o.shade), 255}
}

func level(v float64) uint8 { return uint8(max(0, min(255, v)) + 0.5) }

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
