//go:build !core

package workload

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/experiments/icl"
	"fulcrum/experiments/job"
	"fulcrum/experiments/lvlm"
	"fulcrum/internal/digest"
	"fulcrum/internal/list"
	"fulcrum/internal/usage"
	"fulcrum/selector/vl"
)

// Scorer is the frozen model of the section lvlm with its store before it.
type Scorer struct {
	*lvlm.Stored
	Tokens func(lvlm.Prompt) (int, error) // how many a prompt has; nil where only a server knows
}

// OpenScorer opens the model and the store. They are closed when the task has ended.
func OpenScorer(ctx context.Context, j *job.Job) (*Scorer, error) {
	o, out := *lvlmOf(j.Config), &Scorer{}
	if err := o.Validate(); err != nil { // each line begins with a key of the section
		return nil, usage.Errorf("lvlm.%s", strings.ReplaceAll(err.Error(), "\n", "\nlvlm."))
	}
	stored, err := lvlm.Open(ctx, o, func() (lvlm.Scorer, error) {
		if o.Path == nil {
			return nil, usage.Errorf("lvlm.path: want the folder of a Qwen2.5-VL or of a language model, or a run of policy=%s", vl.Kind)
		}
		if o.Backend != "local" && !slices.ContainsFunc(filesOf(*o.Path), func(f string) bool { return filepath.Ext(f) == ".safetensors" }) {
			return nil, fmt.Errorf("lvlm.path=%s has no weights", *o.Path) // but the tokens to compare a server's with
		}
		local, err := openLocal(j, "lvlm.path", *o.Path, icl.LocalOptions{Template: o.Template, ImageSize: o.ImageSize,
			MaxNewTokens: o.MaxNewTokens})
		if err != nil || o.Backend != "local" {
			return local, err
		}
		out.Tokens = local.Tokens
		if !o.Images {
			out.Tokens = func(p lvlm.Prompt) (int, error) { return local.Tokens(p.WithoutImages()) }
		}
		return local, nil
	})
	if err != nil {
		return nil, err
	}
	for _, note := range stored.Notes {
		j.Logf("lvlm: %s", note)
	}
	out.Stored = stored
	j.AtEnd(stored)
	return out, nil
}

// Vouch asks a server again for what has not been asked again yet, counts that in the record, and lets the store take what the server
// said: before results are written.
func (s *Scorer) Vouch(ctx context.Context, j *job.Job) error {
	note, err := s.Settle(ctx)
	if note != "" {
		j.Logf("lvlm: %s", note)
	}
	if c := s.Counts(); c.Again > 0 && j.Data.Counts != nil {
		j.Data.Counts["asked_again"], j.Data.Counts["differing_again"] = int(c.Again), int(c.Strayed)
		if c.Strayed > 0 && err == nil {
			j.Log.Warnf("lvlm: %d of %d prompts that were asked again had another answer", c.Strayed, c.Again)
		}
	}
	return err
}

// openLocal opens the vision-language model of a folder, or of a run of policy=qwen2_5_vl, to score and to answer: nothing of it
// is trained. key names the option that path comes from.
func openLocal(j *job.Job, key, path string, o icl.LocalOptions) (*icl.Local, error) {
	if err := j.MapTorch(func() error { return nil }); err != nil {
		return nil, err
	}
	c, own := j.Config.Copy(), *j
	frozen := vlOf(c)
	*frozen, own.Config, c.Init.Checkpoint = vl.DefaultOptions(), c, nil
	frozen.LoRA.Enabled = false
	var files []string
	if is, err := CheckArchitecture(key, path, vl.Kind); err != nil {
		return nil, err
	} else if is {
		frozen.Path = &path
		files = filesOf(path)
	} else {
		if err := CheckDownloaded(key, path); err != nil {
			return nil, err
		}
		checkpoint, err := job.ResolveCheckpoint(key, path)
		if err != nil {
			return nil, usage.Errorf("%s=%s: want a model folder with config.json, tokenizer and *.safetensors, or a run of policy=%s: %v", key,
				path, vl.Kind, err)
		}
		if of, err := PolicyOf(checkpoint); err != nil || of != vl.Kind {
			return nil, usage.Errorf("%s=%s: %s is no checkpoint of policy=%s", key, path, checkpoint, vl.Kind)
		}
		c.Init.Checkpoint, files = &checkpoint, []string{checkpoint}
		if base := baseOf(checkpoint, vl.Kind); base != "" {
			files = append(files, filesOf(base)...)
		}
	}
	sum, err := contents(files)
	if err != nil {
		return nil, fmt.Errorf("%s=%s: %w", key, path, err)
	}
	model, proc, err := openVL(&own, nil)
	if err != nil {
		return nil, fmt.Errorf("%s=%s: %w", key, path, err)
	}
	o.Threads = j.Threads()
	local, err := icl.NewLocal(model, proc, sum, o)
	if err != nil {
		model.Free()
		return nil, usage.Errorf("%v", err)
	}
	return local, nil
}

// filesOf lists a folder: its name may hold what a pattern would read as one.
func filesOf(dir string) (paths []string) {
	entries, _ := os.ReadDir(dir) // what opens the model says what is wrong
	return list.Map(entries, func(e os.DirEntry) string { return filepath.Join(dir, e.Name()) })
}

// Contents is one digest of what decides the numbers of the model in a folder.
func Contents(folder string) (string, error) { return contents(filesOf(folder)) }

// contents is one digest of what decides a model's numbers: the files with weights, sizes, vocabulary and template.
func contents(files []string) (string, error) {
	h := digest.New()
	for _, f := range files {
		if !slices.Contains([]string{".safetensors", ".bin", ".json", ".jinja", ".txt", ".model", ".pt", ".pth", ".ckpt"}, filepath.Ext(f)) {
			continue
		}
		sum, _, err := digest.File(f)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, filepath.Base(f), sum)
	}
	return h.Hex(), nil
}
