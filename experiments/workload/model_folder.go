package workload

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"fulcrum/beamdata/conversation"
	"fulcrum/experiments/job"
	"fulcrum/experiments/runfolder"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/interrupt"
	"fulcrum/internal/regular"
	"fulcrum/internal/stdout"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
	"fulcrum/reports/record"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
)

// FolderFormats are the formats that are folders, of the token policies.
func FolderFormats() []string { return []string{"hf", "peft"} }

// PolicyOf is the policy that a safetensors checkpoint of ours names; "" for any other file.
func PolicyOf(path string) (string, error) {
	if filepath.Ext(path) != ".safetensors" {
		return "", nil
	}
	f, err := tensorfile.MapSafetensors(path) // the tensors are checked where they are read
	if err != nil {
		return "", err
	}
	defer f.Close()
	return f.Metadata["policy"], nil
}

// IsText reports whether a checkpoint's policy writes tokens.
func IsText(kind string) bool { return slices.Contains(textPolicies().Names(), kind) }

// folderModel is a token policy's model that can be written as a Hugging Face folder.
type folderModel interface {
	Adapted() *lora.Config
	SaveAdapter(path, baseName string) error
	SaveMerged(path, dtype string) error
	Params() *torchx.Params
	Free()
}

// ExportModel writes a checkpoint of a token policy as a Hugging Face folder: the whole model with adapters merged (hf),
// or its adapters alone (peft).
func ExportModel(kind, path, out, format, base, dtype string) error {
	if err := torchx.Load(); err != nil {
		return err
	}
	torchx.Attach(1)
	trained, err := writeModel(kind, path, out, format, base, dtype)
	if err != nil {
		return err
	}
	stdout.Printf("%s: %d trained parameters as %s → %s\n", path, trained, format, out)
	return nil
}

// writeModel writes the folder, complete or not at all, and returns how many weights of it were trained. libtorch is
// there.
func writeModel(kind, path, out, format, base, dtype string) (trained int, err error) {
	if base == "" {
		base = baseOf(path, kind)
	}
	folder, onto := besideCheckpoint(path), (*string)(nil)
	if base != "" {
		folder, onto = base, &base
	}
	warn := func(message string) { stdout.Message(stdout.Errors(), "warning: "+message) }
	policy, err := textPolicies().Get(kind)
	if err != nil {
		return 0, err
	}
	model, saveText, err := policy.OpenFolder(path, onto, folder, warn)
	if err != nil {
		return 0, err
	}
	defer model.Free()
	tmp, remove, err := interrupt.Folder(filepath.Dir(out), ".export.tmp*") // complete or absent
	if err != nil {
		return 0, fmt.Errorf("--out=%s: %w", out, usage.Reason(err))
	}
	defer remove()
	if err := os.Chmod(tmp, 0o755); err != nil {
		return 0, err
	}
	switch {
	case format != "peft":
		if err = model.SaveMerged(tmp, dtype); err == nil {
			err = saveText(tmp)
		}
	case model.Adapted() == nil:
		return 0, usage.Errorf("--format=peft: %s has no adapters (%s.lora.enabled=true trains some); hf writes the whole "+
			"model", path, sectionOf(kind))
	default:
		err = model.SaveAdapter(tmp, base)
	}
	if err == nil {
		err = atomicfile.RemoveAll(out)
	}
	if err != nil {
		return 0, err
	}
	if err := os.Rename(tmp, out); err != nil {
		return 0, fmt.Errorf("--out=%s: %w", out, err)
	}
	return model.Params().Numel(), atomicfile.SyncDir(filepath.Dir(out))
}

