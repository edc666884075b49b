package chart

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"image/color"
	"image/png"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"fulcrum/internal/atomicfile"
	"fulcrum/reports/record"
)

// Figure is one plot file: a title over a grid of panels.
type Figure struct {
	Name  string // file name without extension
	Title string
	Note  string // lines under the title: what to look for
	Rows  [][]*Panel
	Right vg.Length // margin for labels beside the panels
	Tall  vg.Length // height of a panel; 0: PanelHeight
	Wide  vg.Length // on paper; 0: FigureWidth
	Omits string    // what a figure for a paper has no room for; "": nothing
	bare  bool      // without title
}

type Panel struct {
	Head   string // over the panel, before its legend
	X, Y   string // axis labels with units; y in the first column only
	XMin   float64
	XMax   float64
	YMin   float64 // NaN: from the data
	YMax   float64
	Log    bool        // vertical axis
	Share  bool        // vertical axis in percent
	XTicks plot.Ticker // nil: round numbers
	YTicks plot.Ticker // the same
	Tilted bool        // names under the horizontal axis that are too long to stand side by side
	Spans  []record.Span
	Layers []plot.Plotter
	Legend []LegendItem
	Labels []RightLabel
}

type LegendItem struct {
	Text string
	Draw func(c draw.Canvas, from, to vg.Point) // the sample; nil: none
}

// RightLabel names a horizontal line beside the panel.
type RightLabel struct {
	Y     float64
	Text  string
	Color color.Color
}

type Colour = color.NRGBA

// Colours of Okabe and Ito (2008), told apart by most colour-blind readers and in grey print.
var (
	Black      = color.NRGBA{0x22, 0x22, 0x22, 0xff}
	Grey       = color.NRGBA{0x66, 0x66, 0x66, 0xff}
	lightGrey  = color.NRGBA{0xdd, 0xdd, 0xdd, 0xff}
	Blue       = color.NRGBA{0x00, 0x72, 0xb2, 0xff}
	Vermillion = color.NRGBA{0xd5, 0x5e, 0x00, 0xff}
	Green      = color.NRGBA{0x00, 0x9e, 0x73, 0xff}
	Orange     = color.NRGBA{0xe6, 0x9f, 0x00, 0xff}
	Purple     = color.NRGBA{0xaa, 0x4c, 0x8f, 0xff}
)

func Faint(c color.NRGBA, alpha float64) color.NRGBA {
	c.A = uint8(math.Round(255 * alpha))
	return c
}

const (
	FigureWidth  = 9 * vg.Inch
	leastWidth   = 105 * vg.Millimeter // at 75 mm the smallest text, 8.5 points, is 6 points high
	narrowWidth  = 150 * vg.Millimeter // below it two panels stand side by side, and lines are named in the legend
	titleHeight  = 46 * vg.Length(1)
	titleLine    = 17 * vg.Length(1)
	PanelHeight  = 190 * vg.Length(1)
	headHeight   = 24 * vg.Length(1)
	lineHeight   = 13 * vg.Length(1)
	figureDPI    = 144
	marginBottom = 8 * vg.Length(1)
	MarginLeft   = 8 * vg.Length(1)
	LabelWidth   = 17 * vg.Length(1) // of a rotated axis label
	MarginRight  = 18 * vg.Length(1)
	Tilt         = math.Pi / 7 // of long names
)

func (f *Figure) titleHeight() vg.Length {
	switch {
	case f.bare:
		return 4
	case f.Wide > 0:
		return titleLine/2 + titleLine*vg.Length(len(f.titleLines()))
	}
	return titleHeight + lineHeight*vg.Length(strings.Count(f.Note, "\n"))
}

