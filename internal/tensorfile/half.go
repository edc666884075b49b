package tensorfile

import (
	"math"
	"sync"
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

// halves holds the values of all 65536 halves (256 KB), so that an array is converted by looking up.
var halves = sync.OnceValue(func() []float32 {
	table := make([]float32, 1<<16)
	for i := range table {
		table[i] = HalfToFloat32(uint16(i))
	}
	return table
})

func halfToFloat32(data []uint16) []float32 {
	out, table := make([]float32, len(data)), halves()
	for i, h := range data {
		out[i] = table[h]
	}
	return out
}
