package pixels

import (
	"encoding/binary"
	"errors"
	"image"
)

// A JPEG file fixes its coefficients, but not how the inverse cosine transform rounds: Go's decoder and libjpeg's are a level of
// 255 apart here and there, which an embedding shows in its fifth digit. So baseline and progressive files of one or three
// components are decoded here (ITU-T T.81), up to libjpeg's transform (idct.go) and the chroma filters of ycc.go. Of other kinds
// of files, and of what is wrong with one, Go's decoder has the word.

// errOther says that a file is for Go's decoder.
var errOther = errors.New("not for this decoder")

// jpegFile is a file at work.
type jpegFile struct {
	data        []byte // what is not read yet
	w, h        int
	progressive bool
	interval    int // MCUs between restart markers; 0 = none
	quant       [4]*[64]int32
	huffman     [2][4]*huffman // DC and AC
	parts       []*jpegPart
	hMax, vMax  int
	rgb         bool // three components are no luma and chroma
	scanned     bool

	bits   uint64 // the low n bits are to be read
	n      int
	padded int // of these, zeros that stand behind the end of the scan
	eobRun int
}

// jpegPart is one component: its blocks, in whole MCUs.
type jpegPart struct {
	id         byte
	table      int // of quant
	h, v       int // sampling factors
	wide, high int // blocks with padding
	coefs      [][64]int16
	quant      *[64]int32 // as it was at the part's first scan
	predicted  int        // DC
	dc, ac     *huffman
}

// decodeJPEG returns the picture as Pillow has it, or errOther.
func decodeJPEG(data []byte) (*RGB, error) {
	d := &jpegFile{data: data[2:]} // behind SOI
	for {
		for len(d.data) > 1 && d.data[0] == 0xff && d.data[1] == 0xff {
			d.data = d.data[1:]
		}
		if len(d.data) < 4 || d.data[0] != 0xff {
			if d.scanned && len(d.data) >= 2 && d.data[0] == 0xff && d.data[1] == 0xd9 {
				return d.picture()
			}
			return nil, errOther
		}
		marker, size := d.data[1], int(binary.BigEndian.Uint16(d.data[2:]))
		if marker == 0xd9 && d.scanned { // EOI, and something behind it
			return d.picture()
		}
		if size < 2 || size+2 > len(d.data) {
			return nil, errOther
		}
		body := d.data[4 : size+2]
		d.data = d.data[size+2:]
		if err := d.segment(marker, body); err != nil {
			return nil, err
		}
	}
}

// segment reads what follows a marker.
func (d *jpegFile) segment(marker byte, b []byte) error {
	switch {
	case marker == 0xdb:
		return d.readQuant(b)
	case marker == 0xc4:
		return d.readHuffman(b)
	case marker == 0xc0, marker == 0xc1, marker == 0xc2:
		d.progressive = marker == 0xc2
		return d.readFrame(b)
	case marker == 0xda:
		return d.readScan(b)
	case marker == 0xdd && len(b) == 2:
		d.interval = int(binary.BigEndian.Uint16(b))
	case marker == 0xee && len(b) >= 12 && string(b[:5]) == "Adobe":
		d.rgb = b[11] == 0
	case marker >= 0xe0 && marker <= 0xef, marker == 0xfe:
	default:
		return errOther
	}
	return nil
}

func (d *jpegFile) readQuant(b []byte) error {
	for len(b) > 0 {
		wide, id := int(b[0]>>4), int(b[0]&15)
		if wide > 1 || id > 3 || len(b) < 1+64*(wide+1) {
			return errOther
		}
		b = b[1:]
		t := new([64]int32)
		for i := range 64 {
			if t[zigzag[i]] = int32(b[0]); wide == 1 {
				t[zigzag[i]] = int32(b[0])<<8 | int32(b[1])
			}
			b = b[1+wide:]
		}
		d.quant[id] = t
	}
	return nil
}

// readFrame makes room for the coefficients.
func (d *jpegFile) readFrame(b []byte) error {
	if len(b) < 6 || b[0] != 8 || d.parts != nil || len(b) != 6+3*int(b[5]) || b[5] != 1 && b[5] != 3 {
		return errOther
	}
	d.h, d.w = int(binary.BigEndian.Uint16(b[1:])), int(binary.BigEndian.Uint16(b[3:]))
	if d.w == 0 || d.h == 0 {
		return errOther
	}
	for c := b[6:]; len(c) > 0; c = c[3:] {
		p := &jpegPart{id: c[0], h: int(c[1] >> 4), v: int(c[1] & 15), table: int(c[2])}
		if p.h < 1 || p.h > 2 || p.v < 1 || p.v > 2 || p.table > 3 || len(d.parts) > 0 && (p.h != 1 || p.v != 1 || p.id == d.parts[0].id) {
			return errOther
		}
		d.parts = append(d.parts, p)
	}
	first := d.parts[0]
	if len(d.parts) == 1 {
		first.h, first.v = 1, 1 // one component has no MCUs
	} else if d.parts[1].id == 'G' && d.parts[2].id == 'B' || d.parts[1].id == d.parts[2].id {
		return errOther
	}
	d.hMax, d.vMax = first.h, first.v
	for _, p := range d.parts {
		p.wide, p.high = up(d.w, 8*d.hMax)*p.h, up(d.h, 8*d.vMax)*p.v
		if p.wide*p.high/8 > len(d.data) { // each block takes a bit at least: a small file asks for no gigabytes
			return errOther
		}
		p.coefs = make([][64]int16, p.wide*p.high)
	}
	return nil
}

func up(n, by int) int { return (n + by - 1) / by }

// picture transforms the coefficients and joins the components.
func (d *jpegFile) picture() (*RGB, error) {
	if d.rgb && len(d.parts) == 3 {
		return nil, errOther
	}
	var planes [3][]uint8
	for i, p := range d.parts {
		if p.quant == nil { // of a component that no scan had
			return nil, errOther
		}
		stride := 8 * p.wide
		plane := make([]uint8, stride*8*p.high)
		for at := range p.coefs {
			idct(&p.coefs[at], p.quant, plane[at/p.wide*8*stride+at%p.wide*8:], stride)
		}
		planes[i] = plane
	}
	luma := d.parts[0]
	if len(d.parts) == 1 { // grey
		return ToRGB(&image.Gray{Pix: planes[0], Stride: 8 * luma.wide, Rect: image.Rect(0, 0, d.w, d.h)}), nil
	}
	ratio := map[[2]int]image.YCbCrSubsampleRatio{{1, 1}: image.YCbCrSubsampleRatio444, {2, 1}: image.YCbCrSubsampleRatio422,
		{2, 2}: image.YCbCrSubsampleRatio420, {1, 2}: image.YCbCrSubsampleRatio440}[[2]int{luma.h, luma.v}]
	return fromJPEG(&image.YCbCr{Y: planes[0], Cb: planes[1], Cr: planes[2], YStride: 8 * luma.wide, CStride: 8 * d.parts[1].wide,
		SubsampleRatio: ratio, Rect: image.Rect(0, 0, d.w, d.h)}), nil
}
