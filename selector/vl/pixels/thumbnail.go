package pixels

import (
	"bytes"
	"image"
	"image/jpeg"
)

// Thumbnail returns a picture as a small JPEG whose longer side has at most so many pixels. Equal pictures give equal bytes.
func Thumbnail(img image.Image, side int) ([]byte, error) {
	m := ToRGB(img)
	if longer := max(m.W, m.H); longer > side {
		m = m.Resize(max(m.W*side/longer, 1), max(m.H*side/longer, 1))
	}
	var out bytes.Buffer
	err := jpeg.Encode(&out, m, &jpeg.Options{Quality: 80})
	return out.Bytes(), err
}
