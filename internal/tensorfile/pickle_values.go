package tensorfile

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

func (u *unpickler) textValue(op byte) error {
	line, err := u.line()
	if err != nil {
		return err
	}
	switch op {
	case 'F':
		v, err := strconv.ParseFloat(line, 64)
		if err != nil {
			return fmt.Errorf("float %.20q", line)
		}
		return u.push(v)
	case 'S':
		n := len(line)
		if n < 2 || line[0] != line[n-1] || line[0] != '\'' && line[0] != '"' || strings.Contains(line, `\`) {
			return fmt.Errorf("string %.20q", line)
		}
		return u.push(line[1 : n-1])
	case 'V':
		if strings.Contains(line, `\`) {
			return fmt.Errorf("escaped text of protocol 0 is not supported")
		}
		return u.push(line)
	}
	if op == 'I' && (line == "00" || line == "01") {
		return u.push(line == "01")
	}
	line = strings.TrimSuffix(line, "L")
	if len(line) > 1000 {
		return fmt.Errorf("integer of %d digits", len(line))
	}
	v, ok := new(big.Int).SetString(line, 10)
	if !ok {
		return fmt.Errorf("integer %.20q", line)
	}
	return u.push(small(v))
}

func (u *unpickler) binaryNumber(op byte) error {
	width := map[byte]int{'J': 4, 'K': 1, 'M': 2, 0x8a: 1, 0x8b: 4, 'G': 8}[op]
	b, err := u.take(width)
	if err != nil {
		return err
	}
	switch op {
	case 'J':
		return u.push(int64(int32(binary.LittleEndian.Uint32(b))))
	case 'K':
		return u.push(int64(b[0]))
	case 'M':
		return u.push(int64(binary.LittleEndian.Uint16(b)))
	case 'G':
		return u.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
	}
	n := int(b[0]) // LONG1
	if op == 0x8b {
		n = int(binary.LittleEndian.Uint32(b))
	}
	if n > 1024 {
		return fmt.Errorf("integer of %d bytes", n)
	}
	raw, err := u.take(n)
	if err != nil {
		return err
	}
	be := make([]byte, n)
	for i, x := range raw {
		be[n-1-i] = x
	}
	v := new(big.Int).SetBytes(be)
	if n > 0 && be[0] >= 0x80 { // two's complement
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*n)))
	}
	return u.push(small(v))
}

func small(v *big.Int) any {
	if v.IsInt64() {
		return v.Int64()
	}
	return v
}

func (u *unpickler) binaryString(op byte) error {
	width := map[byte]int{'X': 4, 0x8c: 1, 0x8d: 8, 'T': 4, 'U': 1, 'B': 4, 'C': 1, 0x8e: 8, 0x96: 8}[op]
	b, err := u.take(width)
	if err != nil {
		return err
	}
	var le [8]byte
	copy(le[:], b)
	n := binary.LittleEndian.Uint64(le[:])
	if n > uint64(len(u.data)) {
		return errTruncated
	}
	raw, err := u.take(int(n))
	if err != nil {
		return err
	}
	switch op {
	case 'B', 'C', 0x8e, 0x96:
		return u.push(raw)
	}
	return u.push(string(raw))
}
