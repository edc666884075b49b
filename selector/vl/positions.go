package vl

import (
	"fmt"
	"math"

	"fulcrum/internal/list"
)

// position is where a token stands on the three axes of the rotary embedding: time, height, width.
type position [3]int

// grid is the size of an image or a video in patches, and the seconds between its frame pairs.
type grid struct {
	t, h, w int
	seconds float32 // 0 for images
}

// positions returns the place of every token of a prompt (spec §5), and the next free one: a completion goes on
// from there. Text counts up on all axes. The tokens of an image or video share what follows the text before it as
// their origin, and count time, rows and columns of merged cells from there.
func (c *Config) positions(ids []int64, images, videos []grid) (at []position, next int, err error) {
	at = make([]position, 0, len(ids))
	for i := 0; i < len(ids); {
		var g grid
		switch {
		case c.Vision == nil || ids[i] != c.ImageToken && ids[i] != c.VideoToken:
			at = append(at, position{next, next, next})
			next++
			i++
			continue
		case ids[i] == c.ImageToken:
			if len(images) == 0 {
				return nil, 0, fmt.Errorf("token %d of the prompt is an image placeholder, but there is no image left", i)
			}
			g, images = images[0], images[1:]
		default:
			if len(videos) == 0 {
				return nil, 0, fmt.Errorf("token %d of the prompt is a video placeholder, but there is no video left", i)
			}
			g, videos = videos[0], videos[1:]
		}
		rows, cols := g.h/c.Vision.Merge, g.w/c.Vision.Merge
		n := g.t * rows * cols
		k := 1 // placeholders in a row
		for k < n && i+k < len(ids) && ids[i+k] == ids[i] {
			k++
		}
		if k < n {
			return nil, 0, fmt.Errorf("the placeholder at token %d repeats %d times, want %d for a grid of %d×%d×%d patches", i, k, n,
				g.t, g.h, g.w)
		}
		last := 0
		for t := range g.t {
			time := t
			if c.Vision.TokensPerSecond > 0 {
				time = int(float32(t) * g.seconds * float32(c.Vision.TokensPerSecond)) // float32, left to right, truncated
			}
			for y := range rows {
				for x := range cols {
					at = append(at, position{next + time, next + y, next + x})
				}
			}
			last = max(time, rows-1, cols-1)
		}
		next += last + 1
		i += n
	}
	if len(images)+len(videos) > 0 {
		return nil, 0, fmt.Errorf("%d images and %d videos have no placeholder in the prompt", len(images), len(videos))
	}
	return at, next, nil
}

// rope holds cosines and sines of the decoder's rotary embedding by position; it grows as positions are asked for.
type rope struct {
	inv      []float32 // [D/2] turns per position
	axis     []int     // [D/2] the axis that a channel turns with
	cos, sin []float32 // [positions, D/2]
}

func newRope(c *Config) *rope {
	r := &rope{}
	r.inv = frequencies(c.RopeTheta, c.HeadDim/2)
	c.stretched.stretch(r.inv)
	for axis, n := range c.Sections {
		for range n {
			r.axis = append(r.axis, axis)
		}
	}
	if c.Mixed {
		for i := range r.axis {
			r.axis[i] = 0
			if axis := i % 3; i < 3*c.Sections[axis] {
				r.axis[i] = axis
			}
		}
	}
	return r
}

// frequencies returns base^(-i/n) for i = 0 … n-1, rounded where PyTorch rounds: at position 30,000 one rounding of a
// frequency is a thousandth of a radian.
func frequencies(base float64, n int) []float32 {
	return list.Make(n, func(i int) float32 { return 1 / float32(math.Pow(base, float64(float32(2*i)/float32(2*n)))) })
}

// grow extends the tables to n positions.
func (r *rope) grow(n int) {
	half := len(r.inv)
	for p := len(r.cos) / half; p < n; p++ {
		for _, inv := range r.inv {
			sin, cos := math.Sincos(float64(float32(p) * inv))
			r.cos, r.sin = append(r.cos, float32(cos)), append(r.sin, float32(sin))
		}
	}
}

// at returns cosines and sines [N, D/2] of these positions.
func (r *rope) at(places []position) (cos, sin []float32) {
	half := len(r.inv)
	top := 0
	for _, p := range places {
		top = max(top, p[0], p[1], p[2])
	}
	r.grow(top + 1)
	cos, sin = make([]float32, 0, len(places)*half), make([]float32, 0, len(places)*half)
	for _, p := range places {
		for i, axis := range r.axis {
			from := p[axis]*half + i
			cos, sin = append(cos, r.cos[from]), append(sin, r.sin[from])
		}
	}
	return cos, sin
}
