package pixels

import (
	"bytes"
	"encoding/binary"
	"errors"
	"image"

	"golang.org/x/image/webp"
)

// decodeWebP decodes to the colours of libwebp; of an animation the first frame.
func decodeWebP(data []byte) (*RGB, error) {
	const vp8x, animated, alpha = "VP8X", 1 << 1, 1 << 4
	chunks := riffChunks(data[12:]) // behind "RIFF", a size and "WEBP"
	if len(chunks) > 0 && chunks[0].kind == vp8x && len(chunks[0].body) >= 10 && chunks[0].body[0]&animated != 0 {
		for _, c := range chunks {
			if c.kind == "ANMF" && len(c.body) >= 16 {
				return firstFrame(chunks[0].body, c.body, chunks[0].body[0]&alpha != 0)
			}
		}
		return nil, errors.New("webp: an animation without a frame")
	}
	img, err := webp.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	for _, c := range chunks {
		if nrgba, ok := img.(*image.NRGBA); ok && c.kind == "VP8L" && len(c.body) >= 5 && c.body[4]&16 == 0 {
			return bare(nrgba), nil // the file says that its alpha means nothing
		}
	}
	return webpColours(img), nil
}

// bare drops an alpha.
func bare(m *image.NRGBA) *RGB {
	out := newRGB(m.Rect.Dx(), m.Rect.Dy())
	for to, from := out.Pix, m.Pix; len(to) > 0; to, from = to[3:], from[4:] {
		copy(to[:3], from)
	}
	return out
}

func webpColours(img image.Image) *RGB {
	switch m := img.(type) {
	case *image.YCbCr:
		return fromWebP(m)
	case *image.NYCbCrA:
		return fromWebP(&m.YCbCr).onWhite(m)
	}
	return ToRGB(img)
}

type riffChunk struct {
	kind string
	body []byte
}

// riffChunks returns the chunks of a RIFF file up to the first that is cut.
func riffChunks(data []byte) (chunks []riffChunk) {
	for len(data) >= 8 {
		size := int(binary.LittleEndian.Uint32(data[4:]))
		if size > len(data)-8 {
			break
		}
		chunks = append(chunks, riffChunk{string(data[:4]), data[8:][:size]})
		data = data[min(8+size+size&1, len(data)):]
	}
	return chunks
}

// firstFrame decodes a frame of an animation on its canvas, which is white where the frame leaves it and the file has alpha, else
// black. A frame is the chunks of a file of its own.
func firstFrame(header, frame []byte, alpha bool) (*RGB, error) {
	number := func(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 } // 24 bits
	left, top := 2*number(frame), 2*number(frame[3:])
	canvas := newRGB(number(header[4:])+1, number(header[7:])+1)
	var file []byte
	for _, c := range riffChunks(frame[16:]) {
		if c.kind == "ALPH" { // it wants a header that announces it
			head := append([]byte{1 << 4, 0, 0, 0}, frame[6:12]...)
			file = appendChunk(file, riffChunk{"VP8X", head})
		}
		file = appendChunk(file, c)
	}
	file = appendChunk(nil, riffChunk{"RIFF", append([]byte("WEBP"), file...)})
	size, err := webp.DecodeConfig(bytes.NewReader(file))
	if err == nil && (left+size.Width > canvas.W || top+size.Height > canvas.H) {
		err = errors.New("webp: the first frame exceeds its canvas")
	}
	if err != nil {
		return nil, err
	}
	img, err := webp.Decode(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	m := webpColours(img)
	if nrgba, ok := img.(*image.NRGBA); ok && !alpha {
		m = bare(nrgba)
	}
	if alpha {
		for i := range canvas.Pix {
			canvas.Pix[i] = 255
		}
	}
	for y := range m.H {
		copy(canvas.Pix[((top+y)*canvas.W+left)*3:], m.Pix[y*m.W*3:][:m.W*3])
	}
	return canvas, nil
}

func appendChunk(to []byte, c riffChunk) []byte {
	to = binary.LittleEndian.AppendUint32(append(to, c.kind...), uint32(len(c.body)))
	if to = append(to, c.body...); len(c.body)%2 == 1 {
		to = append(to, 0)
	}
	return to
}
