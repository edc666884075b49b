package verify

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/regular"
	"fulcrum/internal/visible"
	"fulcrum/reports/chart"
	"fulcrum/reports/compare"
	"fulcrum/reports/page"
	"fulcrum/reports/runreport"
)

// plots draws every plot that the folder holds again and compares it with the file.
func (c *runCheck) plots() error {
	n := 0
	for _, maker := range runreport.Figures() {
		drawn, err := c.comparePlot(c.dir, maker.Name, maker.Make(c.run))
		if err != nil {
			return err
		}
		n += drawn
	}
	if n > 0 {
		c.checked("%s drawn again", page.Plural(n, "plot"))
	}
	return nil
}

// comparePlot compares the files of one figure, nil when the records have nothing to show in it. It returns 1 when it
// compared one.
func (v *Verification) comparePlot(dir, name string, f *chart.Figure) (int, error) {
	n := 0
	for _, kind := range []struct {
		ending string
		draw   func(*chart.Figure) ([]byte, error)
		check  func(v *Verification, name string, stated, recomputed []byte) error
	}{{".svg", (*chart.Figure).Svg, (*Verification).compareSVG}, {".png", (*chart.Figure).Png, (*Verification).comparePNG}} {
		file := runreport.PlotsFolder + "/" + name + kind.ending
		stated, err := regular.ReadFile(filepath.Join(dir, file))
		if os.IsNotExist(err) {
			continue // the report's own list of plots says whether one is missing
		}
		if err != nil {
			return n, err
		}
		if f == nil {
			v.mismatch(Mismatch{File: file, Stated: "a plot", Recomputed: "nothing to draw"})
			continue
		}
		recomputed, err := kind.draw(f)
		if err != nil {
			return n, fmt.Errorf("plot %s: %w", name, err)
		}
		if v.drawn == nil {
			v.drawn = map[string][]byte{}
		}
		v.drawn[file] = recomputed
		if err := kind.check(v, file, stated, recomputed); err != nil {
			return n, err
		}
		n = 1
	}
	return n, nil
}

// compareSVG compares words exactly and coordinates to a fiftieth of a point: another processor may round the last
// digit otherwise. Every word that differs is named, of shapes the first.
func (v *Verification) compareSVG(name string, stated, recomputed []byte) error {
	if bytes.Equal(stated, recomputed) {
		return nil
	}
	a, b := svgWords(stated), svgWords(recomputed)
	word := func(words []string, i int) string {
		if i < len(words) {
			return strconv.Quote(words[i])
		}
		return "none"
	}
	for _, d := range compare.DiffLines(a.text, b.text) {
		for i := range max(len(d.Stated), len(d.Recomputed)) {
			at := min(d.At-1+i, len(a.line)-1)
			v.mismatch(Mismatch{File: name, Line: a.line[max(at, 0)], What: "a word", Stated: word(d.Stated, i), Recomputed: word(d.Recomputed, i)})
		}
	}
	var first *Mismatch
	more := 0
	for _, d := range compare.DiffLines(a.shapes, b.shapes) {
		for i := range max(len(d.Stated), len(d.Recomputed)) {
			if i < len(d.Stated) && i < len(d.Recomputed) && sameShape(d.Stated[i], d.Recomputed[i]) {
				continue
			}
			if first != nil {
				more++
				continue
			}
			first = &Mismatch{File: name, Line: d.At + i, What: "a shape"}
			first.Stated, first.Recomputed = d.Quoted(i, "none", 100)
		}
	}
	if first != nil {
		if more > 0 {
			first.Recomputed += fmt.Sprintf(" (and %s)", page.Plural(more, "more line"))
		}
		v.mismatch(*first)
	}
	return nil
}

// svgParts are the words of a picture, with the lines they stand in, and its lines without them.
type svgParts struct {
	text   []string
	line   []int
	shapes []string
}

// svgWords takes an SVG file apart: what stands between tags, and the rest.
func svgWords(svg []byte) svgParts {
	parts := svgParts{line: []int{}}
	var word, shape strings.Builder
	line, inside := 1, false
	for _, r := range string(svg) {
		switch {
		case r == '<':
			if text := strings.TrimSpace(word.String()); text != "" {
				parts.text, parts.line = append(parts.text, text), append(parts.line, line)
			}
			word.Reset()
			inside = true
		case r == '>':
			inside = false
		case !inside && r != '\n':
			word.WriteRune(r)
			continue
		}
		if r == '\n' {
			parts.shapes = append(parts.shapes, shape.String())
			shape.Reset()
			line++
			continue
		}
		shape.WriteRune(r)
	}
	if len(parts.line) == 0 {
		parts.line = []int{1}
	}
	parts.shapes = append(parts.shapes, shape.String())
	return parts
}

func sameShape(a, b string) bool {
	x, y := splitNumbers(a), splitNumbers(b)
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		if x[i] == y[i] {
			continue
		}
		p, errP := strconv.ParseFloat(x[i], 64)
		q, errQ := strconv.ParseFloat(y[i], 64)
		if errP != nil || errQ != nil || p-q > 0.02 || q-p > 0.02 {
			return false
		}
	}
	return true
}

// splitNumbers cuts a line before and behind its numbers.
func splitNumbers(s string) []string {
	var parts []string
	digit := func(r byte) bool { return r >= '0' && r <= '9' || r == '.' || r == '-' }
	for len(s) > 0 {
		end := 1
		for end < len(s) && digit(s[end]) == digit(s[0]) {
			end++
		}
		parts, s = append(parts, s[:end]), s[end:]
	}
	return parts
}

