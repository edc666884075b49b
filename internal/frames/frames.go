// Package frames lists the pictures of a folder that holds a video as frames.
package frames

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// IsImage reports whether a file's name ends as that of a picture that can be decoded here.
func IsImage(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff":
		return true
	}
	return false
}

// Files returns the image files of a folder of frames, in the order of their names; numbers in
// names count as numbers (frame2 before frame10).
func Files(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if IsImage(e.Name()) && !strings.HasPrefix(e.Name(), ".") && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: a folder of frames without an image (png, jpg, gif, webp, bmp, tiff)", folder)
	}
	slices.SortFunc(names, natural)
	for i, name := range names {
		names[i] = filepath.Join(folder, name)
	}
	return names, nil
}

// natural compares names with their runs of digits as numbers.
func natural(a, b string) int {
	digits := func(s string) string { return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))] }
	x, y := a, b
	for x != "" && y != "" {
		dx, dy := digits(x), digits(y)
		if dx != "" && dy != "" {
			nx, ny := strings.TrimLeft(dx, "0"), strings.TrimLeft(dy, "0")
			if len(nx) != len(ny) {
				return len(nx) - len(ny)
			}
			if c := strings.Compare(nx, ny); c != 0 {
				return c
			}
			x, y = x[len(dx):], y[len(dy):]
			continue
		}
		if x[0] != y[0] {
			return int(x[0]) - int(y[0])
		}
		x, y = x[1:], y[1:]
	}
	if len(x) != len(y) {
		return len(x) - len(y)
	}
	return strings.Compare(a, b)
}
