package frames

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFiles(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"f10.png", "f9.PNG", "f09b.jpg", "notes.txt", ".f1.png", "f1.webp"} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := Files(folder)
	if err != nil {
		t.Fatal(err)
	}
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	if want := []string{"f1.webp", "f9.PNG", "f09b.jpg", "f10.png"}; !slices.Equal(files, want) {
		t.Errorf("got %v, want %v", files, want)
	}
	if _, err := Files(t.TempDir()); err == nil || !strings.Contains(err.Error(), "a folder of frames without an image") {
		t.Errorf("empty folder: %v", err)
	}
}

// Pillow's convert("RGB") of every format and mode (testdata/make.py). JPEG differs by the rounding of
// the inverse cosine transform: a level here and there, which the colour conversion doubles.