// pixelTolerance is how much a channel of 0 to 255 may differ: the edge of a line that another processor rounds
// otherwise.
const pixelTolerance = 8

// comparePNG compares pictures pixel by pixel.
func (v *Verification) comparePNG(name string, stated, recomputed []byte) error {
	if bytes.Equal(stated, recomputed) {
		return nil
	}
	b, err := png.Decode(bytes.NewReader(recomputed))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	a, err := png.Decode(bytes.NewReader(stated))
	if err != nil {
		v.mismatch(Mismatch{File: name, Stated: "no picture: " + err.Error(), Recomputed: "a picture"})
		return nil
	}
	if a.Bounds() != b.Bounds() {
		v.mismatch(Mismatch{File: name, Stated: fmt.Sprintf("%v pixels", a.Bounds().Size()), Recomputed: fmt.Sprintf("%v", b.Bounds().Size())})
		return nil
	}
	var where image.Rectangle
	n := 0
	for y := a.Bounds().Min.Y; y < a.Bounds().Max.Y; y++ {
		for x := a.Bounds().Min.X; x < a.Bounds().Max.X; x++ {
			if !samePixel(a, b, x, y) {
				n++
				where = where.Union(image.Rect(x, y, x+1, y+1))
			}
		}
	}
	if n > 0 {
		v.mismatch(Mismatch{File: name, Stated: fmt.Sprintf("%s that differ", page.Plural(n, "pixel")),
			Recomputed: fmt.Sprintf("others between %v and %v", where.Min, where.Max)})
	}
	return nil
}

func samePixel(a, b image.Image, x, y int) bool {
	r1, g1, b1, a1 := a.At(x, y).RGBA()
	r2, g2, b2, a2 := b.At(x, y).RGBA()
	far := func(p, q uint32) bool { return p>>8 > q>>8+pixelTolerance || q>>8 > p>>8+pixelTolerance }
	return !far(r1, r2) && !far(g1, g2) && !far(b1, b2) && !far(a1, a2)
}

// Report writes report.md again and compares it line by line.
func (c *runCheck) Report() error {
	if c.run.Setting("task") != "train" && c.run.Summary != nil && c.run.Summary.Task != "train" {
		return nil // other tasks write theirs themselves
	}
	text, err := runreport.ReportOf(c.run)
	if err != nil {
		return err
	}
	more, err := runreport.Explore(c.run)
	if err != nil {
		return err
	}
	return c.CompareReport(c.dir, text, more)
}

// CompareReport compares report.md and report.html of a folder with the text, and the page's script, that the records give.
func (v *Verification) CompareReport(dir, text string, more page.Lively) error {
	stated, err := regular.ReadFile(filepath.Join(dir, page.ReportFile))
	if os.IsNotExist(err) {
		v.mismatch(Mismatch{File: page.ReportFile, Stated: "no file", Recomputed: "a report (`run report FOLDER` writes it)"})
		return nil
	}
	if err != nil {
		return err
	}
	a, b := strings.Split(string(stated), "\n"), strings.Split(visible.Text(text), "\n")
	v.compareLines(page.ReportFile, a, b)
	v.checked("%s of %s", page.Plural(len(a)-1, "line"), page.ReportFile)
	return v.comparePage(dir, text, more)
}

// comparePage renders report.html again, with the plots drawn again, and compares it. A folder may have none.
func (v *Verification) comparePage(dir, text string, more page.Lively) error {
	stated, err := regular.ReadFile(filepath.Join(dir, page.HtmlFile))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	recomputed := page.LivelyHTML(text, func(name string) ([]byte, error) {
		if drawn, ok := v.drawn[name]; ok {
			return drawn, nil
		}
		return regular.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	}, more)
	if !bytes.Equal(stated, recomputed) {
		a, b := strings.Split(string(stated), "\n"), strings.Split(string(recomputed), "\n")
		v.compareLines(page.HtmlFile, a, b)
	}
	v.checked("%s", page.HtmlFile)
	return nil
}

// compareLines makes one mismatch of every line that differs.
func (v *Verification) compareLines(name string, stated, recomputed []string) {
	const most = 20
	n := 0
	for _, d := range compare.DiffLines(stated, recomputed) {
		for i := range max(len(d.Stated), len(d.Recomputed)) {
			if i < len(d.Stated) && i < len(d.Recomputed) && sameSVGLine(d.Stated[i], d.Recomputed[i]) {
				continue
			}
			if n++; n > most {
				continue
			}
			m := Mismatch{File: name, Line: d.At + min(i, max(len(d.Stated)-1, 0))}
			m.Stated, m.Recomputed = d.Quoted(i, "no such line", 160)
			v.mismatch(m)
		}
	}
	if n > most {
		v.mismatch(Mismatch{File: name, Stated: page.Plural(n-most, "more line"), Recomputed: "other ones"})
	}
}

// sameSVGLine allows for coordinates that another processor rounds otherwise.
func sameSVGLine(a, b string) bool {
	if !strings.HasPrefix(a, "<path ") && !strings.HasPrefix(a, "<text ") {
		return false
	}
	x, y := svgWords([]byte(a)), svgWords([]byte(b))
	return slices.Equal(x.text, y.text) && slices.EqualFunc(x.shapes, y.shapes, sameShape)
}
