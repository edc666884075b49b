package tasks

import (
	"strings"

	"fulcrum/experiments/job"
)

// announce says what is about to be read, which may take minutes: files and folders, or the built-in data.
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
			parts = append(parts, *path)
		}
	}
	j.Logf("reading %s and libtorch", strings.Join(parts, ", "))
}
