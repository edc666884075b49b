package tensorfile

import (
	"math"
	"math/big"
	"math/bits"
	"slices"
)

func (u *unpickler) binaryNumber(op byte) {
	switch op {
	case 'J':
		u.push(int64(int32(u.uint(4))))
	case 'K':
		u.push(int64(u.uint(1)))
	case 'M':
		u.push(int64(u.uint(2)))
	case 'G':
		u.push(math.Float64frombits(bits.ReverseBytes64(u.uint(8))))
	case 0x8a: // LONG1
		u.long(u.uint(1))
	case 0x8b: // LONG4
		u.long(u.uint(4))
	}
}

// long reads an integer of n bytes in two's complement, the lowest first.
func (u *unpickler) long(n uint64) {
	if n > 1024 {
		u.failf("integer of %d bytes", n)
		return
	}
	be := slices.Clone(u.take(int(n)))
	slices.Reverse(be)
	v := new(big.Int).SetBytes(be)
	if len(be) > 0 && be[0] >= 0x80 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(be))))
	}
	u.push(small(v))
}

func small(v *big.Int) any {
	if v.IsInt64() {
		return v.Int64()
	}
	return v
}

func (u *unpickler) binaryString(op byte) {
	n := u.uint(map[byte]int{'X': 4, 0x8c: 1, 0x8d: 8, 'T': 4, 'U': 1, 'B': 4, 'C': 1, 0x8e: 8, 0x96: 8}[op])
	if n > uint64(len(u.data)) {
		u.fail(errTruncated)
		return
	}
	raw := u.take(int(n))
	switch op {
	case 'B', 'C', 0x8e, 0x96:
		u.push(raw)
	default:
		u.push(string(raw))
	}
}
