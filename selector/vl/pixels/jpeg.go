package pixels

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"io"
	"slices"
)

// A JPEG file fixes its coefficients, but not how the inverse cosine transform rounds: Go's decoder and libjpeg's are a level of
// 255 apart here and there, which an embedding shows in its fifth digit. So baseline and progressive files of one, three or four
// components are decoded here (ITU-T T.81), up to libjpeg's transform and the chroma filters of ycc.go. Of other kinds
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
	jfif        bool
	adobe       int // transform of Adobe's marker; -1: the file has none
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
	d := &jpegFile{data: data[2:], adobe: -1} // behind SOI
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
		d.adobe = int(b[11])
	case marker == 0xe0 && len(b) >= 14 && string(b[:5]) == "JFIF\x00":
		d.jfif = true
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
	if len(b) < 6 || b[0] != 8 || d.parts != nil || len(b) != 6+3*int(b[5]) || b[5] != 1 && b[5] != 3 && b[5] != 4 {
		return errOther
	}
	d.h, d.w = int(binary.BigEndian.Uint16(b[1:])), int(binary.BigEndian.Uint16(b[3:]))
	if d.w == 0 || d.h == 0 {
		return errOther
	}
	for c := b[6:]; len(c) > 0; c = c[3:] {
		p := &jpegPart{id: c[0], h: int(c[1] >> 4), v: int(c[1] & 15), table: int(c[2])}
		same := func(q *jpegPart) bool { return q.id == p.id }
		if p.h < 1 || p.h > 4 || p.v < 1 || p.v > 4 || p.table > 3 || slices.ContainsFunc(d.parts, same) {
			return errOther
		}
		d.parts = append(d.parts, p)
		d.hMax, d.vMax = max(d.hMax, p.h), max(d.vMax, p.v)
	}
	if len(d.parts) == 1 { // one component has no MCUs
		d.hMax, d.vMax, d.parts[0].h, d.parts[0].v = 1, 1, 1, 1
	}
	for _, p := range d.parts {
		p.wide, p.high = up(d.w, 8*d.hMax)*p.h, up(d.h, 8*d.vMax)*p.v
		if d.hMax%p.h != 0 || d.vMax%p.v != 0 {
			return errOther // nor does libjpeg
		}
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
	var planes []*plane
	for _, p := range d.parts {
		if p.quant == nil { // of a component that no scan had
			return nil, errOther
		}
		stride := 8 * p.wide
		pix := make([]uint8, stride*8*p.high)
		for at := range p.coefs {
			idct(&p.coefs[at], p.quant, pix[at/p.wide*8*stride+at%p.wide*8:], stride)
		}
		planes = append(planes, newPlane(pix, stride, d.w, d.h, d.hMax/p.h, d.vMax/p.v))
	}
	return join(planes, d.w, d.h, d.colours()), nil
}

// colours returns what the components of a file mean, as libjpeg guesses it (jdapimin.c).
func (d *jpegFile) colours() colours {
	named := func(c string) bool { return d.parts[0].id == c[0] && d.parts[1].id == c[1] && d.parts[2].id == c[2] }
	switch {
	case len(d.parts) == 1:
		return func(rows [][]uint8, to []uint8) { interleave(to, rows[0], rows[0], rows[0]) }
	case len(d.parts) == 4:
		return d.inks
	case !d.jfif && (d.adobe == 0 || d.adobe < 0 && named("RGB")):
		return func(rows [][]uint8, to []uint8) { interleave(to, rows[0], rows[1], rows[2]) }
	}
	return fromYCC
}

func interleave(to, r, g, b []uint8) {
	for x := range r {
		to[3*x], to[3*x+1], to[3*x+2] = r[x], g[x], b[x]
	}
}

// inks converts CMYK, or what Adobe makes of it, YCCK. Adobe writes inks inverted, and Pillow takes every file's to be so.
func (d *jpegFile) inks(rows [][]uint8, to []uint8) {
	if d.adobe <= 0 {
		for x := range rows[0] {
			*(*[3]uint8)(to[3*x:]) = fromCMYK(^rows[0][x], ^rows[1][x], ^rows[2][x], ^rows[3][x])
		}
		return
	}
	fromYCC(rows, to) // inks that were inverted twice
	for x, k := range rows[3] {
		ink := (*[3]uint8)(to[3*x:])
		*ink = fromCMYK(ink[0], ink[1], ink[2], ^k)
	}
}

