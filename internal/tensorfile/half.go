package tensorfile

import (
	"encoding/binary"
	"math"
)

// HalfToFloat32 converts one IEEE 754 binary16 number, exactly.
func HalfToFloat32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	frac := uint32(h & 0x3ff)
	switch {
	case exp == 0x1f: // infinity, NaN
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	case exp != 0:
		return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
	}
	v := float32(frac) / (1 << 24) // zero and subnormals: exact
	if sign != 0 {
		v = -v
	}
	return v
}

// halfToFloat32 converts n numbers. Large arrays go through a table of all 65536 values (256 KB),
// which costs as much as converting 65536 numbers.
func halfToFloat32(data []byte, n int) []float32 {
	out := make([]float32, n)
	if n < 1<<17 {
		for i := range out {
			out[i] = HalfToFloat32(binary.LittleEndian.Uint16(data[2*i:]))
		}
		return out
	}
	table := make([]float32, 1<<16)
	for i := range table {
		table[i] = HalfToFloat32(uint16(i))
	}
	for i := range out {
		out[i] = table[binary.LittleEndian.Uint16(data[2*i:])]
	}
	return out
}
