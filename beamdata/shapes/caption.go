package shapes

import (
	"slices"
	"strings"

	"fulcrum/internal/list"
)

// Describe is the request that Caption answers.
const Describe = "describe the picture."

// Caption describes the scene that row is about: every object with size, colour and shape, in reading order.
func (q *Questions) Caption(row int) string {
	s := newScene(q.Options.Seed, q.Items[row].Scene)
	place := func(o object) int { // of the grid, row by row
		const cell = float64(ImageSize) / cells
		return int(o.y/cell)*cells + int(o.x/cell)
	}
	slices.SortFunc(s.objects, func(a, b object) int { return place(a) - place(b) })
	return strings.Join(list.Map(s.objects, func(o object) string {
		size := "small "
		if o.big {
			size = "big "
		}
		return size + hues[o.hue].name + " " + shapeNames[o.shape]
	}), ", ")
}
