// Package frames lists the pictures of a folder that holds a video as frames.
package frames

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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

var digits = regexp.MustCompile(`[0-9]+`)

// natural compares names with their runs of digits as numbers.
func natural(a, b string) int {
	padded := func(name string) string {
		return digits.ReplaceAllStringFunc(name, func(run string) string {
			run = strings.TrimLeft(run, "0")
			return strings.Repeat("0", max(0, 40-len(run))) + run
		})
	}
	return cmp.Or(strings.Compare(padded(a), padded(b)), strings.Compare(a, b))
}
