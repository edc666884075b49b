package chart

import (
	"bytes"
	"image/color"
	"regexp"

	xfont "golang.org/x/image/font"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgpdf"
)

// Pdf draws f as PDF, letters as outlines: the library's fonts know no Greek. Equal figures give equal bytes, dated the same day.
func (f *Figure) Pdf() ([]byte, error) {
	k := f.scale()
	canvas := &outlined{Canvas: vgpdf.New(f.width()*vg.Length(k), f.height()*vg.Length(k))}
	canvas.Scale(k, k)
	f.draw(onWhite(draw.NewCanvas(canvas, f.width(), f.height())))
	if canvas.err != nil {
		return nil, canvas.err
	}
	var buf bytes.Buffer
	if _, err := canvas.WriteTo(&buf); err != nil {
		return nil, err
	}
	return regexp.MustCompile(`\(D:\d{14}\)`).ReplaceAll(buf.Bytes(), []byte("(D:20000101000000)")), nil
}

// outlined is a PDF whose letters are shapes.
type outlined struct {
	*vgpdf.Canvas
	buf sfnt.Buffer
	err error // the first
}

// SetColor implements vg.Canvas. The library takes colours for such that are not multiplied by their alpha.
func (c *outlined) SetColor(col color.Color) {
	c.Canvas.SetColor(straight(color.NRGBAModel.Convert(col).(color.NRGBA)))
}

type straight color.NRGBA

func (s straight) RGBA() (r, g, b, a uint32) {
	return uint32(s.R) * 0x101, uint32(s.G) * 0x101, uint32(s.B) * 0x101, uint32(s.A) * 0x101
}

func (c *outlined) FillString(face font.Face, at vg.Point, text string) {
	const units = 64 // of fixed.Int26_6, in a point; sizes are scaled up by it, so that outlines keep their detail
	ppem := fixed.Int26_6(face.Font.Size.Points() * units * units)
	length := func(x fixed.Int26_6) vg.Length { return vg.Points(float64(x) / (units * units)) }
	for _, r := range text {
		glyph, err := face.Face.GlyphIndex(&c.buf, r)
		var advance fixed.Int26_6
		if err == nil {
			advance, err = face.Face.GlyphAdvance(&c.buf, glyph, ppem, xfont.HintingNone)
		}
		var shape sfnt.Segments
		if err == nil {
			shape, err = face.Face.LoadGlyph(&c.buf, glyph, ppem, nil)
		}
		if err != nil {
			c.err = err
			return
		}
		point := func(p fixed.Point26_6) vg.Point { return vg.Point{X: at.X + length(p.X), Y: at.Y - length(p.Y)} }
		var path vg.Path
		for _, s := range shape {
			switch s.Op {
			case sfnt.SegmentOpMoveTo:
				path.Move(point(s.Args[0]))
			case sfnt.SegmentOpLineTo:
				path.Line(point(s.Args[0]))
			case sfnt.SegmentOpQuadTo:
				path.QuadTo(point(s.Args[0]), point(s.Args[1]))
			case sfnt.SegmentOpCubeTo:
				path.CubeTo(point(s.Args[0]), point(s.Args[1]), point(s.Args[2]))
			}
		}
		if len(path) > 0 {
			c.Fill(path)
		}
		at.X += length(advance)
	}
}
