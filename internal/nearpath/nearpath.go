// Package nearpath finds the path that was meant by one that does not exist.
//
//	fmt.Errorf("%s: no such file%s", path, nearpath.Hint(path))     // beam.json: no such file (did you mean beams.json?)
package nearpath

import (
	"os"
	"path/filepath"

	"fulcrum/internal/registry"
)

// most bounds the entries of a folder that are compared.
const most = 10_000

// Hint is " (did you mean PATH?)" where the folder of a missing path, or its nearest one that exists, holds a name
// alike; " (there is no folder DIR)" where its folder is missing too; else "".
func Hint(path string) string {
	path = filepath.Clean(path)
	if _, err := os.Lstat(path); err == nil {
		return "" // it is there: what is wrong is something else
	}
	dir, name := filepath.Split(path)
	dir = filepath.Clean(dir)
	missing := ""
	for {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			break
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		missing, name, dir = dir, filepath.Base(dir), parent
	}
	if near, ok := registry.Suggest(name, entries(dir)); ok {
		meant := filepath.Join(dir, near)
		if missing != "" {
			rest, err := filepath.Rel(missing, path)
			if whole := filepath.Join(meant, rest); err == nil {
				if _, err := os.Stat(whole); err == nil {
					meant = whole
				}
			}
		}
		return " (did you mean " + meant + "?)"
	}
	if missing != "" {
		return " (there is no folder " + missing + ")"
	}
	return ""
}

// entries returns names in a folder, at most so many.
func entries(dir string) []string {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, err := f.Readdirnames(most)
	if err != nil {
		return nil
	}
	return names
}
