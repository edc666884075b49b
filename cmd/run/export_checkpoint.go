package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/experiments/job"
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/workload"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/hffolder"
	"fulcrum/internal/nearpath"
	"fulcrum/internal/program"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/selector/pointer"
)

// exportOptions are the flags of run checkpoint export.
type exportOptions struct {
	format, out, base, dtype string
	force                    bool
}

// exportCheckpoint writes a checkpoint, or a run folder's best, in another layout:
//
//	run checkpoint export outputs/RUN --format pt --out rce_epoch5.pt
//	run checkpoint export outputs/RUN --format hf --out MODEL
func exportCheckpoint(args []string, opt exportOptions) error {
	form := "want: `run checkpoint export FILE_OR_RUN_FOLDER --format " + strings.Join(exportFormats(), "|") +
		" [--out PATH] [--force] [--base MODEL_FOLDER] [--dtype TYPE]`"
	if opt.format == "" && len(args) > 0 {
		hint, wanted := "", opt.out
		if len(args) == 2 && wanted == "" { // as in cp FROM TO
			wanted = args[1]
		}
		if ext := strings.TrimPrefix(filepath.Ext(wanted), "."); slices.Contains(exportFormats(), ext) {
			hint = fmt.Sprintf("; did you mean %s?", program.Command("checkpoint", "export", args[0], "--format", ext, "--out", wanted))
		}
		return usage.Errorf("checkpoint export: no --format%s; %s", hint, form)
	}
	if len(args) != 1 {
		return usage.Errorf("%s", form)
	}
	if !slices.Contains(exportFormats(), opt.format) {
		return usage.Errorf("--format=%s: want one of %s", opt.format, strings.Join(exportFormats(), ", "))
	}
	if opt.dtype != "" && opt.format != "hf" || opt.base != "" && !slices.Contains(workload.FolderFormats(), opt.format) {
		return usage.Errorf("--format=%s: --dtype is for hf, --base for %s", opt.format, strings.Join(workload.FolderFormats(), " and "))
	}
	path, err := job.ResolveCheckpoint("", args[0])
	if err != nil {
		return err
	}
	if note := job.UntrainedNote(path); note != "" {
		stdout.Message(stdout.Errors(), "warning: "+note)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil { // best.safetensors is a link
		path = real
	}
	opt.out = cmp.Or(opt.out, exportPath(path, opt.format))
	if err := mayReplace(opt.out); err != nil {
		return err
	}
	if _, err := os.Lstat(opt.out); err == nil && !opt.force {
		return usage.Errorf("%s exists: --force replaces it, --out names another file", opt.out)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--out: %w", err)
	}
	if _, err := os.Stat(filepath.Dir(opt.out)); err != nil {
		return usage.Errorf("--out=%s: %v%s", opt.out, usage.Reason(err), nearpath.Hint(opt.out))
	}
	var other *atomicfile.NotRegularError
	if _, err := atomicfile.Target(opt.out); errors.As(err, &other) &&
		!(other.Kind == "a folder" && slices.Contains(workload.FolderFormats(), opt.format)) {
		return usage.Errorf("--out: %v", other)
	}
	if kind, err := workload.PolicyOf(path); err != nil {
		return err
	} else if folders := slices.Contains(workload.FolderFormats(), opt.format); folders != workload.IsText(kind) && opt.format != "peft" {
		formats := append(pointer.ExportFormats(), "peft")
		if workload.IsText(kind) {
			formats = workload.FolderFormats()
		}
		return usage.Errorf("--format=%s: %s is a checkpoint of policy %s: want one of %s", opt.format, path,
			cmp.Or(kind, "pointer"), strings.Join(formats, ", "))
	} else if workload.IsText(kind) {
		return workload.ExportModel(kind, path, opt.out, opt.format, opt.base, opt.dtype)
	}
	c, err := pointer.ReadCheckpoint(path)
	if err != nil {
		return err
	}
	defer c.Close()
	written := len(c.Weights)
	if opt.format == "peft" {
		written, err = c.ExportAdapters(opt.out, opt.base)
	} else {
		err = c.Export(opt.out, opt.format)
	}
	if err != nil {
		return err
	}
	stdout.Printf("%s: %d tensors as %s → %s\n", path, written, opt.format, opt.out)
	return nil
}

// mayReplace refuses what --force would take from a run, or remove with a folder that is not only a model's.
func mayReplace(out string) error {
	if runfolder.Writes(out) && (filepath.Ext(out) == ".safetensors" || filepath.Base(filepath.Dir(out)) != "checkpoints") {
		return usage.Errorf("--out=%s: a run writes this file of its folder itself: want another name", out)
	}
	entries, _ := os.ReadDir(out)
	for _, e := range entries {
		if e.IsDir() || !hffolder.Part(e.Name()) {
			return usage.Errorf("--out=%s: this folder holds %s, which is no part of a model: want another name", out, e.Name())
		}
	}
	return nil
}

func exportFormats() []string { return append(pointer.ExportFormats(), workload.FolderFormats()...) }

// exportPath stands beside the checkpoint: the reference's own names differ by extension only, but for v2.
func exportPath(path, format string) string {
	base := strings.TrimSuffix(path, filepath.Ext(path))
	if format == "v2" {
		return base + "_v2.ckpt"
	}
	if slices.Contains(workload.FolderFormats(), format) {
		return base + "_" + format
	}
	return base + "." + format
}