// jpegSize returns the sides that a file's frame header has.
func jpegSize(r io.Reader) (image.Config, error) {
	b := bufio.NewReader(r)
	_, _ = b.Discard(2) // SOI
	for {
		head, err := b.Peek(4)
		switch {
		case err != nil:
			return image.Config{}, fmt.Errorf("JPEG without the header of a frame: %w", io.ErrUnexpectedEOF)
		case head[0] != 0xff || head[1] == 0xff: // filling, which Go's decoder passes too
			_, _ = b.Discard(1)
			continue
		case head[1] == 0x01 || head[1]&^7 == 0xd0: // markers without a segment
			_, _ = b.Discard(2)
			continue
		}
		if head[1]&^15 == 0xc0 && head[1]&3 != 0 || head[1] == 0xc0 { // SOF; 0xc4, 0xc8 and 0xcc are none
			frame, err := b.Peek(9)
			if err != nil {
				return image.Config{}, fmt.Errorf("JPEG: frame: %w", io.ErrUnexpectedEOF)
			}
			if kind, bits := head[1], frame[4]; kind > 0xc2 || bits != 8 {
				return image.Config{}, fmt.Errorf("JPEG of %d bits, frame %d: want 8 bits, baseline or progressive (frame 0 to 2)", bits, kind-0xc0)
			}
			return image.Config{Height: int(binary.BigEndian.Uint16(frame[5:])), Width: int(binary.BigEndian.Uint16(frame[7:]))}, nil
		}
		if _, err := b.Discard(2 + max(2, int(binary.BigEndian.Uint16(head[2:])))); err != nil {
			return image.Config{}, fmt.Errorf("JPEG without the header of a frame: %w", io.ErrUnexpectedEOF)
		}
	}
}

// idct is the inverse cosine transform of libjpeg (jidctint.c, the method of Loeffler, Ligtenberg and Moschytz 1989 in 13-bit fixed
// point, columns first), of a block of coefficients times their quantisation, into 8×8 bytes.
func idct(coefs *[64]int16, quant *[64]int32, to []uint8, stride int) {
	var work [64]int32
	for x := range 8 {
		c := (*[57]int16)(coefs[x:]) // the column is every eighth
		if c[8]|c[16]|c[24]|c[32]|c[40]|c[48]|c[56] == 0 {
			v := int32(c[0]) * quant[x] << 2 // two bits more than a sample has
			for y := x; y < 64; y += 8 {
				work[y] = v
			}
			continue
		}
		q := (*[57]int32)(quant[x:])
		out := butterfly(int32(c[0])*q[0], int32(c[8])*q[8], int32(c[16])*q[16], int32(c[24])*q[24], int32(c[32])*q[32],
			int32(c[40])*q[40], int32(c[48])*q[48], int32(c[56])*q[56])
		for y, v := range out {
			work[8*y+x] = (v + 1<<10) >> 11
		}
	}
	for y := range 8 {
		r := (*[8]int32)(work[8*y:])
		line := (*[8]uint8)(to[y*stride:])
		for x, v := range butterfly(r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7]) {
			line[x] = clamp(int((v+1<<17)>>18) + 128)
		}
	}
}

// butterfly transforms eight values, times 2¹³·√8.
func butterfly(c0, c1, c2, c3, c4, c5, c6, c7 int32) [8]int32 {
	z := (c2 + c6) * 4433 // 0.541196100
	even2, even3 := z-c6*15137, z+c2*6270
	sum, difference := (c0+c4)<<13, (c0-c4)<<13
	e0, e1, e2, e3 := sum+even3, difference+even2, difference-even2, sum-even3

	t0, t1, t2, t3 := c7, c5, c3, c1
	z5 := (t0 + t2 + t1 + t3) * 9633                                                // 1.175875602
	z1, z2 := (t0+t3)*-7373, (t1+t2)*-20995                                         // 0.899976223, 2.562915447
	z3, z4 := (t0+t2)*-16069+z5, (t1+t3)*-3196+z5                                   // 1.961570560, 0.390180644
	o3, o2, o1, o0 := t0*2446+z1+z3, t1*16819+z2+z4, t2*25172+z2+z3, t3*12299+z1+z4 // 0.298631336 …
	return [8]int32{e0 + o0, e1 + o1, e2 + o2, e3 + o3, e3 - o3, e2 - o2, e1 - o1, e0 - o0}
}
