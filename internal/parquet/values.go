package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/parquet-go/parquet-go/format"

	"fulcrum/internal/list"
)

// plainDictionary is the older name of format.RLEDictionary in data pages, which files written by older programs have.
const plainDictionary = format.Encoding(2)

func checkEncoding(encoding format.Encoding, kind format.Type, hasDict bool) error {
	text := kind == format.ByteArray
	switch {
	case encoding == format.Plain,
		(encoding == format.RLEDictionary || encoding == plainDictionary) && hasDict,
		encoding == format.DeltaBinaryPacked && !text,
		(encoding == format.DeltaLengthByteArray || encoding == format.DeltaByteArray) && text:
		return nil
	case encoding == format.RLEDictionary || encoding == plainDictionary:
		return errors.New("values from a dictionary, and the chunk has none")
	}
	return fmt.Errorf("values in encoding %d are not supported", encoding)
}

var errEnds = errors.New("the page ends early")

// decode returns a value a row, nil for null.
func (p *page) decode(data []byte, l leaf, dict []*string) ([]*string, error) {
	rows := int(p.rows)
	var levels []byte // definition levels: 1 where there is a value
	switch {
	case p.version == 2:
		if int64(len(data)) < p.levels {
			return nil, errEnds
		}
		levels, data = data[:p.levels], data[p.levels:]
	case l.optional:
		if len(data) < 4 || uint64(binary.LittleEndian.Uint32(data)) > uint64(len(data)-4) {
			return nil, errEnds
		}
		size := binary.LittleEndian.Uint32(data)
		levels, data = data[4:4+size], data[4+size:]
	}
	n, present := rows, []uint64(nil)
	if l.optional {
		var err error
		if present, err = hybrid(levels, 1, rows); err != nil {
			return nil, err
		}
		n = 0
		for _, level := range present {
			n += int(level)
		}
	}
	values, err := p.some(data, l, dict, n)
	if err != nil || n == rows {
		return values, err
	}
	out := make([]*string, rows)
	k := 0
	for i, level := range present {
		if level == 1 {
			out[i] = values[k]
			k++
		}
	}
	return out, nil
}

// some decodes n values that are not null.
func (p *page) some(data []byte, l leaf, dict []*string, n int) ([]*string, error) {
	if n == 0 {
		return nil, nil
	}
	switch p.encoding {
	case format.RLEDictionary, plainDictionary:
		return fromDict(data, dict, n)
	case format.DeltaBinaryPacked:
		numbers, _, err := delta(data, n)
		if err != nil {
			return nil, err
		}
		return list.Map(numbers, l.decimal), nil
	case format.DeltaLengthByteArray:
		return deltaLength(data, n)
	case format.DeltaByteArray:
		return deltaBytes(data, n)
	}
	return plain(data, l, n)
}

// decimal writes a number of the column, of which an Int32 has the lower half.
func (l leaf) decimal(v int64) *string {
	switch {
	case l.kind == format.Int32 && l.unsigned:
		v = int64(uint32(v))
	case l.kind == format.Int32:
		v = int64(int32(v))
	case l.unsigned:
		return new(strconv.FormatUint(uint64(v), 10))
	}
	return new(strconv.FormatInt(v, 10))
}

// plain reads values one after the other: a text has its length in front.
func plain(data []byte, l leaf, n int) ([]*string, error) {
	width := map[format.Type]int{format.ByteArray: 4, format.Int32: 4, format.Int64: 8}[l.kind]
	if n > len(data)/width {
		return nil, errEnds
	}
	out := make([]*string, n)
	for i := range out {
		if len(data) < width {
			return nil, errEnds
		}
		switch l.kind {
		case format.Int32:
			out[i] = l.decimal(int64(binary.LittleEndian.Uint32(data)))
		case format.Int64:
			out[i] = l.decimal(int64(binary.LittleEndian.Uint64(data)))
		default:
			size := uint64(binary.LittleEndian.Uint32(data))
			if size > uint64(len(data)-4) {
				return nil, errEnds
			}
			out[i] = new(string(data[4 : 4+size]))
			data = data[size:]
		}
		data = data[width:]
	}
	return out, nil
}

// fromDict reads indices into the dictionary: their width in bits, then the hybrid.
func fromDict(data []byte, dict []*string, n int) ([]*string, error) {
	if len(data) == 0 {
		return nil, errEnds
	}
	out := make([]*string, n)
	indices, err := hybrid(data[1:], int(data[0]), n)
	if err != nil {
		return nil, err
	}
	for i, at := range indices {
		if at >= uint64(len(dict)) {
			return nil, fmt.Errorf("entry %d of a dictionary of %d", at, len(dict))
		}
		out[i] = dict[at]
	}
	return out, nil
}

