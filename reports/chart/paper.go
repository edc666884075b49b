package chart

import (
	"cmp"
	"fmt"
	"slices"

	"gonum.org/v1/plot/vg"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/list"
	"fulcrum/internal/registry"
)

// Paper says which figures are drawn for a paper, and how.
type Paper struct {
	Names   []string // none: all
	Width   float64  // mm; 0: textWidth
	NoTitle bool
}

// textWidth is that of a page with margins of 20 mm, in mm.
const textWidth = 170

// Wide is the width of the figures.
func (p Paper) Wide() vg.Length { return vg.Length(cmp.Or(p.Width, textWidth)) * vg.Millimeter }

// Choose returns the figures that are asked for. One that is not there is an error, which lists those that are.
func (p Paper) Choose(figures []*Figure) ([]*Figure, error) {
	names := list.Map(figures, func(f *Figure) string { return f.Name })
	for _, name := range p.Names {
		if !slices.Contains(names, name) {
			return nil, registry.Unknown("figure", name, names)
		}
	}
	return list.Filter(figures, func(f *Figure) bool { return len(p.Names) == 0 || slices.Contains(p.Names, f.Name) }), nil
}

// Write draws figures as NAME.pdf and NAME.svg in dir.
func (p Paper) Write(dir string, figures []*Figure) (err error) {
	drawn := ""
	defer func() { // the drawing library panics
		if r := recover(); r != nil {
			err = fmt.Errorf("figure %s: %v", drawn, r)
		}
	}()
	if err := atomicfile.MkdirAll(dir); err != nil {
		return err
	}
	for _, f := range figures {
		drawn = f.Name
		f.Wide, f.Note, f.bare = p.Wide(), "", p.NoTitle // a paper has its own words below
		f.nameInLegend()
		if err := f.write(dir, ".pdf", ".svg"); err != nil {
			return fmt.Errorf("figure %s: %w", drawn, err)
		}
	}
	return nil
}

// nameInLegend takes the names of lines from beside the panels, where a narrow figure has no room, into their legends; in a wide one
// the margin shrinks to them.
func (f *Figure) nameInLegend() {
	f.Right = 0
	for _, p := range slices.Concat(f.Rows...) {
		for _, l := range p.Labels {
			if narrow(f.Wide) {
				p.Legend = append(p.Legend, LegendItem{l.Text, LineSample(Dashed(l.Color))})
			} else {
				f.Right = max(f.Right, TextStyle(9.5, false, Black).Width(l.Text))
			}
		}
		if narrow(f.Wide) {
			p.Labels = nil
		}
	}
}
