package lvlm

import (
	"errors"
	"os"

	"fulcrum/internal/option"
)

// Options is the section lvlm of the configuration: the frozen vision-language model that scores and answers, and what is kept
// of its work. Nothing of it is trained.
type Options struct {
	// where the model runs: local = in this process
	Backend string `koanf:"backend" enum:"local"`
	// Qwen2.5-VL folder, or a run of policy=qwen2_5_vl
	Path *string `koanf:"path"`
	// Jinja chat template, a file; null = the model's own
	Template *string `koanf:"template"`
	// larger images are scaled down to at most image_size × image_size pixels, in their proportions; 0 = as in the file
	ImageSize int `koanf:"image_size" range:"[0,8192]"`
	// longest answer of the model, in tokens
	MaxNewTokens int `koanf:"max_new_tokens" range:"[1,inf)"`
	// prompts that the local model reads at a time
	Batch int `koanf:"batch" range:"[1,inf)"`
	// folder that keeps every score and answer; jobs share it, also at the same time; null = nothing is kept
	Store *string `koanf:"store"`
	// before the job, rewrite the store as one file without duplicates; files that other jobs write now are left alone
	Compact bool `koanf:"compact"`
}

// DefaultOptions returns the local model, short answers and no store.
func DefaultOptions() Options {
	return Options{Backend: "local", ImageSize: 336, MaxNewTokens: 5, Batch: 16}
}

// Validate reports what cannot work before any model is opened.
func (o Options) Validate() error {
	return errors.Join(
		option.Want(o.ImageSize >= 0, "image_size", "want at least 0, got %d", o.ImageSize),
		option.Want(o.MaxNewTokens >= 1, "max_new_tokens", "want at least 1, got %d", o.MaxNewTokens),
		option.Want(o.Batch >= 1, "batch", "want at least 1, got %d", o.Batch),
		option.Want(o.Template == nil || isFile(*o.Template), "template", "no such file: %q", value(o.Template)),
		option.Want(!o.Compact || o.Store != nil, "compact", "there is no store to compact: give lvlm.store=FOLDER"))
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// value returns the text of an optional key, "" for null.
func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