// settleAdapters gives adapters the dropout that is configured, whatever they were trained with before. It refuses settings of theirs,
// typed or not the default, that init.checkpoint, which decides, does not have. An adapter beside it is only warned of: an arm of a study
// that starts from another's checkpoint has the key from the arms' configuration.
func settleAdapters(j *job.Job, section, checkpoint string, o tokens.Options, has *lora.Config) error {
	for _, set := range typed(j, section+".lora.") {
		if has == nil && checkpoint != "" {
			j.Log.Warnf("%s has no effect: %s was trained without adapters", set, checkpoint)
		} else if has == nil && o.Path == nil {
			j.Log.Warnf("%s has no effect: without %s.path the model is made from random weights and trained whole", set, section)
		}
	}
	if checkpoint != "" && o.Adapter != nil {
		j.Log.Warnf("%s.adapter=%s has no effect: the adapters are those of init.checkpoint=%s", section, *o.Adapter, checkpoint)
	}
	if has == nil {
		return nil
	}
	has.Dropout = o.LoRA.Dropout
	sorted := func(names []string) string { return fmt.Sprint(slices.Sorted(slices.Values(names))) }
	own, asked := lora.DefaultOptions(), o.LoRA
	for _, key := range []struct {
		name             string
		asked, own, here any
	}{
		{"rank", asked.Rank, own.Rank, has.Rank}, {"alpha", asked.Alpha, own.Alpha, has.Alpha},
		{"rslora", asked.RSLoRA, own.RSLoRA, has.RSLoRA},
		{"target_modules", sorted(asked.TargetModules), sorted(own.TargetModules), sorted(has.Targets)},
	} {
		name := section + ".lora." + key.name
		switch {
		case checkpoint == "", key.asked == key.own && len(typed(j, name+"=")) == 0, key.asked == key.here:
		case key.name == "target_modules" && (has.Targets == nil || len(asked.TargetModules) == 0): // a pattern; those of the model's class
		default:
			return usage.Errorf("%s=%v contradicts %s, which was trained with %v", name, key.asked, checkpoint, key.here)
		}
	}
	return nil
}

// openWords opens or makes what a token policy reads and writes words with, of the model that its options o or init.checkpoint name.
// o.Path is the model's folder then (nil: none), checkpoint that of init.checkpoint ("": none). bundle is nil for tasks without training
// data. blamed puts what is wrong with the folder down to SECTION.path.
func openWords[W any](j *job.Job, kind string, o *tokens.Options, blamed bool, bundle *conversation.Bundle,
	open func(folder string) (W, error), builtin func(*job.Config, *conversation.Bundle) (W, error)) (words W, checkpoint string, err error) {
	section := sectionOf(kind)
	folder, checkpoint, err := originOf(j, kind, o.Path)
	if err != nil {
		return words, "", err
	}
	o.Path = folder
	switch {
	case folder != nil:
		if words, err = open(*folder); err != nil && blamed {
			err = usage.Errorf("%s.path: %v (want a model folder on disk: nothing is downloaded)", section, err)
		}
	case checkpoint != "":
		words, err = open(besideCheckpoint(checkpoint))
	case bundle == nil:
		err = usage.Errorf("%[1]s.path: task=%[2]s needs a model folder (%[1]s.path=DIR) or a run from random weights "+
			"(init.checkpoint=RUN_FOLDER)", section, j.Config.Task)
	default:
		words, err = builtin(j.Config, bundle)
	}
	return words, checkpoint, err
}

// originOf is where a token policy comes from: a model folder (nil: none), as its section's path, a run named there, or
// the run that wrote init.checkpoint says; and that checkpoint ("": none).
func originOf(j *job.Job, kind string, path *string) (folder *string, checkpoint string, err error) {
	if from := j.Config.Init.Checkpoint; from != nil {
		if checkpoint, err = job.ResolveCheckpoint("init.checkpoint", *from); err != nil {
			return nil, "", err
		}
		j.WarnUntrained(checkpoint)
		if path == nil {
			if base := baseOf(checkpoint, kind); base != "" { // the run trained a part of a model folder
				return &base, checkpoint, nil
			}
		}
	}
	if path == nil {
		return nil, checkpoint, nil
	}
	model, err := modelOf(j, kind, *path)
	return &model, checkpoint, err
}

