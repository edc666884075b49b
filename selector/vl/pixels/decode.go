package pixels

import (
	"bytes"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"os"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
	"golang.org/x/image/webp"
)

// maxPixels refuses images that would take gigabytes, as Pillow does.
const maxPixels = 178_956_970

// Decode reads an image file: PNG, JPEG, GIF (the first frame), WebP, BMP or TIFF, told apart by
// content, and converts it as Pillow's convert("RGB"). The orientation in EXIF data is ignored, as
// there.
func Decode(path string) (image.Image, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	img, err := DecodeBytes(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return img, nil
}

// format is one kind of image file.
type format struct {
	magic  []string // '?' stands for any byte
	config func(io.Reader) (image.Config, error)
	decode func([]byte) (*RGB, error)
}

func formats() []format {
	plain := func(decode func(io.Reader) (image.Image, error)) func([]byte) (*RGB, error) {
		return func(data []byte) (*RGB, error) {
			img, err := decode(bytes.NewReader(data))
			if err != nil {
				return nil, err
			}
			return ToRGB(img), nil
		}
	}
	return []format{
		{[]string{"\x89PNG\r\n\x1a\n"}, png.DecodeConfig, plain(png.Decode)},
		{[]string{"\xff\xd8"}, jpeg.DecodeConfig, plain(jpeg.Decode)},
		{[]string{"GIF8?a"}, gif.DecodeConfig, plain(gif.Decode)},
		{[]string{"RIFF????WEBPVP8"}, webp.DecodeConfig, plain(webp.Decode)},
		{[]string{"BM????\x00\x00\x00\x00"}, bmp.DecodeConfig, plain(bmp.Decode)},
		{[]string{"MM\x00\x2A", "II\x2A\x00"}, tiff.DecodeConfig, plain(tiff.Decode)},
	}
}

// DecodeBytes is Decode for a file in memory.
func DecodeBytes(data []byte) (*RGB, error) {
	for _, f := range formats() {
		for _, magic := range f.magic {
			if !matches(data, magic) {
				continue
			}
			size, err := f.config(bytes.NewReader(data))
			if err != nil {
				return nil, err
			}
			if size.Width < 1 || size.Height < 1 || size.Width > maxPixels/size.Height {
				return nil, fmt.Errorf("image of %d×%d pixels, want 1 to %d", size.Width, size.Height, maxPixels)
			}
			return f.decode(data)
		}
	}
	return nil, fmt.Errorf("not an image of a known format (png, jpeg, gif, webp, bmp, tiff)")
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