// hybrid reads n numbers of a width in bits, in runs of equals and in packs of eight.
func hybrid(data []byte, width, n int) ([]uint64, error) {
	if width > 32 {
		return nil, fmt.Errorf("numbers of %d bits", width)
	}
	out := make([]uint64, 0, min(n, 1<<20)) // a damaged page may promise more than it holds
	for len(out) < n {
		head, k := binary.Uvarint(data)
		if k <= 0 {
			return nil, errEnds
		}
		data = data[k:]
		count := head >> 1
		if count == 0 {
			return nil, errors.New("an empty run")
		}
		if head&1 == 0 {
			bytes := (width + 7) / 8
			if len(data) < bytes {
				return nil, errEnds
			}
			var whole [4]byte
			copy(whole[:], data[:bytes])
			v := uint64(binary.LittleEndian.Uint32(whole[:]))
			data = data[bytes:]
			for range min(count, uint64(n-len(out))) {
				out = append(out, v)
			}
			continue
		}
		if count > uint64(len(data)) && width > 0 { // a pack of eight takes width bytes
			return nil, errEnds
		}
		size := min(int(min(count, uint64(n)))*width, len(data)) // the last pack may be cut short
		packed := data[:size]
		for i := range int(min(8*min(count, uint64(n)), uint64(n-len(out)))) {
			if (i+1)*width > 8*len(packed) {
				return nil, errEnds
			}
			out = append(out, unpack(packed, i, width))
		}
		data = data[size:]
	}
	return out, nil
}

// unpack returns number i of those packed in width bits each, the lowest bits first; width is at most 64.
func unpack(packed []byte, i, width int) uint64 {
	v := uint64(0)
	for got := 0; got < width; {
		at := i*width + got
		take := min(8-at%8, width-got)
		piece := uint64(packed[at/8]>>(at%8)) & (1<<take - 1)
		v |= piece << got
		got += take
	}
	return v
}

// delta reads n whole numbers as differences in blocks (DELTA_BINARY_PACKED) and returns what follows them.
func delta(data []byte, n int) (values []int64, rest []byte, err error) {
	bad := errors.New("damaged differences")
	next := func() uint64 {
		v, k := binary.Uvarint(data)
		if k <= 0 {
			err = errEnds
			return 0
		}
		data = data[k:]
		return v
	}
	signed := func() int64 { v := next(); return int64(v>>1) ^ -int64(v&1) }
	block, minis, total, value := next(), next(), next(), signed()
	if err != nil {
		return nil, nil, err
	}
	if total != uint64(n) || minis == 0 || minis > 1<<10 || block == 0 || block > 1<<20 || block%(minis*8) != 0 {
		return nil, nil, bad
	}
	per := int(block / minis)
	for len(values) < n {
		if len(values) == 0 {
			values = append(values, value)
			continue
		}
		least := signed()
		if err != nil {
			return nil, nil, err
		}
		if uint64(len(data)) < minis {
			return nil, nil, errEnds
		}
		widths := data[:minis]
		data = data[minis:]
		for _, width := range widths {
			if len(values) == n {
				break
			}
			size := per / 8 * int(width)
			if width > 64 {
				return nil, nil, bad
			}
			if len(data) < size {
				return nil, nil, errEnds
			}
			for i := range min(per, n-len(values)) {
				value += least + int64(unpack(data, i, int(width)))
				values = append(values, value)
			}
			data = data[size:]
		}
	}
	return values, data, nil
}

// deltaLength reads the lengths of n texts, then the texts.
func deltaLength(data []byte, n int) ([]*string, error) {
	lengths, data, err := delta(data, n)
	if err != nil {
		return nil, err
	}
	out := make([]*string, n)
	for i, length := range lengths {
		if length < 0 || length > int64(len(data)) {
			return nil, errEnds
		}
		out[i], data = new(string(data[:length])), data[length:]
	}
	return out, nil
}

// deltaBytes reads how much each of n texts shares with the one before, then what follows in each.
func deltaBytes(data []byte, n int) ([]*string, error) {
	shared, data, err := delta(data, n)
	if err != nil {
		return nil, err
	}
	out, err := deltaLength(data, n)
	if err != nil {
		return nil, err
	}
	last, total := "", 0
	for i, s := range out {
		if shared[i] < 0 || shared[i] > int64(len(last)) {
			return nil, errEnds
		}
		text := last[:shared[i]] + *s
		if total += len(text); total > 4*maxPage {
			return nil, errors.New("texts that share too much")
		}
		out[i], last = &text, text
	}
	return out, nil
}
