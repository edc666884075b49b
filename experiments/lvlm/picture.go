package lvlm

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"image/png"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"

	"fulcrum/internal/regular"
	"fulcrum/selector/vl/pixels"
)

// maxPictures bounds the encoded pictures that are kept, in bytes.
const maxPictures = 256 << 20

// pictures encodes image files as data: URLs and keeps the last ones.
type pictures struct {
	size int // largest side of a square of their area; 0 = as in the file

	mu          sync.Mutex
	fresh, aged map[string]string // two generations: old ones go, half of them at a time
	bytes       int               // of fresh
}

// URL returns an image as a data: URL that every server decodes to the pixels that the local model sees. A JPEG file goes as it is,
// without EXIF and XMP data, by which vLLM would turn it; another kind as an opaque PNG, with white under what was transparent. A larger
// image is scaled to sides in multiples of 28 pixels, as Qwen2.5-VL's processor would: behind the server it finds nothing left to scale.
func (c *pictures) URL(path string) (string, error) {
	if strings.HasPrefix(path, "data:") {
		return path, nil
	}
	c.mu.Lock()
	url, ok := c.fresh[path]
	if !ok {
		if url, ok = c.aged[path]; ok {
			c.keep(path, url)
		}
	}
	c.mu.Unlock()
	if ok {
		return url, nil
	}
	url, err := c.encode(path)
	if err != nil {
		return "", fmt.Errorf("image: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(path, url)
	return url, nil
}

func (c *pictures) keep(path, url string) {
	if c.fresh == nil || c.bytes > maxPictures/2 {
		c.aged, c.fresh, c.bytes = c.fresh, map[string]string{}, 0
	}
	c.fresh[path] = url
	c.bytes += len(url)
}

func (c *pictures) encode(path string) (string, error) {
	const factor = 28 // pixels: of the side of a token of Qwen2.5-VL
	height, width, err := pixels.Size(path)
	if err != nil {
		return "", err
	}
	f, err := regular.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, math.MaxInt32))
	if err != nil {
		return "", err
	}
	most := c.size * c.size
	if large := most > 0 && height*width > most; !large && http.DetectContentType(data) == "image/jpeg" {
		return dataURL(upright(data)), nil
	} else if large {
		h, w, err := pixels.SmartResize(height, width, factor, 0, most)
		if err == nil && min(h, w) == 0 {
			err = fmt.Errorf("%s: %d×%d pixels (height × width) leave nothing at image_size=%d", path, height, width, c.size)
		}
		if err != nil {
			return "", err
		}
		height, width = h, w
	}
	img, err := pixels.Decode(path)
	if err != nil {
		return "", err
	}
	rgb := pixels.ToRGB(img)
	if height != rgb.H || width != rgb.W {
		rgb = rgb.Resize(width, height)
	}
	var b bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestSpeed}
	err = encoder.Encode(&b, rgb)
	return dataURL(b.Bytes()), err
}

// upright drops the segments of a JPEG file that may say how to turn it, EXIF's and XMP's, which stand before its pixels.
func upright(data []byte) []byte {
	const app1, scan, head = 0xe1, 0xda, 4 // markers, behind 0xff; bytes of one and its segment's length
	out, at := bytes.Clone(data[:2]), 2
	for at+head < len(data) && data[at] == 0xff && data[at+1] != scan {
		if data[at+1] == 0xff { // a byte between segments
			at++
			continue
		}
		end := at + 2 + int(binary.BigEndian.Uint16(data[at+2:]))
		if end > len(data) {
			break
		}
		if data[at+1] != app1 {
			out = append(out, data[at:end]...)
		}
		at = end
	}
	return append(out, data[at:]...)
}

func dataURL(data []byte) string {
	return "data:" + http.DetectContentType(data) + ";base64," + base64.StdEncoding.EncodeToString(data)
}
