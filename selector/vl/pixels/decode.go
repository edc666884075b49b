package pixels

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"strings"

	"golang.org/x/image/bmp"
	"golang.org/x/image/webp"

	"fulcrum/internal/regular"
)

// maxPixels refuses images that would take gigabytes, as Pillow does.
const maxPixels = 178_956_970

// Decode reads an image file (or a data: URI in base64): PNG, JPEG, GIF (the first frame), WebP, BMP or TIFF, told apart by
// content, and converts it as transformers 5 does with what Pillow 13 opens (ToRGB). The orientation in EXIF data is
// ignored, as there and in qwen_vl_utils; that of a TIFF file turns it, as Pillow does. (transformers' own load_image turns by
// EXIF too, but drops transparency.)
func Decode(path string) (image.Image, error) {
	name, read := path, regular.ReadFile
	if strings.HasPrefix(path, "data:") {
		name, read = "data URI", readURI
	} else if scheme, _, found := strings.Cut(path, "://"); found {
		return nil, fmt.Errorf("%s: want a file, not an address (%s): nothing is downloaded here", path, scheme)
	}
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	img, err := DecodeBytes(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return img, nil
}

// readURI reads "data:image/png;base64,…".
func readURI(uri string) ([]byte, error) {
	head, body, found := strings.Cut(uri, ",")
	if !found || !strings.HasSuffix(head, ";base64") {
		return nil, errors.New("data URI: want data:image/…;base64,…")
	}
	data, err := base64.StdEncoding.DecodeString(body)
	if err != nil {
		return nil, fmt.Errorf("data URI: %w", err)
	}
	return data, nil
}

// format is one kind of image file.
type format struct {
	magic  []string // '?' stands for any byte
	config func(io.Reader) (image.Config, error)
	decode func([]byte) (*RGB, error)
}

func formats() []format {
	return []format{
		{[]string{"\x89PNG\r\n\x1a\n"}, png.DecodeConfig, decodePNG},
		{[]string{"\xff\xd8"}, jpegSize, func(data []byte) (*RGB, error) {
			if m, err := decodeJPEG(data); err == nil {
				return m, nil
			}
			img, err := jpeg.Decode(bytes.NewReader(data))
			if err != nil {
				return nil, err
			}
			return ToRGB(img), nil
		}},
		{[]string{"GIF8?a"}, gif.DecodeConfig, decodeGIF},
		{[]string{"RIFF????WEBPVP8"}, webp.DecodeConfig, decodeWebP},
		{[]string{"BM????\x00\x00\x00\x00"}, bmp.DecodeConfig, decodeBMP},
		{[]string{"MM\x00\x2A", "II\x2A\x00"}, tiffSize, decodeTIFF},
	}
}

// decodeBMP drops the fourth byte of pixels whose header has no mask for it, as Pillow does; Go takes it for alpha under the longer
// headers.
func decodeBMP(data []byte) (*RGB, error) {
	img, err := bmp.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	const compression, masks = 30, 3 // where it stands; BI_BITFIELDS
	if m, ok := img.(*image.NRGBA); ok && data[compression] != masks {
		return bare(m), nil
	}
	return ToRGB(img), nil
}

// decodeGIF returns the first frame on a whole screen. Pillow fills what the frame leaves with its
// transparent colour, else with colour 0.
func decodeGIF(data []byte) (*RGB, error) {
	screen, err := gif.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	img, err := gif.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	frame, ok := img.(*image.Paletted)
	if !ok {
		return ToRGB(img), nil
	}
	fill := uint8(0)
	for i, c := range frame.Palette {
		if _, _, _, alpha := c.RGBA(); alpha == 0 {
			fill = uint8(i)
			break
		}
	}
	whole := image.NewPaletted(image.Rect(0, 0, screen.Width, screen.Height), frame.Palette)
	for i := range whole.Pix {
		whole.Pix[i] = fill
	}
	for y := frame.Rect.Min.Y; y < frame.Rect.Max.Y; y++ {
		copy(whole.Pix[whole.PixOffset(frame.Rect.Min.X, y):], frame.Pix[frame.PixOffset(frame.Rect.Min.X, y):][:frame.Rect.Dx()])
	}
	return ToRGB(whole), nil
}

// DecodeBytes is Decode for a file in memory.
func DecodeBytes(data []byte) (*RGB, error) {
	f, err := formatOf(data)
	if err != nil {
		return nil, err
	}
	if _, _, err := f.size(bytes.NewReader(data)); err != nil {
		return nil, err
	}
	return f.decode(data)
}

// Size reads the height and width of an image file from its header.
func Size(path string) (height, width int, err error) {
	file, err := regular.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	r := bufio.NewReader(file)
	start, _ := r.Peek(16) // longer than any magic; a file that cannot be read has none
	f, err := formatOf(start)
	if err == nil {
		height, width, err = f.size(r)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return height, width, err
}

// formatOf tells the format by the first bytes of a file.
func formatOf(start []byte) (format, error) {
	for _, f := range formats() {
		for _, magic := range f.magic {
			if matches(start, magic) {
				return f, nil
			}
		}
	}
	return format{}, errors.New("not an image of a known format (png, jpeg, gif, webp, bmp, tiff)")
}

func (f format) size(r io.Reader) (height, width int, err error) {
	size, err := f.config(r)
	if err == nil && (size.Width < 1 || size.Height < 1 || size.Width > maxPixels/size.Height) {
		err = fmt.Errorf("image of %d×%d pixels, want 1 to %d", size.Width, size.Height, maxPixels)
	}
	return size.Height, size.Width, err
}

func matches(data []byte, magic string) bool {
	if len(data) < len(magic) {
		return false
	}
	for i := range len(magic) {
		if magic[i] != '?' && magic[i] != data[i] {
			return false
		}
	}
	return true
}
