//go:build !core

package tasks_test

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/runtest"
	"fulcrum/selector/lora"
)

// clipData writes fixtureRows records, each with a picture and a question of its own, their table by task=embed, and the beams of the
// fixture over them. It returns the overrides that train on the table, and those that train adapters of CLIP with the selector.
func clipData(t *testing.T, modality string) (table, adapted []string) {
	t.Helper()
	data := beams(t, records())
	dir := filepath.Dir(strings.TrimPrefix(data[1], "data.beams="))
	random := rand.New(rand.NewPCG(5, 6))
	var lines strings.Builder
	for i := range fixtureRows {
		img := image.NewRGBA(image.Rect(0, 0, 8, 8)) // smooth at the model's size of 32
		for k := range 64 {
			img.Set(k%8, k/8, color.RGBA{uint8(random.IntN(256)), uint8(random.IntN(256)), uint8(random.IntN(256)), 255})
		}
		var b bytes.Buffer
		if err := png.Encode(&b, img); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, fmt.Sprintf("%d.png", i)), b.String())
		fmt.Fprintf(&lines, `{"id": %d, "image": "%d.png", "question": "is it the %d thing in %d?", "answers": ["a"]}`+"\n", i, i, i, i*i)
	}
	rows, out := filepath.Join(dir, "records.jsonl"), filepath.Join(dir, "clip.safetensors")
	write(t, rows, lines.String())
	mustRun(t, embedArgs(rows, out, "embed.modality="+modality)...)
	table = []string{data[0], data[1], "data.embeddings=" + out}
	return table, append([]string{"data.records_icl=" + rows, "selector.clip.path=../../selector/clip/testdata/quick",
		"selector.clip.modality=" + modality}, table...)
}

