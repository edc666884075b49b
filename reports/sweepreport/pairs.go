package sweepreport

import (
	"fmt"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/reports/page"
	"fulcrum/reports/stats"
	"fulcrum/reports/sweeps"
)

// cells are the means of an objective over two keys of a grid.
type cells struct {
	x, y    *sweepAxis
	values  [][][]float64 // [row of y][column of x]: of finished jobs
	o       sweeps.Objective
	hasBest bool
	best    [2]int // row and column of the best mean, where no other cell shares it
}

const maxCells = 12 // values of a key in a table of cells

// writePairs shows the mean objective for every pair of values of the two grid keys that explain most: how they work together. It writes
// nothing where there are no two such keys, or most pairs were not run.
func (v *View) writePairs(d *page.Document) {
	if v.Opt.Study != nil || len(v.Opt.Objectives) > 1 || v.Unranked || v.Count(v.Measured) < 2 {
		return
	}
	x, y := v.gridPair()
	c := &cells{x: x, y: y, o: v.Opt.Objectives[0]}
	if x == nil || !c.fill(v) {
		return
	}
	d.Heading(2, "Two keys together")
	framed := "the best pair is bold"
	if !c.hasBest {
		framed = "several share the best"
	}
	d.Paragraph("Mean %s ± standard deviation over the finished jobs of each pair of values, and their number; %s. Where the best column is "+
		"not the same in all rows, the keys depend on each other and must be tuned together; but differences of the size of ± over √n are "+
		"noise.", page.Plain(c.o.Name), framed)
	table := page.LinesOf(stat.Indices(len(y.stops)))
	table.Column(page.TableCode([]string{y.dim.Key})+" by "+page.TableCode([]string{x.dim.Key}), func(row int) string {
		return page.Plain(y.stopName(row))
	})
	for column := range x.stops {
		table.Column(">"+page.Plain(x.stopName(column)), func(row int) string {
			values := c.values[row][column]
			if len(values) == 0 {
				return "–"
			}
			text := fmt.Sprintf("%s (%d)", meanSD(values), len(values))
			if c.hasBest && c.best == [2]int{row, column} {
				text = "**" + text + "**"
			}
			return text
		})
	}
	d.Table(table.Header, table.Rows)
}

// gridPair returns the axes of the two grid keys that explain most, or of the first two.
func (v *View) gridPair() (x, y *sweepAxis) {
	var axes []*sweepAxis
	rank := v.importanceOrder()
	for _, dim := range v.Dims {
		if a := newSweepAxis(dim, v.ByNumber); a.shared && len(a.stops) > 1 && len(a.stops) <= maxCells {
			axes = append(axes, a)
		}
	}
	slices.SortStableFunc(axes, func(a, b *sweepAxis) int { return rank[a.dim.Key] - rank[b.dim.Key] })
	if len(axes) < 2 {
		return nil, nil
	}
	return axes[0], axes[1]
}

// fill collects the jobs of each cell and says whether at least half of the cells have some.
func (c *cells) fill(v *View) bool {
	c.values = list.Make(len(c.y.stops), func(int) [][]float64 { return make([][]float64, len(c.x.stops)) })
	filled := 0
	for _, j := range v.Jobs {
		u, okX := c.x.at(j.Params)
		w, okY := c.y.at(j.Params)
		if !okX || !okY || !v.Feasible(j) {
			continue
		}
		column, _ := slices.BinarySearch(c.x.stops, u)
		row, _ := slices.BinarySearch(c.y.stops, w)
		filled += stats.BoolInt(c.values[row][column] == nil)
		c.values[row][column] = append(c.values[row][column], j.Objectives[0])
	}
	if filled < 2 || 2*filled < len(c.x.stops)*len(c.y.stops) {
		return false
	}
	most, found := 0.0, false
	for i, row := range c.values {
		for k, x := range row {
			if len(x) == 0 {
				continue
			}
			m := stat.Mean(x)
			if order := c.o.Compare(m, most); !found || order < 0 {
				most, found, c.hasBest, c.best = m, true, true, [2]int{i, k}
			} else if order == 0 {
				c.hasBest = false
			}
		}
	}
	return true
}

// stopName is the i-th value of an axis as it is written.
func (a *sweepAxis) stopName(i int) string {
	if !a.numeric {
		return a.levels[int(a.stops[i])]
	}
	return a.gridText(a.stops[i])
}
