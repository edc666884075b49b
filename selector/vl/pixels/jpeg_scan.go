package pixels

// zigzag is the place of the k-th coefficient in its block, by rows.
var zigzag = [64]uint8{
	0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28,
	35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
}

// huffman is a code: by the next 16 bits, the length of the symbol's code (0: none begins so) and the symbol.
type huffman [1 << 16]struct{ length, symbol uint8 }

func (d *jpegFile) readHuffman(b []byte) error {
	for len(b) > 0 {
		if len(b) < 17 || b[0]>>4 > 1 || b[0]&15 > 3 {
			return errOther
		}
		t := new(huffman)
		symbols, next := b[17:], 0
		for i, n := range b[1:17] {
			span := 1 << (15 - i) // of 16-bit words that begin with a code of i+1 bits
			for range n {
				if len(symbols) == 0 || next+span > len(t) {
					return errOther
				}
				for k := range span {
					t[next+k].length, t[next+k].symbol = uint8(i+1), symbols[0]
				}
				symbols, next = symbols[1:], next+span
			}
		}
		d.huffman[b[0]>>4][b[0]&15] = t
		b = symbols
	}
	return nil
}

// fill makes at least 32 bits ready, zeros behind the end of the scan.
func (d *jpegFile) fill() {
	for d.n <= 48 {
		c := uint64(0)
		switch {
		case len(d.data) == 0 || d.data[0] == 0xff && (len(d.data) == 1 || d.data[1] != 0):
			d.padded += 8
		case d.data[0] == 0xff:
			c, d.data = 0xff, d.data[2:]
		default:
			c, d.data = uint64(d.data[0]), d.data[1:]
		}
		d.bits, d.n = d.bits<<8|c, d.n+8
	}
}

// take returns the next k ≤ 16 bits.
func (d *jpegFile) take(k int) int {
	if d.n < 32 {
		d.fill()
	}
	d.n -= k
	return int(d.bits>>d.n) & (1<<k - 1)
}

// symbol returns the next symbol of a code, or -1.
func (d *jpegFile) symbol(t *huffman) int {
	if d.n < 32 {
		d.fill()
	}
	e := t[uint16(d.bits>>(d.n-16))]
	if e.length == 0 {
		return -1
	}
	d.n -= int(e.length)
	return int(e.symbol)
}

// signed returns a number of k bits, of which the lower half stands for negative ones.
func (d *jpegFile) signed(k int) int {
	v := d.take(k)
	if k > 0 && v < 1<<(k-1) {
		v += 1 - 1<<k
	}
	return v
}

// scan is what a scan holds: coefficients from … to of some components, all bits (high 0) or one more, of value 1<<low.
type scan struct {
	parts               []*jpegPart
	from, to, high, low int
}

// readScan reads the header of a scan and the scan.
func (d *jpegFile) readScan(b []byte) error {
	if len(b) < 1 || len(b) != 4+2*int(b[0]) || d.parts == nil {
		return errOther
	}
	var s scan
	for c := b[1 : 1+2*int(b[0])]; len(c) > 0; c = c[2:] {
		var part *jpegPart
		for _, p := range d.parts {
			if p.id == c[0] {
				part = p
			}
		}
		if part == nil || c[1]>>4 > 3 || c[1]&15 > 3 || d.quant[part.table] == nil {
			return errOther
		}
		if part.dc, part.ac = d.huffman[0][c[1]>>4], d.huffman[1][c[1]&15]; part.quant == nil {
			part.quant = d.quant[part.table]
		}
		s.parts = append(s.parts, part)
	}
	end := b[len(b)-3:]
	s.from, s.to, s.high, s.low = int(end[0]), int(end[1]), int(end[2]>>4), int(end[2]&15)
	if !d.progressive {
		s = scan{parts: s.parts, to: 63}
	}
	mixed := d.progressive && s.from == 0 && s.to != 0 // DC and AC in one scan
	if len(s.parts) == 0 || s.from > s.to || s.to > 63 || s.low > 13 || mixed || s.from > 0 && len(s.parts) != 1 {
		return errOther
	}
	for _, p := range s.parts {
		if s.from == 0 && s.high == 0 && p.dc == nil || s.to > 0 && p.ac == nil {
			return errOther
		}
	}
	d.scanned = true
	return d.blocks(&s)
}

