// Package curves reads metrics.jsonl into series of bounded size, which keep minima and maxima, while it grows.
//
//	c := curves.New()
//	_, err := c.Update(dir, math.MaxInt64)
//	points := curves.DrawnOf(c.Steps, nil, 600, false)
package curves
