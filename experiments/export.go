package experiments

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"fulcrum/experiments/job"
	"fulcrum/experiments/workload"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/selector/pointer"
)

// exportCheckpoint writes a checkpoint, or a run folder's best, in another layout:
//
//	run checkpoint export outputs/RUN --format pt --out rce_epoch5.pt
//	run checkpoint export outputs/RUN --format hf --out MODEL
func exportCheckpoint(args []string) error {
	form := "want: run checkpoint export FILE_OR_RUN_FOLDER --format " + strings.Join(exportFormats(), "|") + " [--out PATH] [--force] [--base MODEL_FOLDER] [--dtype TYPE]"
	flags := pflag.NewFlagSet("export", pflag.ContinueOnError)
	flags.Usage = func() {}
	format := flags.String("format", "", "layout to write")
	out := flags.String("out", "", "file to write; default: beside the checkpoint")
	force := flags.Bool("force", false, "replace an existing file")
	base := flags.String("base", "", "model folder that adapters belong to; default: the run's own (hf, peft)")
	dtype := flags.String("dtype", "", "float32, bfloat16 or float16; default: the base's (hf)")
	if err := flags.Parse(args); err != nil {
		return usage.Errorf("checkpoint export: %v; %s", err, form)
	}
	if *format == "" && flags.NArg() > 0 {
		hint, wanted := "", *out
		if flags.NArg() == 2 && wanted == "" { // as in cp FROM TO
			wanted = flags.Arg(1)
		}
		if ext := strings.TrimPrefix(filepath.Ext(wanted), "."); slices.Contains(exportFormats(), ext) {
			hint = fmt.Sprintf(" (did you mean run checkpoint export %s --format %s --out %s?)", flags.Arg(0), ext, wanted)
		}
		return usage.Errorf("checkpoint export: no --format%s; %s", hint, form)
	}
	if flags.NArg() != 1 {
		return usage.Errorf("%s", form)
	}
	if !slices.Contains(exportFormats(), *format) {
		return usage.Errorf("--format=%s: want one of %s", *format, strings.Join(exportFormats(), ", "))
	}
	path, err := job.ResolveCheckpoint("", flags.Arg(0))
	if err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil { // best.safetensors is a link
		path = real
	}
	if *out == "" {
		*out = exportPath(path, *format)
	}
	if _, err := os.Lstat(*out); err == nil && !*force {
		return usage.Errorf("%s exists: --force replaces it, --out names another file", *out)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--out: %w", err)
	}
	if _, err := os.Stat(filepath.Dir(*out)); err != nil {
		return fmt.Errorf("--out=%s: %w", *out, err)
	}
	var other *atomicfile.NotRegularError
	if _, err := atomicfile.Target(*out); errors.As(err, &other) && !(other.Kind == "a folder" && slices.Contains(workload.FolderFormats(), *format)) {
		return usage.Errorf("--out: %v", other)
	}
	if kind, err := workload.PolicyOf(path); err != nil {
		return err
	} else if folders := slices.Contains(workload.FolderFormats(), *format); folders != workload.IsText(kind) {
		formats := pointer.ExportFormats()
		if workload.IsText(kind) {
			formats = workload.FolderFormats()
		}
		return usage.Errorf("--format=%s: %s is a checkpoint of policy %s: want one of %s", *format, path, cmp.Or(kind, "pointer"), strings.Join(formats, ", "))
	} else if folders {
		return workload.ExportModel(kind, path, *out, *format, *base, *dtype)
	}
	c, err := pointer.ReadCheckpoint(path)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Export(*out, *format); err != nil {
		return err
	}
	stdout.Printf("%s: %d tensors as %s → %s\n", path, len(c.Weights), *format, *out)
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
