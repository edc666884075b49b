package pixels

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"io"
	"slices"

	"golang.org/x/image/tiff"
)

// Tags of a TIFF file (revision 6.0, section 8 and appendix A).
const (
	tiffBits, tiffPhotometric                  = 258, 262
	tiffFillOrder, tiffOrientation, tiffPlanar = 266, 274, 284
	tiffExtraSamples                           = 338

	tiffRGB, tiffCMYK               = 2, 5 // photometric interpretations
	tiffAssociated, tiffUnassociate = 1, 2 // alpha as an extra sample: colours multiplied by it, or not
)

// tiffFile is the first directory of a file.
type tiffFile struct {
	data    []byte
	order   byteOrder
	entries [][]byte // of 12 bytes: tag, type, count, value or offset
}

type byteOrder interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

func openTIFF(data []byte) (*tiffFile, error) {
	const entry = 12
	t := &tiffFile{data: data, order: binary.LittleEndian}
	if len(data) < 8 {
		return nil, io.ErrUnexpectedEOF
	}
	if data[0] == 'M' {
		t.order = binary.BigEndian
	}
	at := int(t.order.Uint32(data[4:]))
	if at > len(data)-2 {
		return nil, io.ErrUnexpectedEOF
	}
	n := int(t.order.Uint16(data[at:]))
	if at += 2; at+n*entry > len(data) {
		return nil, io.ErrUnexpectedEOF
	}
	t.entries = slices.Collect(slices.Chunk(data[at:at+n*entry], entry))
	return t, nil
}

// values returns the numbers of a tag, nil where the file has none.
func (t *tiffFile) values(tag uint16) []int {
	for _, e := range t.entries {
		if t.order.Uint16(e) != tag {
			continue
		}
		width := map[uint16]int{1: 1, 3: 2, 4: 4}[t.order.Uint16(e[2:])] // BYTE, SHORT, LONG
		n := int(t.order.Uint32(e[4:]))
		from := e[8:]
		if width*n > len(from) {
			at := int(t.order.Uint32(from))
			if at > len(t.data) || width*n > len(t.data)-at {
				return nil
			}
			from = t.data[at:]
		}
		if width == 0 || n > 1<<10 { // no tag that is asked for has as many
			return nil
		}
		numbers := make([]int, n)
		for i := range numbers {
			switch v := from[i*width:]; width {
			case 1:
				numbers[i] = int(v[0])
			case 2:
				numbers[i] = int(t.order.Uint16(v))
			default:
				numbers[i] = int(t.order.Uint32(v))
			}
		}
		return numbers
	}
	return nil
}

// value returns the first number of a tag.
func (t *tiffFile) value(tag uint16, otherwise int) int {
	if v := t.values(tag); len(v) > 0 {
		return v[0]
	}
	return otherwise
}

// with returns the file with a directory that gives tags one value each.
func (t *tiffFile) with(values map[uint16]uint16) []byte {
	const short = 3
	entries := slices.Clone(t.entries)
	for tag, v := range values {
		e := t.order.AppendUint16(t.order.AppendUint16(nil, tag), short)
		e = t.order.AppendUint16(t.order.AppendUint32(e, 1), v)
		e = append(e, 0, 0)
		i, found := slices.BinarySearchFunc(entries, tag, func(e []byte, tag uint16) int { return int(t.order.Uint16(e)) - int(tag) })
		if found {
			entries[i] = e
		} else {
			entries = slices.Insert(entries, i, e)
		}
	}
	data := bytes.Clone(t.data)
	if len(data)%2 == 1 {
		data = append(data, 0)
	}
	t.order.PutUint32(data[4:], uint32(len(data)))
	data = t.order.AppendUint16(data, uint16(len(entries)))
	return append(append(data, slices.Concat(entries...)...), 0, 0, 0, 0)
}

// tiffSize returns the sides of the picture as Pillow shows it.
func tiffSize(r io.Reader) (image.Config, error) {
	data, err := io.ReadAll(r) // the directory may stand at the end
	if err != nil {
		return image.Config{}, err
	}
	t, data, _, err := plainTIFF(data)
	if err != nil {
		return image.Config{}, err
	}
	c, err := tiff.DecodeConfig(bytes.NewReader(data))
	if o := t.value(tiffOrientation, 1); err == nil && o >= 5 && o <= 8 { // it lies on its side
		c.Width, c.Height = c.Height, c.Width
	}
	return c, err
}

