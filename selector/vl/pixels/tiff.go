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

	tiffRGB          = 2 // photometric interpretation
	tiffUnassociated = 2 // alpha as an extra sample, by which colours are not multiplied
)

// tiffFile is the first directory of a file.
type tiffFile struct {
	data    []byte
	order   binary.ByteOrder
	entries [][]byte // of 12 bytes: tag, type, count, value or offset
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

// tiffSize returns the sides of the picture as Pillow shows it.
func tiffSize(r io.Reader) (image.Config, error) {
	data, err := io.ReadAll(r) // the directory may stand at the end
	if err != nil {
		return image.Config{}, err
	}
	t, err := readTIFF(data)
	if err != nil {
		return image.Config{}, err
	}
	c, err := tiff.DecodeConfig(bytes.NewReader(data))
	if o := t.value(tiffOrientation, 1); err == nil && o >= 5 && o <= 8 { // it lies on its side
		c.Width, c.Height = c.Height, c.Width
	}
	return c, err
}

// readTIFF reads a file's directory, and refuses what Go's decoder does not read as Pillow does.
func readTIFF(data []byte) (*tiffFile, error) {
	t, err := openTIFF(data)
	if err != nil {
		return nil, fmt.Errorf("tiff: %w", err)
	}
	bits := t.values(tiffBits)
	switch {
	case t.value(tiffPlanar, 1) != 1 && len(bits) > 1:
		return nil, errors.New("tiff: the samples of a pixel stand apart (PlanarConfiguration 2): want them together")
	case t.value(tiffFillOrder, 1) != 1:
		return nil, errors.New("tiff: bits from the lowest to the highest (FillOrder 2): want 1")
	case len(bits) > 3 && (t.value(tiffPhotometric, 0) != tiffRGB || t.value(tiffExtraSamples, 0) != tiffUnassociated):
		return nil, errors.New("tiff: ink, or colours multiplied by an alpha: want RGB, grey or a palette, an alpha apart (ExtraSamples 2)")
	}
	return t, nil
}

// decodeTIFF decodes as Pillow does, which turns the picture by its tag.
func decodeTIFF(data []byte) (*RGB, error) {
	t, err := readTIFF(data)
	if err != nil {
		return nil, err
	}
	img, err := tiff.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return ToRGB(img).turn(t.value(tiffOrientation, 1)), nil
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
