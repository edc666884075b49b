package tasks_test

import (
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// A recipe's preset has the recipe's numbers, and trains from end to end on the tiny model.
func TestRecipesTrain(t *testing.T) {
	_, root := openReference(t)
	for _, tc := range []struct {
		preset  string
		numbers string // key=value of the composed configuration
		data    func(t *testing.T) string
		more    []string
		trained []string // parts of the names of what the checkpoint holds
	}{
		{
			"qwen2_5_vl_video",
			`grpo.kl.beta=0.1 grpo.group_size=4 grpo.sample_temperature=0.7 vl.generation.top_p=0.9 grpo.lr=2e-05 grpo.epochs=3 data.batch_size=1 vl.tune_mm_llm=true
			vl.tune_mm_mlp=true vl.tune_mm_vision=false vl.lora.enabled=false optim.mm_projector_lr=2e-05 optim.vision_tower_lr=<nil> rewards.scale=1 rewards.format.weight=0.3
			rewards.accuracy.weight=0.7 rewards.accuracy.split=numbered rewards.accuracy.tagged=true grpo.advantage.method=mean_only lr_schedule.name=cosine
			lr_schedule.warmup_ratio=0.03 optim.weight_decay=0.1 data.conversations.video.fps=0.5 data.conversations.video.min_frames=4 data.conversations.video.max_frames=8`,
			clips,
			[]string{"vl.tune_mm_vision=true", "optim.vision_tower_lr=1e-6", "grpo.epochs=1"}, // the tower too, at a rate of its own
			[]string{"model.layers.0.self_attn.q_proj.weight", "visual.merger.mlp.0.weight", "visual.blocks.0.attn.qkv.weight"},
		},
		{
			"qwen2_5_vl_actions",
			"rewards.format.weight=0.3 rewards.accuracy.weight=0.7 rewards.accuracy.split=numbered rewards.accuracy.tagged=true vl.lora.rank=8 " +
				"grpo.group_size=8",
			clips, nil, []string{"self_attn.q_proj.lora_A"},
		},
		{
			"qwen2_5_vl_points",
			`grpo.clip.epsilon=0.2 grpo.clip.epsilon_high=0.28 grpo.sample_temperature=0.7 vl.lora.rank=64 vl.lora.alpha=128 rewards.points.weight=1 rewards.accuracy.weight=0
			grpo.kl.beta=0.04`,
			pointing, nil, []string{"self_attn.q_proj.lora_A"},
		},
		{
			"qwen2_5_vl_notebook",
			"grpo.group_size=4 grpo.kl.beta=0.04 grpo.clip.epsilon=0.2 vl.lora.rank=8 vl.lora.alpha=32 grpo.sample_temperature=0.9 " +
				"vl.generation.top_p=0.95",
			func(t *testing.T) string { return conversations(t, 4) }, nil, []string{"self_attn.q_proj.lora_A"},
		},
		{
			"qwen2_5_vl_sft",
			"vl.lora.enabled=true vl.lora.rank=64 vl.lora.alpha=128 sft.epochs=1 sft.average=token schedule=[sft] vl.tune_mm_llm=false",
			func(t *testing.T) string { return conversations(t, 4) }, nil, []string{"self_attn.q_proj.lora_A"},
		},
	} {
		t.Run(tc.preset, func(t *testing.T) {
			t.Parallel()
			base := []string{"exp=" + tc.preset, "vl.path=" + filepath.Join(root, "tiny_tied"), "data.conversations.train=x.json"}
			composed := mustRun(t, append(base, "--cfg", "job")...)
			var config map[string]any
			if err := yaml.Unmarshal([]byte(composed.Stdout), &config); err != nil {
				t.Fatal(err)
			}
			for number := range strings.FieldsSeq(tc.numbers) {
				key, want, _ := strings.Cut(number, "=")
				if got := fmt.Sprint(lookUp(config, key)); got != want {
					t.Errorf("%s is %s, want the recipe's %s", key, got, want)
				}
			}
			data, dir := tc.data(t), folder(t)
			mustRun(t, append([]string{"exp=" + tc.preset, "threads=1", "vl.path=" + filepath.Join(root, "tiny_tied"),
				"vl.dtype=float32", "data.conversations.train=" + data,
				"data.conversations.val=" + data, "vl.generation.max_new_tokens=8", "rewards.length.weight=1", "report.plots=false", "hydra.run.dir=" +
					dir}, tc.more...)...)
			rows := readRows(t, filepath.Join(dir, "metrics.jsonl"))
			moved := 0.0
			for _, row := range rows {
				if row["kind"] != "step" {
					if kl, ok := row["val_kl"].(float64); ok {
						moved = kl
					}
					continue
				}
				if rate, ok := row["lr_vision_tower"].(float64); ok != (tc.preset == "qwen2_5_vl_video") || ok && rate > 1e-6 {
					t.Errorf("step %v: a rate of the tower %v", row["step"], rate)
				}
			}
			if !(moved > 0) {
				t.Errorf("val_kl is %v after training: nothing moved", moved)
			}
			listed := mustRun(t, "checkpoint", "inspect", filepath.Join(dir, "checkpoints", "last.safetensors")).Stdout
			for _, name := range tc.trained {
				if !strings.Contains(listed, name) {
					t.Errorf("the checkpoint holds no %s:\n%s", name, listed)
				}
			}
			if tc.preset == "qwen2_5_vl_points" && !slices.ContainsFunc(rows,
				func(r map[string]any) bool { return r["reward_points_in_confusion"] != nil }) {
				t.Error("no row counts the points in the confusion region")
			}
		})
	}
}

func lookUp(config any, key string) any {
	for name := range strings.SplitSeq(key, ".") {
		section, ok := config.(map[string]any)
		if !ok {
			return fmt.Sprintf("no section of %s", name)
		}
		if config, ok = section[name]; !ok {
			return "missing"
		}
	}
	return config
}

// clips writes records of the video recipe's form, with frames in place of video files.
func clips(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var frames []string
	for i := range 12 {
		name := fmt.Sprintf("%d.png", i)
		writePicture(t, filepath.Join(dir, name), color.RGBA{uint8(20 * i), uint8(255 - 20*i), 90, 255})
		frames = append(frames, name)
	}
	var records []any
	for i := range 3 {
		records = append(records, map[string]any{
			"id": i, "video": frames, "meta": map[string]any{"frame_cnts": []int{7, 5}, "min_frames": 4, "max_frames": 8,
				"dynamic_sample": true},
			"conversations": []map[string]string{
				{"from": "human", "value": "<video>\n(1) Action 1\n(2) Action 2\n(3) Action 3"},
				{"from": "gpt", "value": fmt.Sprintf("<answer>(%d) Action %d (%d) Action %d</answer>", i, i, i+1, i+1)},
			},
		})
	}
	return writeRecords(t, dir, records)
}

// pointing writes a record with a picture and its two masks.
func pointing(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	writePicture(t, filepath.Join(dir, "a.png"), color.RGBA{200, 10, 10, 255})
	for i, name := range []string{"object.png", "confusion.png"} {
		mask := image.NewGray(image.Rect(0, 0, 56, 56))
		for x := range 20 {
			for y := range 56 {
				mask.SetGray(x+30*i, y, color.Gray{255})
			}
		}
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := png.Encode(f, mask); err != nil {
			t.Fatal(err)
		}
	}
	return writeRecords(t, dir, []any{map[string]any{
		"id": "p", "image": "a.png", "meta": map[string]string{"ground_truth_mask": "object.png", "confusion_mask": "confusion.png"},
		"conversations": []map[string]string{{"from": "human", "value": "<image>\nPoint."},
			{"from": "gpt", "value": `<answer>{"negative_points": [[40, 9]]}</answer>`}},
	}})
}

func writeRecords(t *testing.T, dir string, records []any) string {
	t.Helper()
	text, err := json.Marshal(records)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "train.json")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
