package reports

import (
	"bytes"
	"cmp"
	"image/color"
	"image/png"
	"math"
	"path/filepath"
	"slices"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"fulcrum/internal/atomicfile"
)

// figure is one plot file: a title over a grid of panels.
type figure struct {
	name  string // file name without extension
	title string
	note  string // lines under the title: what to look for
	rows  [][]*panel
	right vg.Length // margin for labels beside the panels
	tall  vg.Length // height of a panel; 0: panelHeight
	body  *artwork  // in place of panels
}

// artwork is the part of a figure below its title that is no grid of panels.
type artwork struct {
	height vg.Length
	draw   func(draw.Canvas)
}

// panel is one coordinate system.
type panel struct {
	head   string // over the panel, before its legend
	x, y   string // axis labels with units; y in the first column only
	xMin   float64
	xMax   float64
	yMin   float64 // NaN: from the data
	yMax   float64
	log    bool        // vertical axis
	share  bool        // vertical axis in percent
	xTicks plot.Ticker // nil: round numbers
	tilted bool        // names under the horizontal axis that are too long to stand side by side
	spans  []span
	layers []plot.Plotter
	legend []legendItem
	labels []rightLabel
}

type legendItem struct {
	text string
	draw func(c draw.Canvas, from, to vg.Point) // the sample; nil: none
}

// rightLabel names a horizontal line beside the panel.
type rightLabel struct {
	y     float64
	text  string
	color color.Color
}

type colour = color.NRGBA

// Colours of Okabe and Ito (2008), told apart by most colour-blind readers and in grey print.
var (
	black      = color.NRGBA{0x22, 0x22, 0x22, 0xff}
	grey       = color.NRGBA{0x66, 0x66, 0x66, 0xff}
	lightGrey  = color.NRGBA{0xdd, 0xdd, 0xdd, 0xff}
	blue       = color.NRGBA{0x00, 0x72, 0xb2, 0xff}
	vermillion = color.NRGBA{0xd5, 0x5e, 0x00, 0xff}
	green      = color.NRGBA{0x00, 0x9e, 0x73, 0xff}
	orange     = color.NRGBA{0xe6, 0x9f, 0x00, 0xff}
	purple     = color.NRGBA{0xaa, 0x4c, 0x8f, 0xff}
)

func faint(c color.NRGBA, alpha float64) color.NRGBA {
	c.A = uint8(math.Round(255 * alpha))
	return c
}

const (
	figureWidth  = 9 * vg.Inch
	titleHeight  = 46 * vg.Length(1)
	panelHeight  = 190 * vg.Length(1)
	headHeight   = 24 * vg.Length(1)
	lineHeight   = 13 * vg.Length(1)
	figureDPI    = 144
	marginBottom = 8 * vg.Length(1)
	marginLeft   = 8 * vg.Length(1)
	labelWidth   = 17 * vg.Length(1) // of a rotated axis label
	marginRight  = 18 * vg.Length(1)
	tilt         = math.Pi / 7 // of long names
)

func (f *figure) titleHeight() vg.Length {
	return titleHeight + lineHeight*vg.Length(strings.Count(f.note, "\n"))
}

func (f *figure) height() vg.Length {
	if f.body != nil {
		return f.titleHeight() + f.body.height + marginBottom
	}
	return f.titleHeight() + vg.Length(len(f.rows))*f.rowHeight() + marginBottom
}

// rowHeight is the height of a row of panels with what stands over them.
func (f *figure) rowHeight() vg.Length { return cmp.Or(f.tall, panelHeight) + headHeight }

// write draws f as plots/NAME.png and plots/NAME.svg in dir, each replaced whole.
func (f *figure) write(dir string) error {
	picture, err := f.png()
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(dir, f.name+".png"), picture, 0o644); err != nil {
		return err
	}
	svg, err := f.svg()
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, f.name+".svg"), svg, 0o644)
}

// png draws f as PNG.
func (f *figure) png() ([]byte, error) {
	canvas := vgimg.NewWith(vgimg.UseWH(figureWidth, f.height()), vgimg.UseDPI(figureDPI))
	f.draw(draw.New(canvas))
	var buf bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestSpeed} // a third of the time for a quarter more bytes
	if err := encoder.Encode(&buf, canvas.Image()); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// svg draws f as SVG. Readers without the Liberation fonts get metric-compatible ones.
