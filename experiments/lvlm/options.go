package lvlm

import (
	"errors"
	"os"

	"fulcrum/internal/option"
)

// Options is the section lvlm of the configuration: the frozen vision-language model that scores and answers, and what is kept
// of its work. Nothing of it is trained.
type Options struct {
	// local = in this process; vllm, sglang, completions (any /v1/completions that honours echo with logprobs) = behind
	// the server at url
	Backend string `koanf:"backend" enum:"local,vllm,sglang,completions"`
	// folder of a Qwen2.5-VL or language model, or a run of policy=qwen2_5_vl; with a server its model's folder, if
	// here: prompts are then compared token by token
	Path *string `koanf:"path"`
	// address of the server, such as http://localhost:8000
	URL *string `koanf:"url"`
	// the server's name of the model; null = the only one that it serves
	Model *string `koanf:"model"`
	// name of the environment variable that holds the server's key; null = no key
	KeyEnv *string `koanf:"key_env"`
	// Jinja chat template file; null = the model's own (sglang: that in path, else Qwen2.5-VL's; completions: that in
	// path, else lines "Question:", "Short answer:")
	Template *string `koanf:"template"`
	// whether the prompts show the images; false asks about the texts alone, which is all that backend=completions reads
	Images bool `koanf:"images"`
	// larger images are scaled down to at most image_size × image_size pixels; 0 = as in the file
	ImageSize int `koanf:"image_size" range:"[0,8192]"`
	// longest answer of the model, in tokens
	MaxNewTokens int `koanf:"max_new_tokens" range:"[1,inf)"`
	// prompts that the local model reads at a time
	Batch int `koanf:"batch" range:"[1,inf)"`
	// requests to the server at a time, at most: fewer while it says that it has too many
	Concurrency int `koanf:"concurrency" range:"[1,4096]"`
	// for one request
	Timeout float64 `koanf:"timeout_seconds" range:"(0,inf)"`
	// further attempts, after 1, 2, 4, … seconds or as the server asks, when it is lost, late, overloaded or faulty
	// (5xx)
	Retries int `koanf:"retries" range:"[0,inf)"`
	// what a selection earns in training (policy=pointer), in place of data.reader: likelihood = probability of the
	// query's most frequent answer, geometric mean of its tokens; cider, vqa = of the greedy answer; null = nobody is
	// asked
	Reward *string `koanf:"reward" enum:"likelihood,cider,vqa"`
	// folder that keeps every score and answer; jobs share it; null = nothing is kept
	Store *string `koanf:"store"`
}

// DefaultOptions returns the local model, short answers and no store.
func DefaultOptions() Options {
	return Options{Backend: "local", Images: true, ImageSize: 336, MaxNewTokens: 5, Batch: 64,
		Concurrency: 32, Timeout: 120, Retries: 5}
}

func (o Options) Validate() error {
	server := o.Backend != "local"
	return errors.Join(
		option.Want(!server || o.URL != nil, "url", "lvlm.backend=%s needs the address of the server, such as http://127.0.0.1:8000", o.Backend),
		option.Tags(o),
		option.Want(o.Template == nil || isFile(*o.Template), "template", "no such file: %q", option.Or(o.Template, "")))
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