// adaptersOf returns the bytes of a checkpoint's B matrices, which start at zero.
func adaptersOf(t *testing.T, path string) string {
	t.Helper()
	f, err := tensorfile.ReadSafetensors(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []byte
	for _, x := range f.Tensors {
		if strings.Contains(x.Name, ".lora_B.") {
			all = append(all, x.Data...)
		}
	}
	return string(all)
}

// Before any step the selector over a CLIP model is the one over its table. Its adapters learn in every phase, its checkpoints predict,
// and a run that was killed ends with the same bytes.
func TestCLIPAdapters(t *testing.T) {
	t.Parallel()
	for _, modality := range []string{"both", "image"} {
		if testing.Short() && modality != "both" { // which holds the other
			continue
		}
		t.Run(modality, func(t *testing.T) {
			t.Parallel()
			table, adapted := clipData(t, modality)
			args := func(data []string, dir string, more ...string) []string {
				return with(small(data, "hydra.run.dir="+dir, "schedule=[sft,rce,grpo]", "sft.epochs=1"), more)
			}
			predicted := func(data []string, from string) []prediction {
				dir := folder(t)
				mustRun(t, append(slices.Clone(data), "task=predict", "init.checkpoint="+from, "hydra.run.dir="+dir)...)
				return predictions(t, filepath.Join(dir, "predictions.jsonl"))
			}
			fixed, dir := folder(t), folder(t)
			mustRun(t, args(table, fixed)...)
			learns := append(slices.Clone(adapted), "selector.clip.lora.dropout=0.1", "checkpoint.every_steps=1")
			mustRun(t, args(learns, dir)...)
			near := func(a, b []prediction) bool {
				return len(a) == 24 && slices.EqualFunc(a, b, func(x, y prediction) bool {
					return slices.Equal(x.Pointer, y.Pointer) && math.Abs(x.LogProb-y.LogProb) < 1e-5
				})
			}
			first := predicted(adapted, filepath.Join(dir, "checkpoints/init_epoch0.safetensors"))
			if want := predicted(table, filepath.Join(fixed, "checkpoints/init_epoch0.safetensors")); !near(first, want) {
				t.Errorf("before any step: %v, on the table %v", first, want)
			}
			last := filepath.Join(dir, "checkpoints/last.safetensors")
			if end := predicted(adapted, last); near(end, first) || !reflect.DeepEqual(end, predicted(adapted, last)) {
				t.Errorf("the last policy: %v, the first %v", end, first)
			}
			before := ""
			for _, name := range []string{"init_epoch0", "sft_epoch1", "rce_epoch1", "grpo_epoch1"} {
				now := adaptersOf(t, filepath.Join(dir, "checkpoints", name+".safetensors"))
				if now == before {
					t.Errorf("%s has the adapters of the checkpoint before", name)
				}
				before = now
			}

			killed := folder(t)
			p := start(t, args(learns, killed)...)
			p.Until(func() bool { return exists(filepath.Join(killed, "checkpoints/rce_epoch1_step1.state")) })
			resumes := p.KillRun(killed)
			mustRun(t, "resume", killed)
			outcomeOf(t, dir).Same(t, outcomeOf(t, killed), resumes)
		})
	}
}

// A shard comes to the adapters as often as it has blocks of pictures: what left during a pass that was not over is sent again.
func TestCLIPAdaptersByProcesses(t *testing.T) {
	t.Parallel()
	_, adapted := clipData(t, "both")
	by := func(processes int) runtest.Outcome {
		dir := folder(t)
		mustRun(t, with(small(adapted, "hydra.run.dir="+dir, "schedule=[sft]", "sft.epochs=2"), []string{"selector.hidden_dim=512",
			"data.batch_size=14", "parallel.shards=4", fmt.Sprint("parallel.processes=", processes)})...)
		return outcomeOf(t, dir)
	}
	by(1).Same(t, by(2), 0)
}

// What would train something else than it says is one line before the first step; a run on the table may start one with adapters, and
// PEFT's folder is written from its checkpoint.
func TestCLIPAdaptersRefused(t *testing.T) {
	t.Parallel()
	table, adapted := clipData(t, "both")
	onTable, withAdapters := folder(t), folder(t)
	one := func(data []string, dir string, more ...string) []string {
		return with(small(data, "hydra.run.dir="+dir, "schedule=[sft]", "sft.epochs=1"), more)
	}
	mustRun(t, one(table, onTable)...)
	r := mustRun(t, one(adapted, withAdapters, "init.checkpoint="+onTable, "selector.clip.lora.rank=2")...)
	if want := "the adapters of selector.clip start fresh, from seed 0"; !strings.Contains(r.Stderr, want) {
		t.Errorf("a start on the table: no %q in %s", want, r.Stderr)
	}
	records := strings.TrimPrefix(adapted[0], "data.records_icl=")
	lines := strings.SplitAfter(read(t, records), "\n")
	other := func(name string, lines ...string) string {
		path := filepath.Join(filepath.Dir(records), name)
		write(t, path, strings.Join(lines, ""))
		return "data.records_icl=" + path
	}
	swapped := slices.Clone(lines)
	swapped[0], swapped[1] = swapped[1], swapped[0]
	gone := slices.Clone(lines)
	gone[0] = strings.Replace(gone[0], `"0.png"`, `"gone.png"`, 1)
	predict := func(data []string, more ...string) []string {
		return append(append(slices.Clone(data), "task=predict", "hydra.run.dir="+folder(t)), more...)
	}
	last := "init.checkpoint=" + filepath.Join(withAdapters, "checkpoints/last.safetensors")
	for _, tc := range []struct {
		name string
		code int
		args []string
		want string
	}{
		{"no records", 2, one(adapted[1:], folder(t)), "selector.clip.path: no records: data.records_icl=FILE.jsonl"},
		{"no such folder", 2, one(adapted, folder(t), "selector.clip.path=nowhere"), "selector.clip.path=nowhere: no such folder"},
		{"fewer records", 2, one(adapted, folder(t), other("few.jsonl", lines[:59]...)), "59 records and 60 rows of embeddings"},
		{"records in another order", 1, one(adapted, folder(t), other("swapped.jsonl", swapped...)), "row 0 of data.embeddings is not what"},
		{"a picture that is gone", 1, one(adapted, folder(t), other("gone.jsonl", gone...)), "gone.jsonl:1 (id 0): open "},
		{"a folder without published files", 1, one(adapted, folder(t), "data.records_icl="+t.TempDir()), "questions"},
		{"another width", 2, one(adapted, folder(t), "selector.clip.modality=text"), "have 12 columns, those of data.embeddings 24"},
		{"another CLIP", 1, one(adapted, folder(t), "selector.clip.path=../../selector/clip/testdata/legacy"),
			"row 0 of data.embeddings is not what"},
		{"no adapters", 2, one(adapted, folder(t), "selector.clip.lora.enabled=false"), "want true with a path"},
		{"no such module", 1, one(adapted, folder(t), "selector.clip.lora.target_modules=[q_prj]"), "did you mean q_proj?"},
		{"the reference's files", 2, one(adapted, folder(t), "checkpoint.format=pt"), "format pt has no place for [adapters of CLIP]"},
		{"the reference's ways", 2, one(adapted, folder(t), "compat=lever_plus"), "reproduces training on a fixed table"},
		{"predictions without the model", 1, predict(table, last), "give selector.clip.path=DIR"},
		{"predictions of a run on the table", 1, predict(adapted, "init.checkpoint="+onTable), "leave selector.clip.path out"},
		{"another rank", 2, predict(adapted, last, "selector.clip.lora.rank=4"), "selector.clip.lora.rank=4 contradicts"},
		{"PEFT's folder of a run on the table", 1, []string{"checkpoint", "export", onTable, "--format", "peft"}, "has no adapters of CLIP"},
	} {
		t.Run(tc.name, func(t *testing.T) { refused(t, run(t, tc.args...), tc.code, tc.want) })
	}
	out := filepath.Join(filepath.Dir(folder(t)), "adapter")
	mustRun(t, "checkpoint", "export", strings.TrimPrefix(last, "init.checkpoint="), "--format", "peft", "--out", out, "--base", "clip")
	folder, err := lora.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	const name = "text_model.encoder.layers.1.self_attn.out_proj"
	if len(folder.Tensors) != 2*16 || folder.Config.Rank != 2 || folder.Config.BaseModel != "clip" ||
		len(folder.Tensors[lora.KeyB(name)].Values) != 2*16 {
		t.Errorf("PEFT's folder has %d tensors of %+v", len(folder.Tensors), folder.Config)
	}
}
