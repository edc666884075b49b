package tensorfile

import (
	"math"

	"fulcrum/internal/list"
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

func halfToFloat32(data []uint16) []float32 { return list.Map(data, HalfToFloat32) }
