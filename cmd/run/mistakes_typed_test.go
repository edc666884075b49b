package main_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// 114 further mistakes, chosen and typed by others than those of TestMistakes; docs/log/trials.md has the marks of before.
func TestTypedMistakes(t *testing.T) {
	t.Parallel()
	tryMistakes(t, typedMistakes(t), 114, "testdata/mistakes_typed.txt")
}

func typedMistakes(t *testing.T) []mistake {
	good := beams(t, records())
	emb := good[2]
	dir := filepath.Dir(strings.TrimPrefix(good[1], "data.beams="))
	own := func(name, text string) []string {
		write(t, filepath.Join(dir, name), text)
		return []string{"data=beams", "data.beams=" + filepath.Join(dir, name), emb}
	}
	typed := func(words ...string) []string { return append([]string{"exp=okvqa_v3"}, words...) }
	records := filepath.Join(dir, "records.jsonl")
	write(t, records, `{"id": 1, "question": "what is it?", "answers": ["a cat"]}`)
	config := func(text string) []string {
		at := t.TempDir()
		write(t, filepath.Join(at, "mine.yaml"), text)
		return []string{"-cd", at, "-cn", "mine"}
	}
	equal := regexp.MustCompile(`"score_list":\[[^]]*\]`).ReplaceAllString(legacyBeams(nil), `"score_list":[0.5,0.5,0.5,0.5,0.5]`)
	if err := os.MkdirAll(filepath.Join(dir, "outputs/a/.hydra"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "outputs/a/.hydra/config.yaml"), "")
	run0, _ := trained(t)
	return []mistake{
		{"exp as a flag", 5, 2, []string{"--exp", "okvqa_v3"}, nil},
		{"blanks around =", 5, 2, typed("grpo.lr", "=", "1e-3"), nil},
		{"a blank behind =", 5, 2, typed("grpo.lr=", "1e-3"), nil},
		{"a colon for =", 5, 2, typed("grpo.lr:1e-3"), nil},
		{"a slash for a dot", 5, 2, typed("grpo/lr=1e-3"), nil},
		{"capitals", 5, 2, typed("GRPO.lr=1e-3"), nil},
		{"a task as a command", 5, 2, append([]string{"train"}, typed()...), nil},
		{"two experiments without -m", 4, 2, []string{"exp=okvqa_v3,okvqa_online"}, nil},
		{"half an epoch", 5, 2, typed("grpo.epochs=2.5"), nil},
		{"a number for a schedule", 5, 2, typed("rce.temperature=0.5"), nil},
		{"a number for the penalty's section", 4, 2, typed("grpo.kl=0.1"), nil},
		{"a method without its underscore", 5, 2, typed("grpo.advantage.method=zscore"), nil},
		{"another optimizer", 5, 2, typed("optim=adam"), nil},
		{"the optimizer's rate", 4, 2, typed("optim.lr=1e-3"), nil},
		{"a selector that there is not", 4, 2, typed("selector=v5"), nil},
		{"OK-VQA without its folder", 5, 2, typed("data=okvqa"), nil},
		{"files in each other's place", 5, 1, []string{"data=beams", "data.beams=" + strings.TrimPrefix(emb, "data.embeddings="),
			"data.embeddings=" + strings.TrimPrefix(good[1], "data.beams=")}, nil},
		{"a folder for a beam file", 4, 1, []string{"data=beams", "data.beams=" + dir, emb}, nil},
		{"an empty folder's name", 5, 2, typed("hydra.run.dir="), nil},
		{"a file for the run's folder", 5, 2, typed("hydra.run.dir=" + strings.TrimPrefix(emb, "data.embeddings=")), nil},
		{"+ before a key that is there", 5, 2, typed("+grpo.lr=1e-3"), nil},
		{"~ before a key", 5, 2, typed("~grpo.lr"), nil},
		{"YAML with a bracket left open", 4, 2, config("a: [1\n"), nil},
		{"YAML with a tab", 5, 2, config("grpo:\n\tlr: 1e-3\n"), nil},
		{"an experiment as the primary configuration", 4, 2, []string{"-cn", "okvqa_v3"}, nil},
		{"an empty schedule", 5, 2, tiny("schedule=[]"), nil},
		{"a list left open", 4, 2, typed("schedule=[rce"), nil},
		{"a list without brackets", 4, 2, typed("schedule=rce,grpo"), nil},
		{"a range without values", 4, 2, append([]string{"-m"}, typed("seed=range(5,0)", "hydra.sweep.dir="+dir+"/s")...), nil},
		{"a sweeper with a letter too many", 5, 2, append([]string{"-m"}, typed("hydra/sweeper=tpee")...), nil},
		{"a report of a folder of runs", 5, 2, []string{"report", filepath.Join(dir, "outputs")}, nil},
		{"a resume with another rate", 5, 2, []string{"resume", run0, "grpo.lr=1e-5"}, nil},
		{"a command with two letters swapped", 5, 2, []string{"reprot", run0}, nil},
		{"equal scores", 5, 1, small(own("equal.json", equal), "checks.off=[]"), nil},
		{"an empty beam file", 5, 1, own("empty.json", "{}"), nil},
		{"a table in CSV", 5, 1, own("beams.csv", "a,b\n1,2\n"), nil},
		{"a metric of validation without val_", 5, 2, typed("checkpoint.best.metric=accuracy"), nil},
		{"one beta", 5, 2, typed("optim.betas=0.9"), nil},
		{"half a task's name", 5, 2, []string{"task=eval"}, nil},
		{"a name of the Hub for an encoder", 5, 2, []string{"task=embed", "embed.in=" + records, "embed.modality=text",
			"encoder.path=openai/clip-vit-base-patch32"}, nil},
		{"records that are not there", 5, 2, []string{"task=embed", "embed.in=nowhere.jsonl", "encoder.path=clip"}, nil},
		{"a server without its address", 5, 2, []string{"task=beams", "data.records_icl=" + records, "lvlm.backend=vllm"}, nil},
		{"beams for records", 5, 1, []string{"task=beams", "data.records_icl=" + strings.TrimPrefix(good[1], "data.beams="), "lvlm.backend=vllm",
			"lvlm.url=http://127.0.0.1:1"}, nil},
		{"a schedule with a dash", 5, 2, []string{"exp=icl_shapes", "icl.selectors=[rce-grpo]"}, nil},
		{"a model's reward where a reader is", 5, 2, tiny("lvlm.reward=likelihood"), nil},
		{"a key below a switch", 5, 2, typed("logging.wandb.project=mine"), nil},
		{"a reward with two letters swapped", 5, 2, typed("rewards.jugde.weight=1"), nil},
		{"a word for a port", 4, 2, []string{"board", dir, "--port", "http"}, nil},
		{"a folder of runs to verify", 5, 2, []string{"verify", filepath.Join(dir, "outputs")}, nil},
		{"a command behind settings", 5, 2, typed("resume", "outputs/x"), nil},
		{"a command with =", 5, 2, []string{"resume=" + run0}, nil},
		{"blanks behind commas", 5, 2, append([]string{"-m"}, typed("seed=0,", "1,", "2")...), nil},
		{"a list that the shell split", 5, 2, typed("schedule=[rce,", "grpo]"), nil},
		{"an experiment's file", 4, 2, []string{"exp=configs/conf/exp/okvqa_v3.yaml"}, nil},
		{"beams without data=beams", 5, 2, []string{good[1], emb}, nil},
		{"a beam file for a kind of data", 5, 2, []string{"data=" + strings.TrimPrefix(good[1], "data.beams="), emb}, nil},
		{"half a command", 4, 2, []string{"inspect", dir}, nil},
		{"two settings in quotes", 5, 2, []string{"exp=okvqa_v3 seed=1"}, nil},
		{"a dash that is no hyphen", 5, 2, typed("–m", "seed=0,1"), nil},
		{"a comma between settings", 5, 2, []string{"exp=okvqa_v3,", "seed=1"}, nil},
		{"a decimal comma", 5, 2, typed("rce.lr=0,001"), nil},
		{"a sweep in brackets", 5, 2, typed("-m", "rce.lr=[1e-3,1e-4]"), nil},
		{"a task as a command", 5, 2, []string{"predict", run0}, nil},
		{"another trainer's KL target", 5, 2, typed("grpo.kl.target=0.12"), nil},
		{"a home folder behind =", 5, 2, []string{"data=beams", "data.beams=~/beams.json", emb}, nil},
		{"a checkpoint to resume", 5, 2, []string{"resume", filepath.Join(run0, "checkpoints/best.safetensors")}, nil},
		{"a file to list", 4, 2, []string{"ls", filepath.Join(run0, "metrics.jsonl")}, nil},
		{"values of a sweep apart", 4, 2, append([]string{"-m"}, typed("seed=0", "1", "2")...), nil},
		{"+ before an experiment", 4, 2, []string{"+exp=okvqa_v3"}, nil},
		{"a variable in single quotes", 5, 2, typed("init.checkpoint=$HOME/best.safetensors"), []string{"HOME=/home/me"}},
		{"another minus sign", 5, 2, typed("grpo.lr=1e−3"), nil},
		{"typographic quotes", 5, 2, typed("grpo.lr=“1e-3”"), nil},
		{"a decimal point in an integer", 4, 2, typed("seed=1.0"), nil},
		{"a decimal comma in a file", 5, 2, config("defaults: [config, _self_]\ngrpo: {lr: '0,001'}\n"), nil},
		{"a key twice in a file", 4, 2, config("defaults: [config, _self_]\ngrpo:\n  lr: 1e-3\n  lr: 1e-4\n"), nil},
		{"an anchor of its own", 4, 2, config("defaults: [config, _self_]\nmine: &mine {lr: 1e-3}\ngrpo: *mine\n"), nil},
		{"a package without --cfg", 4, 2, []string{"-p", "grpo"}, nil},
		{"the folder of checkpoints", 5, 2, append(good, "task=predict", "init.checkpoint="+filepath.Join(run0, "checkpoints")), nil},
		{"a log to export", 5, 2, []string{"export", filepath.Join(run0, "metrics.jsonl")}, nil},
		{"a run folder for data", 4, 2, []string{"data", "inspect", run0}, nil},
		{"another program's word for a comparison", 5, 2, []string{"compare", run0, run0}, nil},
		{"another program's word for a list", 5, 2, []string{"list"}, nil},
		{"a command to stop", 4, 2, []string{"stop", run0}, nil},
		{"a command to remove", 5, 2, []string{"rm", run0}, nil},
		{"a flag without dashes", 5, 2, []string{"ls", "sort=best", dir}, nil},
		{"a setting for a flag", 5, 2, []string{"report", run0, "report.figure.width=80"}, nil},
		{"a table without its flag", 5, 2, []string{"export", "runs", dir}, nil},
		{"a folder of runs beside a run", 4, 2, []string{"report", run0, dir}, nil},
		{"a reward of one's own for a mode", 5, 2, append(good, "data.reward.mode=gpt_score"), nil},
		{"predictions by a policy for other embeddings", 4, 1, append([]string{"task=predict", "init.checkpoint=" + run0}, good...), nil},
		{"an override to explain", 5, 2, []string{"explain", "exp=t5_summarize"}, nil},
		{"a word to explain", 4, 2, []string{"explain", "nope"}, nil},
		{"text from the environment for a number", 4, 2, typed("seed=${oc.env:NO_SEED,five}"), nil},
		{"a key of one's own", 4, 2, typed("+foo=1"), nil},
		{"a section of one's own", 4, 2, config("defaults: [config, _self_]\nmodel: {layers: 3}\n"), nil},
		{"a range with dots", 5, 2, typed("seed=0..3"), nil},
		{"a table for beams", 4, 1, []string{"data=beams", "data.beams=" + strings.TrimPrefix(emb, "data.embeddings="), emb}, nil},
		{"a model's short name", 4, 2, []string{"exp=t5_summarize", "data.texts.train=" + records, "seq2seq.path=t5-small"}, nil},
		{"a path with an umlaut", 5, 2, []string{"data=beams", "data.beams=/data/für.json", emb}, nil},
		{"a path that the shell split", 5, 2, []string{"data=beams", "data.beams=/data/für", "mich/beams (1).json", emb}, nil},
		{"a parenthesis in a path", 5, 2, typed("hydra.run.dir=/data/mine (1)"), nil},
		{"a checkpoint that is not there, for every job of a sweep", 5, 2, typed("-m", "init.checkpoint=/nowhere", "seed=1,2"), nil},
		{"another library's share for validation", 5, 2, typed("data=beams", "data.val_fraction=0.1"), nil},
		{"a key of one's own with a letter too few", 5, 2, typed("+vars.base_lr=1e-3", "rce.lr=${vars.bas_lr}"), nil},
		{"the video recipe's beta", 5, 2, typed("grpo_beta=0.2"), nil},
		{"beams of a decoder", 4, 2, typed("num_beams=5"), nil},
		{"another trainer's devices", 4, 2, typed("deepspeed=ds.json"), nil},
		{"another trainer's server", 4, 2, typed("grpo.use_vllm=true"), nil},
		{"a report for a checkpoint", 5, 2, []string{"checkpoint", "inspect", filepath.Join(run0, "report.md")}, nil},
		{"a reward of texts for a selector", 5, 2, typed("rewards.external.weight=1"), nil},
		{"a command as one word", 5, 2, []string{"exp=t5_summarize", "rewards.external.command=python3 rew.py"}, nil},
		{"a role with a letter too few", 4, 1, talk(talkFile(t, dir, turns("humn", "assistant"))), nil},
		{"the answer before the question", 4, 2, talk(talkFile(t, dir, turns("assistant", "user"))), nil},
		{"equal rows", 5, 1, small([]string{good[0], good[1], "data.embeddings=" + npyFile(t, "<f4", "(60, 8)", 60*8*4)}, "checks.off=[]"), nil},
	}
}

// turns are conversations of two messages.
func turns(first, second string) []map[string]any {
	record := map[string]any{"messages": []map[string]string{{"role": first, "content": "what is it?"}, {"role": second, "content": "a cat"}}}
	return slices.Repeat([]map[string]any{record}, talkCount)
}

// talk trains on conversations.
func talk(path string) []string {
	return []string{"policy=qwen2_5_vl", "grpo=tokens", "grpo/kl=k3", "data=conversations", "data.conversations.train=" + path, "threads=1"}
}
