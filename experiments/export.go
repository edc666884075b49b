package experiments

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"fulcrum/selector/pointer"
)

// exportCheckpoint writes a checkpoint, or a run folder's best, in another layout:
//
//	run checkpoint export outputs/RUN --format pt --out rce_epoch5.pt
func exportCheckpoint(args []string) error {
	usage := "want: run checkpoint export FILE_OR_RUN_FOLDER --format " + strings.Join(pointer.ExportFormats(), "|") + " [--out FILE] [--force]"
	flags := pflag.NewFlagSet("export", pflag.ContinueOnError)
	flags.Usage = func() {}
	format := flags.String("format", "", "layout to write")
	out := flags.String("out", "", "file to write; default: beside the checkpoint")
	force := flags.Bool("force", false, "replace an existing file")
	if err := flags.Parse(args); err != nil {
		return usagef("checkpoint export: %v; %s", err, usage)
	}
	if flags.NArg() != 1 || *format == "" {
		return usagef("%s", usage)
	}
	if !slices.Contains(pointer.ExportFormats(), *format) {
		return usagef("--format=%s: want one of %s", *format, strings.Join(pointer.ExportFormats(), ", "))
	}
	path, err := resolveCheckpoint(flags.Arg(0))
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
		return usagef("%s exists: --force replaces it, --out names another file", *out)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--out: %w", err)
	}
	if _, err := os.Stat(filepath.Dir(*out)); err != nil {
		return fmt.Errorf("--out=%s: %w", *out, err)
	}
	c, err := pointer.ReadCheckpoint(path)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Export(*out, *format); err != nil {
		return err
	}
	fmt.Printf("%s: %d tensors as %s → %s\n", path, len(c.Weights), *format, *out)
	return nil
}

// exportPath stands beside the checkpoint: the reference's own names differ by extension only, but for v2.
func exportPath(path, format string) string {
	base := strings.TrimSuffix(path, filepath.Ext(path))
	if format == "v2" {
		return base + "_v2.ckpt"
	}
	return base + "." + format
}

// exportTrainer writes the reference trainer's file of an epoch (checkpoint.format=pt): RUN/rce_epoch1.pt, with
// the metrics that it stores there and the KL coefficient after the epoch.
func (r *run) exportTrainer(checkpoint, phase string, epoch int, metrics map[string]any) error {
	c, err := pointer.ReadCheckpoint(checkpoint)
	if err != nil {
		return err
	}
	defer c.Close()
	kept := map[string]any{"kl_beta": r.cfg.GRPO.KL.Beta}
	for _, name := range []string{"loss", "ppo_loss", "kl_loss", "kl", "mean_ratio", "mean_advantage", "std_advantage", "max_advantage", "val_loss", "kl_beta_next"} {
		x, ok := metrics[name].(float64)
		switch {
		case !ok:
		case name == "kl_beta_next":
			kept["kl_beta"] = x
		case x-x != 0: // JSON has no such number
			kept[name] = strconv.FormatFloat(x, 'g', -1, 64)
		default:
			kept[name] = x
		}
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	c.Metadata["metrics"] = string(text)
	return c.Export(filepath.Join(r.dir, fmt.Sprintf("%s_epoch%d.pt", phase, epoch)), "pt")
}