// plainTIFF returns a file as Go's decoder can read it. It knows neither CMYK nor an extra sample that is no alpha: four samples a
// pixel are read as colours with alpha, for decodeTIFF to understand.
func plainTIFF(data []byte) (t *tiffFile, plain []byte, four bool, err error) {
	if t, err = openTIFF(data); err != nil {
		return nil, nil, false, fmt.Errorf("tiff: %w", err)
	}
	bits, photometric := t.values(tiffBits), t.value(tiffPhotometric, 0)
	if t.value(tiffPlanar, 1) != 1 && len(bits) > 1 {
		return nil, nil, false, errors.New("tiff: the samples of a pixel stand apart (PlanarConfiguration 2): want them together")
	}
	if t.value(tiffFillOrder, 1) != 1 {
		return nil, nil, false, errors.New("tiff: bits from the lowest to the highest (FillOrder 2): want 1")
	}
	if len(bits) != 4 || photometric != tiffRGB && photometric != tiffCMYK {
		return t, data, false, nil
	}
	return t, t.with(map[uint16]uint16{tiffPhotometric: tiffRGB, tiffExtraSamples: tiffUnassociate}), true, nil
}

// decodeTIFF decodes as Pillow does, which turns the picture by its tag.
func decodeTIFF(data []byte) (*RGB, error) {
	t, data, four, err := plainTIFF(data)
	if err != nil {
		return nil, err
	}
	img, err := tiff.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	var out *RGB
	if four {
		out = fourSamples(img, t.meaning())
	} else {
		out = ToRGB(img)
	}
	return out.turn(t.value(tiffOrientation, 1)), nil
}

// meaning returns what the four samples of a pixel are.
func (t *tiffFile) meaning() func(a, b, c, d uint8) [3]uint8 {
	switch extra := t.values(tiffExtraSamples); {
	case t.value(tiffPhotometric, 0) == tiffCMYK:
		return fromCMYK
	case len(extra) > 0 && extra[0] == 0:
		return bare
	case len(extra) > 0 && extra[0] == tiffAssociated:
		return func(r, g, b, alpha uint8) [3]uint8 {
			if a := int(alpha); a > 0 {
				r, g, b = clamp(int(r)*255/a), clamp(int(g)*255/a), clamp(int(b)*255/a)
			}
			return onWhite(r, g, b, alpha)
		}
	}
	return onWhite
}

// fourSamples reads the bytes of each pixel, the high ones where a sample has two.
func fourSamples(img image.Image, colour func(a, b, c, d uint8) [3]uint8) *RGB {
	out := newRGB(img.Bounds().Dx(), img.Bounds().Dy())
	var pix []uint8
	width := 1
	switch m := img.(type) {
	case *image.NRGBA:
		pix = m.Pix
	case *image.NRGBA64:
		pix, width = m.Pix, 2
	}
	for to := out.Pix; len(to) > 0; to, pix = to[3:], pix[4*width:] {
		*(*[3]uint8)(to) = colour(pix[0], pix[width], pix[2*width], pix[3*width])
	}
	return out
}

// turn returns the picture of which m is stored by an orientation of TIFF and EXIF: 2 mirrored, 3 upside down, 5 to 8 on its side.
func (m *RGB) turn(orientation int) *RGB {
	if orientation < 2 || orientation > 8 {
		return m
	}
	out := newRGB(m.W, m.H)
	if orientation >= 5 {
		out = newRGB(m.H, m.W)
	}
	mirrored := slices.Contains([]int{2, 3, 6, 7}, orientation) // of these two, orientation 5 takes neither
	flipped := slices.Contains([]int{3, 4, 7, 8}, orientation)
	for y := range out.H {
		for x := range out.W {
			u, v := x, y
			if mirrored {
				u = out.W - 1 - x
			}
			if flipped {
				v = out.H - 1 - y
			}
			if orientation >= 5 {
				u, v = v, u
			}
			copy(out.Pix[(y*out.W+x)*3:][:3], m.Pix[(v*m.W+u)*3:][:3])
		}
	}
	return out
}