// titleLines folds the title into the width of a figure for a paper.
func (f *Figure) titleLines() []string {
	if f.Wide == 0 {
		return []string{f.Title}
	}
	style, lines := TextStyle(13, true, Black), []string{""}
	for word := range strings.FieldsSeq(f.Title) {
		last := &lines[len(lines)-1]
		if longer := strings.TrimSpace(*last + " " + word); *last == "" || style.Width(longer) <= f.width()-2*MarginLeft {
			*last = longer
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

func (f *Figure) height() vg.Length {
	return f.titleHeight() + vg.Length(len(f.Rows))*f.rowHeight() + marginBottom
}

// LayoutWidth is the width that a figure so wide on paper is laid out for, 0: in a report. One for a narrower column is that, made
// smaller by scale.
func LayoutWidth(wide vg.Length) vg.Length { return max(cmp.Or(wide, FigureWidth), leastWidth) }

// Columns is how many panels stand side by side at most in a figure so wide.
func Columns(wide vg.Length) int {
	if narrow(wide) {
		return 2
	}
	return 3
}

func narrow(wide vg.Length) bool { return LayoutWidth(wide) < narrowWidth }

func (f *Figure) width() vg.Length { return LayoutWidth(f.Wide) }

func (f *Figure) scale() float64 { return float64(cmp.Or(f.Wide, FigureWidth) / f.width()) }

func (f *Figure) rowHeight() vg.Length { return cmp.Or(f.Tall, PanelHeight) + f.headHeight() }

// headHeight has room for the longest legend of a panel.
func (f *Figure) headHeight() vg.Length {
	lines := 1
	for _, row := range f.Rows {
		for j := range row {
			lines = max(lines, len(f.legendLines(row, j)))
		}
	}
	return headHeight + lineHeight*vg.Length(lines-1)
}

// legendLines breaks the legend of a row's panel j into lines, after its head: up to the next panel that has one, or the figure's edge.
func (f *Figure) legendLines(row []*Panel, j int) [][]LegendItem {
	next := j + 1
	for next < len(row) && row[next].Head == "" && len(row[next].Legend) == 0 {
		next++
	}
	room := f.width()/vg.Length(len(row))*vg.Length(next-j) - MarginLeft - LabelWidth - tickWidth
	lines, x := [][]LegendItem{nil}, vg.Length(0)
	if row[j].Head != "" {
		x = TextStyle(10, true, Black).Width(row[j].Head) + legendGap
	}
	for _, item := range row[j].Legend {
		wide := TextStyle(9.5, false, Black).Width(item.Text) + legendGap
		if item.Draw != nil {
			wide += legendSample
		}
		if x > 0 && x+wide-legendGap > room {
			lines, x = append(lines, nil), 0
		}
		lines[len(lines)-1] = append(lines[len(lines)-1], item)
		x += wide
	}
	return lines
}

// Write draws f as plots/NAME.png and plots/NAME.svg in dir, each replaced whole.
func (f *Figure) Write(dir string) error { return f.write(dir, ".png", ".svg") }

func (f *Figure) write(dir string, endings ...string) error {
	for _, ending := range endings {
		data, err := map[string]func() ([]byte, error){".png": f.Png, ".svg": f.Svg, ".pdf": f.Pdf}[ending]()
		if err != nil {
			return err
		}
		if err := atomicfile.Write(filepath.Join(dir, f.Name+ending), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (f *Figure) Png() ([]byte, error) {
	canvas := vgimg.NewWith(vgimg.UseWH(f.width(), f.height()), vgimg.UseDPI(figureDPI))
	f.draw(draw.New(canvas)) // which is white
	var buf bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestSpeed} // a third of the time for a quarter more bytes
	if err := encoder.Encode(&buf, canvas.Image()); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// Svg draws f as SVG. Readers without the Liberation fonts get others, squeezed to the same width.
func (f *Figure) Svg() ([]byte, error) {
	k := f.scale()
	canvas := vgsvg.New(f.width()*vg.Length(k), f.height()*vg.Length(k))
	if k != 1 {
		canvas.Scale(k, k)
	}
	f.draw(onWhite(draw.NewCanvas(canvas, f.width(), f.height())))
	var buf bytes.Buffer
	if _, err := canvas.WriteTo(&buf); err != nil {
		return nil, err
	}
	svg := bytes.ReplaceAll(buf.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;"))
	return fixedWidths(svg), nil
}

// fixedWidths says of every word how wide it is in the font that the layout was made with: in a wider one, words
// would run into each other.
func fixedWidths(svg []byte) []byte {
	const begin, size, end = "<text ", "font-size:", "</text>"
	var out bytes.Buffer
	for {
		at := bytes.Index(svg, []byte(begin))
		if at < 0 {
			break
		}
		out.Write(svg[:at])
		svg = svg[at:]
		tag, rest, _ := bytes.Cut(svg, []byte(">"))
		text, _, whole := bytes.Cut(rest, []byte(end))
		_, points, sized := bytes.Cut(tag, []byte(size))
		points, _, _ = bytes.Cut(points, []byte("px"))
		height, err := strconv.ParseFloat(string(points), 64)
		out.WriteString(begin)
		svg = svg[len(begin):]
		if !whole || !sized || err != nil {
			continue
		}
		style := TextStyle(font.Length(height), bytes.Contains(tag, []byte("font-weight:bold")), Black)
		fmt.Fprintf(&out, `textLength="%.5g" lengthAdjust="spacingAndGlyphs" `, float64(style.Width(html.UnescapeString(string(text)))))
	}
	out.Write(svg)
	return out.Bytes()
}

// onWhite fills a canvas of vectors: to fill one of pixels, which is white already, takes a tenth of a drawing.
func onWhite(c draw.Canvas) draw.Canvas {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	return c
}

func (f *Figure) draw(c draw.Canvas) {
	left := c.Min.X + MarginLeft + 4
	for i, line := range f.titleLines() {
		if !f.bare {
			c.FillText(TextStyle(13, true, Black), vg.Point{X: left, Y: c.Max.Y - 18 - titleLine*vg.Length(i)}, line)
		}
	}
	for i, note := range strings.Split(f.Note, "\n") {
		c.FillText(TextStyle(9.5, false, Grey), vg.Point{X: left, Y: c.Max.Y - 34 - lineHeight*vg.Length(i)}, note)
	}
	body := c
	body.Max.Y -= f.titleHeight()
	for _, block := range f.blocks() {
		height := vg.Length(len(block)) * f.rowHeight()
		area := body
		area.Min.Y = body.Max.Y - height
		f.drawBlock(block, area, c)
		body.Max.Y = area.Min.Y
	}
}

// blocks groups rows with as many columns, whose panels are aligned with each other.
func (f *Figure) blocks() [][][]*Panel {
	var blocks [][][]*Panel
	for _, row := range f.Rows {
		if n := len(blocks); n > 0 && len(blocks[n-1][0]) == len(row) {
			blocks[n-1] = append(blocks[n-1], row)
			continue
		}
		blocks = append(blocks, [][]*Panel{row})
	}
	return blocks
}

// drawBlock draws rows of panels into area; legends and labels may go beyond it, on whole.
func (f *Figure) drawBlock(rows [][]*Panel, area, whole draw.Canvas) {
	plots := make([][]*plot.Plot, len(rows))
	for i, row := range rows {
		plots[i] = make([]*plot.Plot, len(row))
		for j, p := range row {
			plots[i][j] = p.plot()
		}
	}
	head := f.headHeight()
	tiles := draw.Tiles{Rows: len(rows), Cols: len(rows[0]), PadTop: head,
		PadLeft: MarginLeft + LabelWidth, PadRight: MarginRight + f.Right, PadX: 16, PadY: head}
	canvases := plot.Align(plots, tiles, area)
	for i, row := range rows {
		for j, p := range row {
			if size := plots[i][j].DataCanvas(canvases[i][j]).Size(); !p.Blank() {
				fit(&plots[i][j].Y, size.Y, func(string) vg.Length { return lineHeight })
				fit(&plots[i][j].X, size.X, func(label string) vg.Length {
					if p.Tilted {
						return 13 / vg.Length(math.Sin(Tilt)) / 1.6
					}
					return TextStyle(tickSize, false, Black).Width(label) + tickGap
				})
			}
		}
	}
	canvases = plot.Align(plots, tiles, area) // with the labels that are left
	for i, row := range rows {
		for j, p := range row {
			if p.Blank() {
				continue
			}
			plots[i][j].Draw(canvases[i][j])
			p.decorate(plots[i][j], plots[i][j].DataCanvas(canvases[i][j]), whole, f.legendLines(row, j))
		}
	}
}

func (p *Panel) Blank() bool { return len(p.Layers) == 0 }

func (p *Panel) plot() *plot.Plot {
	g := plot.New()
	g.BackgroundColor = nil
	for _, axis := range []*plot.Axis{&g.X, &g.Y} {
		axis.Padding = 0
		axis.Width = 0.6
		axis.Color = Grey
		axis.Label.TextStyle.Font = sans(10.5, false)
		axis.Label.TextStyle.Color = Black
		axis.Label.Padding = 3
		axis.Tick.Label.Font = sans(tickSize, false)
		axis.Tick.Label.Color = Black
		axis.Tick.Length = 3
		axis.Tick.Width = 0.6
		axis.Tick.Color = Grey
	}
	g.X.Label.Text = p.X // the other one is drawn by decorate
	g.Add(shading{p.Spans}, grid{})
	g.Add(p.Layers...)
	p.scale(g)
	g.X.Tick.Marker = LinearTicks{Integers: p.Spans != nil}
	if p.XTicks != nil {
		g.X.Tick.Marker = p.XTicks
	}
	if p.Tilted {
		g.X.Tick.Label.Rotation, g.X.Tick.Label.XAlign, g.X.Tick.Label.YAlign = Tilt, draw.XRight, draw.YCenter
	}
	g.Y.Tick.Marker = LinearTicks{Percent: p.Share}
	if p.Log {
		g.Y.Scale = logScale{}
		g.Y.Tick.Marker = LogTicks{}
	}
	if p.YTicks != nil {
		g.Y.Tick.Marker = p.YTicks
	}
	return g
}

// decorate draws what stands around the data: head, legend, names of lines at the right.
func (p *Panel) decorate(g *plot.Plot, data draw.Canvas, whole draw.Canvas, legend [][]LegendItem) {
	if p.Y != "" {
		style := TextStyle(10.5, false, Black)
		style.Rotation, style.XAlign, style.YAlign = math.Pi/2, draw.XCenter, draw.YTop
		whole.FillText(style, vg.Point{X: whole.Min.X + MarginLeft, Y: data.Center().Y}, p.Y)
	}
	for i, line := range legend {
		base, x := data.Max.Y+7+lineHeight*vg.Length(len(legend)-1-i), data.Min.X
		if i == 0 && p.Head != "" {
			style := TextStyle(10, true, Black)
			whole.FillText(style, vg.Point{X: x, Y: base}, p.Head)
			x += style.Width(p.Head) + legendGap
		}
		DrawLegend(whole, line, x, base)
	}
	p.drawLabels(g, data, whole)
}

const (
	legendGap    = 14
	legendSample = 22
	tickWidth    = 30 // of the numbers at a vertical axis
	tickSize     = 9.5
	tickGap      = 4 // between the numbers at a horizontal axis
)

// DrawLegend writes a legend in a line that begins at (x, base).
func DrawLegend(c draw.Canvas, items []LegendItem, x, base vg.Length) {
	style := TextStyle(9.5, false, Black)
	for _, item := range items {
		if item.Draw != nil {
			item.Draw(c, vg.Point{X: x, Y: base + 3}, vg.Point{X: x + 18, Y: base + 3})
			x += legendSample
		}
		c.FillText(style, vg.Point{X: x, Y: base}, item.Text)
		x += style.Width(item.Text) + legendGap
	}
}

// drawLabels names lines beside the panel, moved apart where they would touch.
func (p *Panel) drawLabels(g *plot.Plot, data draw.Canvas, whole draw.Canvas) {
	const gap = 12
	labels := slices.Clone(p.Labels)
	slices.SortStableFunc(labels, func(a, b RightLabel) int { return cmp.Compare(b.Y, a.Y) })
	at := make([]vg.Length, len(labels)) // from the top down
	for i, l := range labels {
		at[i] = min(max(data.Y(g.Y.Norm(l.Y)), data.Min.Y), data.Max.Y)
		if i > 0 {
			at[i] = min(at[i], at[i-1]-gap)
		}
	}
	for i := len(at) - 1; i >= 0; i-- { // and up again, if they ran out at the bottom
		low := data.Min.Y
		if i < len(at)-1 {
			low = at[i+1] + gap
		}
		at[i] = max(at[i], low)
	}
	for i, l := range labels {
		y := min(max(data.Y(g.Y.Norm(l.Y)), data.Min.Y), data.Max.Y)
		whole.StrokeLine2(draw.LineStyle{Color: l.Color, Width: 0.6}, data.Max.X+1, y, data.Max.X+9, at[i])
		whole.FillText(TextStyle(9.5, false, legible(l.Color)), vg.Point{X: data.Max.X + 11, Y: at[i] - 3.3}, l.Text)
	}
}

// legible darkens a colour until text in it has a contrast of 4.5:1 on white (WCAG 2.1, 1.4.3).
func legible(c color.Color) color.Color {
	n := color.NRGBAModel.Convert(c).(color.NRGBA)
	for contrast(n, color.NRGBA{0xff, 0xff, 0xff, 0xff}) < 4.5 {
		n.R, n.G, n.B = uint8(0.95*float64(n.R)), uint8(0.95*float64(n.G)), uint8(0.95*float64(n.B))
	}
	return n
}

// contrast is the ratio of the luminances of two opaque colours, from 1 to 21 (WCAG 2.1).
func contrast(a, b color.NRGBA) float64 {
	linear := func(v uint8) float64 {
		x := float64(v) / 255
		if x <= 0.04045 {
			return x / 12.92
		}
		return math.Pow((x+0.055)/1.055, 2.4)
	}
	luminance := func(c color.NRGBA) float64 {
		return 0.2126*linear(c.R) + 0.7152*linear(c.G) + 0.0722*linear(c.B) + 0.05
	}
	x, y := luminance(a), luminance(b)
	return max(x, y) / min(x, y)
}

func sans(size font.Length, bold bool) font.Font {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	if bold {
		f.Weight = xfont.WeightBold
	}
	return f
}

func TextStyle(size font.Length, bold bool, c color.Color) draw.TextStyle {
	return draw.TextStyle{Color: c, Font: sans(size, bold), Handler: plot.DefaultTextHandler}
}
