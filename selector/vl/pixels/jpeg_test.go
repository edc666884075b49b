package pixels

import (
	"bytes"
	"image/jpeg"
	"os"
	"path/filepath"
	"testing"
)

// TestJPEGKinds: this decoder takes every kind that libjpeg reads.
func TestJPEGKinds(t *testing.T) {
	files, err := filepath.Glob("testdata/decode/*.jpg")
	if err != nil || len(files) < 28 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		base := filepath.Base(name)
		m, err := decodeJPEG(data)
		if err != nil {
			t.Errorf("%s: %v", base, err)
		} else if size, err := jpegSize(bytes.NewReader(data)); err != nil || size.Width != m.W || size.Height != m.H {
			t.Errorf("%s: %d×%d by its header, %v; the picture has %d×%d", base, size.Width, size.Height, err, m.W, m.H)
		}
		if _, err := decodeJPEG(data[:len(data)*2/3]); err == nil {
			t.Errorf("%s: two thirds of it are a picture", base)
		}
	}
}

// FuzzJPEG: no file brings the decoder down, and what both decoders take has one size.
func FuzzJPEG(f *testing.F) {
	files, err := filepath.Glob("testdata/decode/*.jpg")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 2 || data[0] != 0xff || data[1] != 0xd8 {
			return
		}
		m, err := decodeJPEG(data)
		if err != nil {
			return
		}
		if theirs, err := jpeg.Decode(bytes.NewReader(data)); err == nil && theirs.Bounds() != m.Bounds() {
			t.Errorf("%v, Go's decoder has %v", m.Bounds(), theirs.Bounds())
		}
	})
}

// FuzzDecode: no file of any kind brings the program down, and a picture has the sides that its header says.
func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/decode/*.*")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		kind, err := formatOf(data)
		if err != nil {
			return
		}
		h, w, err := kind.size(bytes.NewReader(data))
		if err != nil || h > 1<<20/w {
			return
		}
		if m, err := DecodeBytes(data); err == nil && (m.W != w || m.H != h || len(m.Pix) != 3*w*h) {
			t.Errorf("%d×%d with %d bytes, by its header %d×%d", m.W, m.H, len(m.Pix), w, h)
		}
	})
}
