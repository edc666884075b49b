// Package curves reads metrics.jsonl into series of bounded size, which keep minima and maxima, and holds the charts of web
// pages that draw them: those of run board and of report.html.
//
//	c := curves.New()
//	_, err := c.Update(dir, math.MaxInt64)
//	points := curves.DrawnOf(c.Steps, nil, 600, false)
package curves
