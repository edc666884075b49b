package tasks

import (
	"os"
	"path/filepath"
	"strings"

	"fulcrum/experiments/job"
	"fulcrum/internal/hostmem"
)

// announce says what is about to be read, which may take minutes: files and folders with their sizes, or the built-in
// data.
func announce(j *job.Job) {
	var parts []string
	var files []*string
	if d, err := j.Config.Data.Dataset(); err == nil && d.Files != nil {
		files = d.Files(j.Config.Data)
	} else {
		parts = []string{"data." + j.Config.Data.Name + " (built in)"}
	}
	if text := j.Config.Text(); text != nil {
		files = append(files, *text.Path, *text.Adapter)
	}
	for _, path := range append(files, j.Config.Init.Checkpoint) {
		if path != nil {
			parts = append(parts, *path+sizeOf(*path))
		}
	}
	j.Logf("reading %s and libtorch", strings.Join(parts, ", "))
}

// sizeOf is " (1.2 GiB)", of a folder the files in it; "" for what cannot be read.
func sizeOf(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	size := info.Size()
	if info.IsDir() {
		size = 0
		files, err := os.ReadDir(path)
		if err != nil {
			return ""
		}
		for _, f := range files {
			if info, err := os.Stat(filepath.Join(path, f.Name())); err == nil && info.Mode().IsRegular() {
				size += info.Size()
			}
		}
	}
	return " (" + hostmem.Size(float64(size)) + ")"
}
