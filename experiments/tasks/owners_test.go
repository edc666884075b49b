//go:build !core

package tasks

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fulcrum/beamdata"
	"fulcrum/configs"
)

func composed(t *testing.T, overrides ...string) *configs.Composed {
	t.Helper()
	schema, err := Schema(Frozen)
	if err != nil {
		t.Fatal(err)
	}
	c, err := configs.Compose(configs.Request{Library: configs.Library(), Schema: schema, Overrides: overrides, Now: time.Now(),
		AppName: "run"})
	if err != nil {
		t.Fatalf("%v: %v", overrides, err)
	}
	return c
}

// TestPresetsCompose: the presets hold keys that there are.
func TestPresetsCompose(t *testing.T) {
	files, err := filepath.Glob("../../configs/conf/exp/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d presets, %v", len(files), err)
	}
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".yaml"); name != "lever_plus_compat" { // of an annex that is not built in here
			composed(t, "exp="+name)
		}
	}
}

// A key that acts nowhere in a run is refused with the choice that would give it an effect. What acts, or is linked to by something that
// acts, is not.
func TestKeysWithoutEffect(t *testing.T) {
	const vl = "policy=qwen2_5_vl grpo=tokens grpo/kl=k3 vl.path=/model "
	for _, tc := range []struct{ typed, want string }{
		{"rewards.external.url=http://a:1", "rewards.external.url belongs to policy=qwen2_5_vl or policy=seq2seq"},
		{"vl.path=/model", "vl.path belongs to policy=qwen2_5_vl"},
		{vl + "selector.num_heads=2", "selector.num_heads belongs to policy=pointer"},
		{vl + "selector=v2", "selector=v2 has no effect: selector belongs to policy=pointer"},
		{vl + "rewards.vqa.weight=1 checks.off=[doctor]", ""},
		{vl + "task=generate generate.in=/in rewards.vqa.weight=1", "rewards.vqa.weight belongs to task=train"},
		{vl + "lvlm.path=/model", "lvlm.path belongs to policy=pointer, task=beams, task=icl or task=infer"},
		{"generate.in=/in", "generate.in belongs to task=generate"},
		{vl + "generate.temperature=1", "generate.temperature belongs to task=generate (here: rce.sample_temperature, grpo.sample_temperature)"},
		{"predict.beam_size=3", "predict.beam_size belongs to task=predict"},
		{"seq2seq.path=/model task=evaluate evaluate.results=/r evaluate.annotations=/a",
			"seq2seq.path belongs to policy=seq2seq task=generate, policy=seq2seq task=predict, policy=seq2seq task=score or " +
				"policy=seq2seq task=train"},
		{"sft.lr=1e-3", "sft.lr belongs to schedule=[rce,grpo,sft]"},
		{"sft.lr=1e-3 schedule=[sft]", ""},
		{"schedule=[rce] grpo/kl=k3", "grpo/kl=k3 has no effect: grpo.kl belongs to schedule=[rce,grpo]"},
		{"+mine.kind=grpo", "mine.kind belongs to schedule=[rce,grpo,mine]"},
		{"+mine={kind: grpo, lr: 1e-3} schedule=[mine]", ""},
		{"schedule=[grpo] rce.temperature.end=1", ""}, // the validation loss weighs with it
		{"schedule=[grpo] rce.lr=1e-3", "rce.lr belongs to schedule=[grpo,rce]"},
		{"schedule=[grpo] rce={lr: 1e-3}", ""}, // a part of the section acts
		{"data=okvqa data.root=/okvqa data.shapes.seed=1", "data.shapes.seed belongs to data=shapes"},
		{"data.val_ratio=.2", "data.val_ratio belongs to data=okvqa"},
		{"selector.clip.path=/c", ""},
		{"data.pool_size=9", "data.pool_size belongs to data=beams or data=okvqa"},
		{"data.batch_size=3 data.shapes.seed=2 data.max_samples=9 init.checkpoint=/x init.strict=false report.plots=false " +
			"logging.progress=false threads=2 on_end.command=ls hydra.run.dir=/x exp=okvqa_v3 lr_schedule=constant ~lr_schedule", ""},
		{"checkpoint.best.metric=${rewards.external.url} rewards.external.url=val_loss", ""},
		{"checkpoint.best.metric=${vl.path} rewards.external.url=val_loss vl.path=${rewards.external.url}", ""},
		{"hydra.job.name=${generate.out} generate.out=a", ""},
		{"selector.head=none selector.dropout=0.2", "selector.dropout=0.2 has no effect: selector.dropout acts where selector.head is not none"},
		{"selector.head=none selector.dropout=0.2 grpo.clip.epsilon=${selector.dropout}", ""},
		{"selector.head=bilinear selector.dropout=0.2", ""},
		{"grpo.kl.controller=fixed grpo.kl.target_max=0.2",
			"grpo.kl.target_max=0.2 has no effect: grpo.kl.target_max acts where grpo.kl.controller is not fixed"},
		{"task=icl data=icl_shapes icl.model=icl_shapes_model rce.epochs=2 vl.max_pixels=99 beams.shots=2 encoder.path=/m " +
			"embed.modality=image selector=v2 data.embeddings=/e", ""},
		{"task=icl data=icl_shapes icl.model=icl_shapes_model generate.temperature=1",
			"generate.temperature belongs to task=generate (here: selector.temperature)"},
		{"task=embed data=vqa data.root=/vqa encoder.path=/m data.split_seed=1",
			"data.split_seed belongs to task=icl, task=predict or task=train"},
	} {
		var typed []string
		for word := range strings.FieldsSeq(strings.ReplaceAll(tc.typed, ": ", ":\x00")) {
			if n := len(typed); n > 0 && strings.Count(typed[n-1], "{") > strings.Count(typed[n-1], "}") &&
				!strings.HasSuffix(typed[n-1], "}") && strings.Contains(typed[n-1], "={") {
				typed[n-1] += " " + word
				continue
			}
			typed = append(typed, word)
		}
		for i := range typed {
			typed[i] = strings.ReplaceAll(typed[i], "\x00", " ")
		}
		c := composed(t, typed...)
		got := ""
		if err := c.RefuseIdle(c.Idle(c.Typed(c.TaskOverrides()))); err != nil {
			var lines []string
			for line := range strings.Lines(err.Error()) {
				lines = append(lines, strings.TrimSuffix(strings.TrimSpace(line), ", and has no effect in this run"))
			}
			got = strings.Join(lines, "; ")
		}
		for _, text := range append(c.IdleGroups(c.TaskOverrides()), c.Waiting(c.Typed(c.TaskOverrides()))...) {
			if strings.Contains(tc.want, " has no effect: ") {
				got += text.String() + " has no effect: " + c.Belongs(text.Key)
			}
		}
		if got != tc.want {
			t.Errorf("%s\n got %s\nwant %s", tc.typed, got, tc.want)
		}
	}
}

