package job

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/nearpath"
	"fulcrum/internal/regular"
	"fulcrum/internal/usage"
	"fulcrum/phases"
)

// ResolveCheckpoint turns a run folder into its best checkpoint, else its last. key is the configuration key of the path, or "".
func ResolveCheckpoint(key, path string) (string, error) {
	if key != "" {
		key += "="
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		phase, _, ofEpoch := strings.Cut(filepath.Base(path), "_epoch")
		if kept, _ := regular.Glob(filepath.Dir(path), phase+"_epoch*.safetensors"); len(kept) > 0 && ofEpoch {
			names := list.Map(kept[:min(len(kept), 9)], filepath.Base)
			return "", usage.Errorf("%s%s: no such file: of %s its run has kept %s (checkpoint.keep, checkpoint.keep_states): name one, or the "+
				"run folder", key, path, phase, strings.Join(names, ", "))
		}
		return "", usage.Errorf("%s%s: no such file or folder%s: want a run folder or a checkpoint file", key, path, nearpath.Hint(path))
	}
	if err != nil {
		return "", fmt.Errorf("%s%w", key, err)
	}
	if !info.IsDir() {
		run := filepath.Dir(path)
		if info, err := os.Stat(filepath.Join(run, "checkpoints")); err == nil && info.IsDir() &&
			!slices.Contains([]string{".safetensors", ".pt", ".pth", ".ckpt", ".bin"}, filepath.Ext(path)) {
			return "", usage.Errorf("%s%s: no checkpoint: want one of %s, or the run folder, %s", key, path, filepath.Join(run, "checkpoints"), run)
		}
		return path, nil
	}
	for _, name := range []string{"best", "last"} {
		file := filepath.Join(path, "checkpoints", name+".safetensors")
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
	}
	hint := "name a run folder or a checkpoint file"
	if _, err := os.Stat(filepath.Join(path, "checkpoints", phases.InitialCheckpoint)); err == nil {
		hint = "no epoch of this run has ended; the policy that it began with is checkpoints/" + phases.InitialCheckpoint
	} else if run := filepath.Dir(filepath.Clean(path)); filepath.Base(path) == "checkpoints" {
		hint = "name one of its files or the run folder, " + run
	} else if jobs, _ := regular.Glob(path, "*/checkpoints/best.safetensors"); len(jobs) > 0 {
		hint = "name one of the runs below it, such as " + filepath.Dir(filepath.Dir(jobs[0]))
	}
	return "", usage.Errorf("%s%s: the folder has no checkpoints/best.safetensors or last.safetensors; %s", key, path, hint)
}

// Untrained says whether a run's best checkpoint, as ResolveCheckpoint names it, is the policy that the run began with.
func Untrained(checkpoint string) bool {
	real, err := filepath.EvalSymlinks(checkpoint)
	return err == nil && filepath.Base(checkpoint) == "best.safetensors" && filepath.Base(real) == phases.InitialCheckpoint
}

// WarnUntrained says so.
func (j *Job) WarnUntrained(checkpoint string) {
	if text := UntrainedNote(checkpoint); text != "" {
		j.Log.Warnf("%s", text)
	}
}

// UntrainedNote is the warning of an untrained best checkpoint; "" for any other.
func UntrainedNote(checkpoint string) string {
	if !Untrained(checkpoint) {
		return ""
	}
	return fmt.Sprintf("%s is the policy that its run began with, the best one by checkpoint.best. Training ended with %s", checkpoint,
		filepath.Join(filepath.Dir(checkpoint), "last.safetensors"))
}