// modelOf resolves what PATH of vl.path or seq2seq.path stands for: a model folder is used as it is. A run of that
// policy, or one of its checkpoints, stands for the model that it trained, adapters merged: it is written to the model
// folder of this run once, and found there by everything that opens this run later.
func modelOf(j *job.Job, kind, path string) (string, error) {
	key := sectionOf(kind) + ".path"
	out := filepath.Join(j.Dir, runfolder.ModelFolder)
	if isModel(out) { // a resume
		return out, nil
	}
	if _, err := os.Stat(filepath.Join(path, "config.json")); err == nil {
		return path, nil
	}
	checkpoint, err := job.ResolveCheckpoint(key, path)
	if err != nil {
		return path, nil // what opens the folder says what is wrong with it
	}
	j.WarnUntrained(checkpoint)
	if real, err := filepath.EvalSymlinks(checkpoint); err == nil {
		checkpoint = real
	}
	if of, err := PolicyOf(checkpoint); err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	} else if of != kind {
		return "", usage.Errorf("%s=%s: a checkpoint of policy %s, want a model folder, or a run of policy %s", key, path,
			cmp.Or(of, "pointer"), kind)
	}
	if j.Config.DryRun { // leaves nothing behind
		tmp, remove, err := interrupt.Folder("", "fulcrum-model")
		if err != nil {
			return "", err
		}
		j.AtEnd(removed(remove))
		out = filepath.Join(tmp, runfolder.ModelFolder)
	}
	if _, err := writeModel(kind, checkpoint, out, "hf", "", ""); err != nil {
		return "", fmt.Errorf("%s=%s: %w", key, path, err)
	}
	return out, nil
}

// removed is a temporary folder that goes when it is closed.
type removed func()

func (remove removed) Close() error {
	remove()
	return nil
}

// isModel reports whether a folder has weights: that of a run from scratch has none.
func isModel(dir string) bool {
	files, err := regular.Glob(dir, "*.safetensors")
	return err == nil && len(files) > 0
}

// baseOf is the model folder (vl.path, seq2seq.path) of the run that wrote a checkpoint of a kind of policy, or of the run
// that it started from; "" where there was none or its run is not there.
func baseOf(checkpoint, kind string) string {
	const generations = 100 // runs may be edited into a circle
	for range generations {
		if own := besideCheckpoint(checkpoint); isModel(own) { // modelOf wrote it
			return own
		}
		base, start := startOfRun(runOf(checkpoint), kind)
		if base != "" || start == "" {
			return base
		}
		next, err := job.ResolveCheckpoint("", start)
		if err != nil {
			return ""
		}
		checkpoint = next
	}
	return ""
}

// startOfRun is what a run started from: a model folder, or a checkpoint; "" for what it did not.
func startOfRun(dir, kind string) (base, checkpoint string) {
	run := record.Run{Dir: dir}
	if run.ReadConfig() != nil {
		return "", ""
	}
	absolute := func(setting any) string { // relative to where the run was started
		path, _ := setting.(string)
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		saved, err := runfolder.ReadSaved(dir)
		if err != nil {
			return path
		}
		return filepath.Join(saved.Hydra.Runtime.Cwd, path)
	}
	return absolute(run.Setting(sectionOf(kind), "path")), absolute(run.Setting("init", "checkpoint"))
}

// runOf is the folder of the run that wrote a checkpoint: RUN/checkpoints/x.safetensors.
func runOf(checkpoint string) string {
	if real, err := filepath.EvalSymlinks(checkpoint); err == nil {
		checkpoint = real
	}
	return filepath.Dir(filepath.Dir(checkpoint))
}

// besideCheckpoint is that run's model folder.
func besideCheckpoint(checkpoint string) string {
	return filepath.Join(runOf(checkpoint), runfolder.ModelFolder)
}

// keepModel writes what the checkpoints of a model from random weights don't hold, so that they can be
// opened and exported: config.json, and what save writes of texts and pictures.
func keepModel(j *job.Job, config []byte, save func(dir string) error) error {
	dir := filepath.Join(j.Dir, runfolder.ModelFolder)
	if err := atomicfile.MkdirAll(dir); err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(dir, "config.json"), config, 0o644); err != nil {
		return err
	}
	return save(dir)
}