// The tables name keys that there are, and with what they say each section acts in some run.
func TestOwnersNameKeys(t *testing.T) {
	schema, err := Schema(Frozen)
	if err != nil {
		t.Fatal(err)
	}
	keys, sections := schema.Keys(), map[string]bool{}
	for _, key := range keys {
		if section, _, inside := strings.Cut(key, "."); inside {
			sections[section] = true
		}
	}
	known := func(where, key string) {
		if !slices.ContainsFunc(keys, func(k string) bool { return configs.Covers(key, k) }) {
			t.Errorf("%s reads %s, which is no key", where, key)
		}
	}
	o := newOwners(Entries(Frozen))
	for _, name := range o.tasks.Names() {
		task, _ := o.tasks.Get(name)
		for _, key := range slices.Concat(task.Sections, task.Reads, always) {
			known("task="+name, key)
		}
		for _, stage := range task.Stages {
			if _, err := o.tasks.Get(stage); err != nil {
				t.Errorf("task=%s: %v", name, err)
			}
		}
	}
	for _, name := range o.policies.Names() {
		p, _ := o.policies.Get(name)
		for _, key := range p.Trains {
			known("policy="+name, key)
		}
	}
	for _, d := range beamdata.Datasets() {
		for _, key := range d.Reads {
			known("data="+d.Name, "data."+key)
		}
	}
	nothing := func(string) any { return nil }
	for section := range sections {
		if len(o.Choices(nothing, section)) == 0 && !slices.Contains(always, section) {
			t.Errorf("nothing makes the section %s act", section)
		}
	}
	if len(sections) < 27 {
		t.Errorf("only %d sections", len(sections))
	}
}

