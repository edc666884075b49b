package pixels

import (
	"bytes"
	"encoding/binary"
	"image/png"
)

// decodePNG decodes as Pillow does. A file of grey or colours can name one value as transparent (the chunk tRNS), which Pillow
// compares with what the pixels are after the conversion to eight bits. Palettes and alpha are left to Go's decoder.
func decodePNG(data []byte) (*RGB, error) {
	data, transparent := withoutTransparency(data)
	img, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	out := ToRGB(img)
	for p := out.Pix; transparent != nil && len(p) > 0; p = p[3:] {
		if pixel := (*[3]uint8)(p); *pixel == *transparent {
			*pixel = [3]uint8{255, 255, 255}
		}
	}
	return out, nil
}

// withoutTransparency takes the chunk tRNS out of a file that has no palette and returns its value as Pillow reads it; nil for
// none.
func withoutTransparency(data []byte) ([]byte, *[3]uint8) {
	const signature, frame = 8, 12 // bytes: of a file; of a chunk around its content
	if len(data) < signature+frame+13 || string(data[signature+4:signature+8]) != "IHDR" {
		return data, nil
	}
	depth, colours := data[signature+16], data[signature+17]
	for at := signature; at+frame <= len(data); {
		size := int(binary.BigEndian.Uint32(data[at:]))
		if size > len(data)-at-frame {
			break // Go's decoder has the word
		}
		kind, body, end := string(data[at+4:at+8]), data[at+8:][:size], at+frame+size
		switch {
		case colours == 3, kind == "IDAT":
			return data, nil
		case kind == "tRNS":
			rest := append(bytes.Clone(data[:at]), data[end:]...)
			switch {
			case colours == 0 && depth == 1 && size >= 2 && body[0]|body[1] != 0:
				return rest, &[3]uint8{255, 255, 255}
			case colours == 0 && size >= 2:
				return rest, &[3]uint8{body[1], body[1], body[1]}
			case colours == 2 && size >= 6:
				return rest, &[3]uint8{body[1], body[3], body[5]}
			}
			return rest, nil
		}
		at = end
	}
	return data, nil
}
