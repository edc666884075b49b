package chart

import (
	"cmp"
	"fmt"
	"path/filepath"
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

// Write draws figures as NAME.pdf and NAME.svg in dir and returns the names. One that was asked for and is not there is an error, which
// lists those that are.
func (p Paper) Write(dir string, figures []*Figure) (drawn []string, err error) {
	names := list.Map(figures, func(f *Figure) string { return f.Name })
	for _, name := range p.Names {
		if !slices.Contains(names, name) {
			return nil, registry.Unknown("figure", name, names)
		}
	}
	if err := atomicfile.MkdirAll(dir); err != nil {
		return nil, err
	}
	for _, f := range figures {
		if len(p.Names) > 0 && !slices.Contains(p.Names, f.Name) {
			continue
		}
		if err := p.write(filepath.Join(dir, f.Name), f); err != nil {
			return nil, fmt.Errorf("figure %s: %w", f.Name, err)
		}
		drawn = append(drawn, f.Name)
	}
	return drawn, nil
}

func (p Paper) write(path string, f *Figure) (err error) {
	defer func() { // the drawing library panics
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	f.Wide, f.Note, f.bare = p.Wide(), "", p.NoTitle // a paper has its own words below
	f.nameInLegend()
	for ending, drawn := range map[string]func() ([]byte, error){".pdf": f.Pdf, ".svg": f.Svg} {
		data, err := drawn()
		if err != nil {
			return err
		}
		if err := atomicfile.Write(path+ending, data, 0o644); err != nil {
			return err
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