// The composed configuration holds what acts, and prints while its files are not given. A section of another name than its kind's shows
// what was set.
func TestConfigurationShowsWhatActs(t *testing.T) {
	for _, tc := range []struct {
		overrides  string
		most       int
		has, lacks string
	}{
		{"exp=okvqa_v3", 160, "selector rce.lr rce.temperature.start rce.average grpo.kl.beta data.shapes.seed",
			"vl seq2seq grpo_online sft data.texts data.reward.nan_is_best selector.clip beams infer icl icl_shapes generate evaluate rewards"},
		{"exp=qwen2_5_vl_video", 187, "vl.lora.enabled grpo.kl.beta rewards.scale data.conversations.train sft.average",
			"selector seq2seq data.shapes lvlm rce.average"},
		{"exp=t5_summarize", 187, "seq2seq.path sft.lr grpo.num_iterations data.texts.train", "selector vl data.conversations.train"},
		{"exp=okvqa_online", 185, "grpo_online.kind grpo_online.kl.beta grpo_online.rollout",
			"grpo_online.freeze grpo_online.temperature grpo_online.kl.sync_steps"},
		{"exp=okvqa_online grpo_online.kl.sync_steps=5", 187, "grpo_online.kl.sync_steps", ""},
		{"exp=icl_loop data=icl_shapes icl.model=x vl.max_pixels=99", 365, "vl.max_pixels", "vl.path seq2seq"},
		{"grpo.temperature.start=1.5 lvlm.batch=3", 220, "grpo.temperature.start lvlm.batch", "lvlm.url"},
		{"task=evaluate evaluate.results=/r evaluate.annotations=/a", 60, "evaluate.metric eval", "data selector optim"},
	} {
		c := composed(t, strings.Fields(tc.overrides)...)
		text, err := c.YAML("job", false, "")
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(text, "\n"); n > tc.most {
			t.Errorf("%s: %d lines, want at most %d:\n%s", tc.overrides, n, tc.most, text)
		}
		for key := range strings.FieldsSeq(tc.has) {
			if c.Tree().Find(key) == nil {
				t.Errorf("%s lacks %s", tc.overrides, key)
			}
		}
		for key := range strings.FieldsSeq(tc.lacks) {
			if c.Tree().Find(key) != nil {
				t.Errorf("%s shows %s", tc.overrides, key)
			}
		}
	}
	linked := composed(t, "checkpoint.best.metric=${rewards.external.url}", "rewards.external.url=val_loss", "hydra.job.name=${generate.out}",
		"generate.out=a")
	for key, want := range map[string]string{"checkpoint.best.metric": "val_loss", "hydra.job.name": "a"} {
		if n := linked.Tree().Find(key); n.Text != want {
			t.Errorf("%s is %q: the section that it leads to is gone", key, n.Text)
		}
	}
}

// What the user's own primary file sets is his, as what he types: where it acts nowhere it is refused, with its place. A preset of his is
// not.
func TestPrimaryFileWithoutEffect(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"mine.yaml":     "defaults: [_self_, exp: e]\nschedule: [rce]\nrce: {lr: 1e-3}\nvl: {path: x}\ngrpo: {lr: 1e-3}\n",
		"exp/e.yaml":    "# @package _global_\nseq2seq: {path: y}\n",
		"complete.yaml": "schedule: [rce]\nrce: {lr: 1e-3}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	schema, err := Schema(Frozen)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"mine": dir + "/mine.yaml:4:12: vl.path belongs to policy=qwen2_5_vl, and has no effect in this run\n" +
			dir + "/mine.yaml:5:12: grpo.lr belongs to schedule=[rce,grpo], and has no effect in this run",
		"complete": "",
	} {
		req := configs.Request{ConfigPath: dir, ConfigName: name, Schema: schema}
		c, err := configs.Compose(req)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := c.RefuseIdle(c.Idle(c.Own())); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
		if _, err := configs.ExpandSweep(req); (err != nil) != (want != "") {
			t.Errorf("%s as a sweep: %v", name, err)
		}
	}
}