// blocks walks over the blocks of a scan: MCU by MCU, or, of one component, row by row without the padding.
func (d *jpegFile) blocks(s *scan) error {
	d.restart(s)
	wide, high := up(d.w, 8*d.hMax), up(d.h, 8*d.vMax)
	if len(s.parts) == 1 {
		p := s.parts[0]
		wide, high = up(up(d.w*p.h, d.hMax), 8), up(up(d.h*p.v, d.vMax), 8)
	}
	for i := range wide * high {
		if d.interval > 0 && i > 0 && i%d.interval == 0 {
			if d.padded > d.n || len(d.data) < 2 || d.data[0] != 0xff || d.data[1]&^7 != 0xd0 {
				return errOther
			}
			d.data = d.data[2:]
			d.restart(s)
		}
		x, y := i%wide, i/wide
		for _, p := range s.parts {
			h, v := p.h, p.v
			if len(s.parts) == 1 {
				h, v = 1, 1
			}
			for k := range h * v {
				if !d.block(s, p, &p.coefs[(y*v+k/h)*p.wide+x*h+k%h]) {
					return errOther
				}
			}
		}
	}
	if d.padded > d.n { // zeros were read that the file does not have
		return errOther
	}
	return nil
}

func (d *jpegFile) restart(s *scan) {
	d.bits, d.n, d.padded, d.eobRun = 0, 0, 0, 0
	for _, p := range s.parts {
		p.predicted = 0
	}
}

// block reads what a scan says of a block; false where it makes no sense.
func (d *jpegFile) block(s *scan, p *jpegPart, c *[64]int16) bool {
	k := s.from
	if k == 0 {
		switch {
		case s.high > 0:
			c[0] |= int16(d.take(1) << s.low)
		default:
			size := d.symbol(p.dc)
			if size < 0 || size > 15 {
				return false
			}
			p.predicted += d.signed(size)
			c[0] = int16(p.predicted << s.low)
		}
		k = 1
	}
	if s.high > 0 && s.to > 0 {
		return d.refine(s, p, c, k)
	}
	if d.eobRun > 0 && k <= s.to {
		d.eobRun--
		return true
	}
	for k <= s.to {
		rs := d.symbol(p.ac)
		if rs < 0 {
			return false
		}
		run, size := rs>>4, rs&15
		if size == 0 {
			if run < 15 {
				d.eobRun = d.take(run) + 1<<run - 1
				return run == 0 || d.progressive
			}
			k += 16
			continue
		}
		if k += run; k > s.to {
			return false
		}
		c[zigzag[k]] = int16(d.signed(size) << s.low)
		k++
	}
	return true
}

// refine reads one more bit of the coefficients that are not 0, and those that become 1 or -1 now.
func (d *jpegFile) refine(s *scan, p *jpegPart, c *[64]int16, k int) bool {
	one := int16(1) << s.low
	// pass goes on over the next run coefficients that are 0, refining those between, and stops at the one behind.
	pass := func(run int) {
		for ; k <= s.to; k++ {
			at := &c[zigzag[k]]
			if *at == 0 {
				if run == 0 {
					return
				}
				run--
				continue
			}
			if d.take(1) == 1 && *at&one == 0 {
				if *at > 0 {
					*at += one
				} else {
					*at -= one
				}
			}
		}
	}
	if d.eobRun == 0 {
		for k <= s.to {
			rs := d.symbol(p.ac)
			if rs < 0 || rs&15 > 1 {
				return false
			}
			run, value := rs>>4, int16(0)
			if rs&15 == 1 {
				if value = -one; d.take(1) == 1 {
					value = one
				}
			} else if run < 15 {
				d.eobRun = d.take(run) + 1<<run
				break
			}
			if pass(run); k > s.to {
				if value != 0 {
					return false
				}
				break
			}
			c[zigzag[k]] = value
			k++
		}
	}
	if d.eobRun > 0 {
		pass(64)
		d.eobRun--
	}
	return true
}
