package workload

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"fulcrum/experiments/job"
	"fulcrum/experiments/runfolder"
	"fulcrum/internal/list"
	"fulcrum/internal/nearpath"
	"fulcrum/internal/regular"
	"fulcrum/internal/usage"
	"fulcrum/selector/tokens"
)

// hubName is the name of a model on the Hub: ORGANISATION/MODEL.
var hubName = regexp.MustCompile(`^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$`)

// typed returns the settings on the command line that begin so.
func typed(j *job.Job, prefix string) []string {
	return list.Filter(j.Overrides, func(o string) bool { return strings.HasPrefix(strings.TrimLeft(o, "+"), prefix) })
}

// CheckDownloaded refuses a model's path where there is nothing, with the command that downloads what has a name of the Hub.
func CheckDownloaded(key, path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if slices.Contains([]string{"random", "scratch", "none", "init"}, path) && (key == "vl.path" || key == "seq2seq.path") {
		return usage.Errorf("%s=%s: no such folder (did you mean %[1]s=null? It is a small model from random weights)", key, path)
	}
	hint, name := nearpath.Hint(path), path
	if hint == "" && hubName.MatchString("ORGANISATION/"+path) { // t5-small
		name = "ORGANISATION/" + path
	}
	if hubName.MatchString(name) {
		local := "models/" + filepath.Base(path)
		return usage.Errorf("%s=%s: no such folder, and nothing is downloaded: `hf download %s --local-dir %s`, then %s=%s",
			key, path, name, local, key, local)
	}
	return usage.Errorf("%s=%s: no such folder%s: nothing is downloaded", key, path, hint)
}

// checkModelPath refuses a vl.path or seq2seq.path that leads to no model folder, run or checkpoint.
func checkModelPath(j *job.Job) error {
	path := j.Config.Text().Path
	if path == nil || isModel(filepath.Join(j.Dir, runfolder.ModelFolder)) { // a resume has its model
		return nil
	}
	return checkModelAt(j.Config.Section()+".path", *path, j.Config.Policy)
}

// checkModelAt refuses a path, given by a key, that leads to no model folder, run or checkpoint of the policy.
func checkModelAt(key, p, policy string) error {
	if err := CheckDownloaded(key, p); err != nil {
		return err
	}
	if info, err := os.Stat(p); err == nil && !info.IsDir() {
		of, _ := PolicyOf(p) // a checkpoint of ours may lie there, too
		if _, err := os.Stat(filepath.Join(filepath.Dir(p), "config.json")); err == nil && of == "" {
			return usage.Errorf("%s=%s: a file of a model folder: want the folder, %s=%s", key, p, key, filepath.Dir(p))
		}
		return nil
	}
	if is, err := CheckArchitecture(key, p, policy); is || err != nil {
		return err
	}
	if _, err := job.ResolveCheckpoint(key, p); err == nil {
		return nil
	}
	names, err := os.ReadDir(p)
	if err != nil {
		return usage.Errorf("%s=%s: %v", key, p, usage.Reason(err))
	}
	holds := "the folder is empty"
	if len(names) > 0 {
		const most = 5
		first := list.Map(names[:min(most, len(names))], os.DirEntry.Name)
		holds = "the folder has no config.json (it holds " + strings.Join(first, ", ") + ")"
	}
	return usage.Errorf("%s=%s: %s: want a model folder as save_pretrained writes it, with config.json, tokenizer and *.safetensors, "+
		"or a run of policy=%s", key, p, holds, policy)
}

// CheckArchitecture refuses a model folder, given by a key, whose architecture the policy does not read, before its tokenizer is opened:
// another model has another one. is says whether the folder has a config.json.
func CheckArchitecture(key, folder, policy string) (is bool, err error) {
	at := filepath.Join(folder, "config.json")
	config, err := regular.ReadFile(at)
	if err != nil {
		return false, nil // what opens it says what is wrong
	}
	if _, err := tokens.ModelType(policy, config); err != nil {
		return true, usage.Errorf("%s: %s: %v", key, at, err)
	}
	return true, nil
}
