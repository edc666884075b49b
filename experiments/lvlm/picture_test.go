package lvlm

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"slices"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/selector/vl/pixels"
)

// A server decodes what is sent to the pixels that the local model sees, whatever it makes of transparency and of EXIF data.
func TestPicturesAsTheLocalModelSeesThem(t *testing.T) {
	c := pictures{}
	for i := range 4 { // among them one with transparent pixels, a grey one and one with a palette
		path := golden.Shared(t, "qwen2_5_vl", "images", fmt.Sprintf("img%d.png", i))
		url, err := c.URL(path)
		if err != nil {
			t.Fatal(err)
		}
		sent, err := png.Decode(bytes.NewReader(decoded(t, url)))
		if err != nil {
			t.Fatal(err)
		}
		own, err := pixels.Decode(path)
		if err != nil {
			t.Fatal(err)
		}
		opaque, ok := sent.(interface{ Opaque() bool })
		if !slices.Equal(pixels.ToRGB(sent).Pix, pixels.ToRGB(own).Pix) || !ok || !opaque.Opaque() {
			t.Errorf("%s: other pixels", path)
		}
	}
	small := image.NewRGBA(image.Rect(0, 0, 8, 4))
	small.Set(1, 1, color.White)
	var b bytes.Buffer
	if err := jpeg.Encode(&b, small, nil); err != nil {
		t.Fatal(err)
	}
	plain := b.String()
	const turned = "\xff\xe1\x00\x22Exif\x00\x00MM\x00\x2a\x00\x00\x00\x08\x00\x01" +
		"\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00\x00\x00\x00\x00"
	const xmp, other = "\xff\xe1\x00\x27http://ns.adobe.com/xap/1.0/\x00<x:xmp/>", "\xff\xe2\x00\x06ICC_" // Pillow turns by both
	for name, file := range map[string]string{"plain.jpg": plain, "turned.jpg": plain[:2] + turned + other + xmp + plain[2:],
		"filled.jpg": plain[:2] + "\xff" + turned + other + "\xff\xff" + xmp + plain[2:],
		"cut.jpg":    plain[:2] + turned[:9]} {
		url, err := c.URL(imageFile(t, t.TempDir(), name, file))
		want := map[string]string{"plain.jpg": plain, "turned.jpg": plain[:2] + other + plain[2:],
			"filled.jpg": plain[:2] + other + plain[2:]}[name]
		if want == "" && err == nil || want != "" && (err != nil || string(decoded(t, url)) != want) {
			t.Errorf("%s: %v, %q", name, err, url)
		}
	}
}