func (f *figure) svg() ([]byte, error) {
	canvas := vgsvg.New(figureWidth, f.height())
	f.draw(draw.New(canvas))
	var buf bytes.Buffer
	if _, err := canvas.WriteTo(&buf); err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(buf.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;")), nil
}

// draw lays out title, panels, legends and labels.
func (f *figure) draw(c draw.Canvas) {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	left := c.Min.X + marginLeft + 4
	c.FillText(textStyle(13, true, black), vg.Point{X: left, Y: c.Max.Y - 18}, f.title)
	for i, note := range strings.Split(f.note, "\n") {
		c.FillText(textStyle(9.5, false, grey), vg.Point{X: left, Y: c.Max.Y - 34 - lineHeight*vg.Length(i)}, note)
	}
	body := c
	body.Max.Y -= f.titleHeight()
	if f.body != nil {
		body.Min.Y = body.Max.Y - f.body.height
		f.body.draw(body)
		return
	}
	for _, block := range f.blocks() {
		height := vg.Length(len(block)) * f.rowHeight()
		area := body
		area.Min.Y = body.Max.Y - height
		drawBlock(block, area, c, f.right)
		body.Max.Y = area.Min.Y
	}
}

// blocks groups rows with as many columns, whose panels are aligned with each other.
func (f *figure) blocks() [][][]*panel {
	var blocks [][][]*panel
	for _, row := range f.rows {
		if n := len(blocks); n > 0 && len(blocks[n-1][0]) == len(row) {
			blocks[n-1] = append(blocks[n-1], row)
			continue
		}
		blocks = append(blocks, [][]*panel{row})
	}
	return blocks
}

// drawBlock draws rows of panels into area; legends and labels may go beyond it, on whole.
func drawBlock(rows [][]*panel, area, whole draw.Canvas, right vg.Length) {
	plots := make([][]*plot.Plot, len(rows))
	for i, row := range rows {
		plots[i] = make([]*plot.Plot, len(row))
		for j, p := range row {
			plots[i][j] = p.plot()
		}
	}
	tiles := draw.Tiles{Rows: len(rows), Cols: len(rows[0]), PadTop: headHeight,
		PadLeft: marginLeft + labelWidth, PadRight: marginRight + right, PadX: 16, PadY: headHeight}
	canvases := plot.Align(plots, tiles, area)
	for i, row := range rows {
		for j, p := range row {
			if p.blank() {
				continue
			}
			plots[i][j].Draw(canvases[i][j])
			p.decorate(plots[i][j], plots[i][j].DataCanvas(canvases[i][j]), whole)
		}
	}
}

func (p *panel) blank() bool { return len(p.layers) == 0 }

// plot makes the gonum plot of a panel.
func (p *panel) plot() *plot.Plot {
	g := plot.New()
	g.BackgroundColor = nil
	for _, axis := range []*plot.Axis{&g.X, &g.Y} {
		axis.Padding = 0
		axis.Width = 0.6
		axis.Color = grey
		axis.Label.TextStyle.Font = sans(10.5, false)
		axis.Label.TextStyle.Color = black
		axis.Label.Padding = 3
		axis.Tick.Label.Font = sans(9.5, false)
		axis.Tick.Label.Color = black
		axis.Tick.Length = 3
		axis.Tick.Width = 0.6
		axis.Tick.Color = grey
	}
	g.X.Label.Text = p.x // the other one is drawn by decorate
	g.Add(shading{p.spans}, grid{})
	g.Add(p.layers...)
	p.scale(g)
	g.X.Tick.Marker = linearTicks{integers: p.spans != nil}
	if p.xTicks != nil {
		g.X.Tick.Marker = p.xTicks
	}
	if p.tilted {
		g.X.Tick.Label.Rotation, g.X.Tick.Label.XAlign, g.X.Tick.Label.YAlign = tilt, draw.XRight, draw.YCenter
	}
	g.Y.Tick.Marker = linearTicks{percent: p.share}
	if p.log {
		g.Y.Scale = logScale{}
		g.Y.Tick.Marker = logTicks{}
	}
	return g
}

// decorate draws what stands around the data: head, legend, names of lines at the right.
func (p *panel) decorate(g *plot.Plot, data draw.Canvas, whole draw.Canvas) {
	if p.y != "" {
		style := textStyle(10.5, false, black)
		style.Rotation, style.XAlign, style.YAlign = math.Pi/2, draw.XCenter, draw.YTop
		whole.FillText(style, vg.Point{X: whole.Min.X + marginLeft, Y: data.Center().Y}, p.y)
	}
	base := data.Max.Y + 7
	x := data.Min.X
	if p.head != "" {
		style := textStyle(10, true, black)
		whole.FillText(style, vg.Point{X: x, Y: base}, p.head)
		x += style.Width(p.head) + 14
	}
	style := textStyle(9.5, false, black)
	for _, item := range p.legend {
		if item.draw != nil {
			item.draw(whole, vg.Point{X: x, Y: base + 3}, vg.Point{X: x + 18, Y: base + 3})
			x += 22
		}
		whole.FillText(style, vg.Point{X: x, Y: base}, item.text)
		x += style.Width(item.text) + 14
	}
	p.drawLabels(g, data, whole)
}

// drawLabels names lines beside the panel, moved apart where they would touch.
func (p *panel) drawLabels(g *plot.Plot, data draw.Canvas, whole draw.Canvas) {
	const gap = 12
	labels := slices.Clone(p.labels)
	slices.SortStableFunc(labels, func(a, b rightLabel) int { return cmp.Compare(b.y, a.y) })
	at := make([]vg.Length, len(labels)) // from the top down
	for i, l := range labels {
		at[i] = min(max(data.Y(g.Y.Norm(l.y)), data.Min.Y), data.Max.Y)
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
		y := min(max(data.Y(g.Y.Norm(l.y)), data.Min.Y), data.Max.Y)
		whole.StrokeLine2(draw.LineStyle{Color: l.color, Width: 0.6}, data.Max.X+1, y, data.Max.X+9, at[i])
		whole.FillText(textStyle(9.5, false, l.color), vg.Point{X: data.Max.X + 11, Y: at[i] - 3.3}, l.text)
	}
}

func sans(size font.Length, bold bool) font.Font {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	if bold {
		f.Weight = xfont.WeightBold
	}
	return f
}

func textStyle(size font.Length, bold bool, c color.Color) draw.TextStyle {
	return draw.TextStyle{Color: c, Font: sans(size, bold), Handler: plot.DefaultTextHandler}
}
