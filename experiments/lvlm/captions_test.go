package lvlm_test

import (
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// captionScores is evaluate.json, and what scripts/peers/cider.py wrote with pycocoevalcap.
type captionScores struct {
	Images   int
	Missing  int `json:"missing_results"`
	CIDEr    float64
	PerImage map[string]float64
}

// task=evaluate gives pycocoevalcap's CIDEr-D, mean and image by image.
func TestEvaluateCaptions(t *testing.T) {
	t.Parallel()
	var want captionScores
	var files struct{ Annotations, Results json.RawMessage }
	readJSON(t, "../../rewardutil/testdata/caption_evaluation.json", &want)
	readJSON(t, "../../rewardutil/testdata/caption_evaluation.json", &files)
	work := t.TempDir()
	truth, results := filepath.Join(work, "captions_val2014.json"), filepath.Join(work, "results.json")
	write(t, truth, `{"annotations": `+string(files.Annotations)+`}`)
	write(t, results, string(files.Results))
	args := func(dir string, more ...string) []string {
		return append([]string{"task=evaluate", "evaluate.metric=cider", "evaluate.results=" + results, "evaluate.annotations=" + truth,
			"hydra.run.dir=" + dir}, more...)
	}
	dir := folder(t)
	r := mustRun(t, args(dir)...)
	var got captionScores
	readJSON(t, filepath.Join(dir, "evaluate.json"), &got)
	if got.Images != 20 || got.Missing != 4 || math.Abs(got.CIDEr-want.CIDEr) > 1e-9 || len(got.PerImage) != len(want.PerImage) {
		t.Errorf("%d images, %d missing, %v, want 20, 4 and %v", got.Images, got.Missing, got.CIDEr, want.CIDEr)
	}
	for id, score := range want.PerImage {
		if math.Abs(got.PerImage[id]-score) > 1e-9 { // float64 sums in another order
			t.Errorf("image %s: %v, want %v", id, got.PerImage[id], score)
		}
	}
	report := read(t, filepath.Join(dir, "report.md"))
	if !strings.Contains(r.Stdout, "CIDEr-D 1.4467") || !strings.Contains(report, "**1.45 (95 % interval 1.00 to 1.90)**") {
		t.Errorf("%s\n%s", r.Stdout, report)
	}
	write(t, filepath.Join(dir, "report.md"), "")
	if mustRun(t, "report", dir); read(t, filepath.Join(dir, "report.md")) != report {
		t.Error("the report made again differs")
	}
	zero := folder(t)
	mustRun(t, args(zero, "evaluate.missing=zero")...)
	if readJSON(t, filepath.Join(zero, "evaluate.json"), &got); got.Images != 24 || got.PerImage["702"] != 0 || got.CIDEr >= want.CIDEr {
		t.Errorf("with zeros: %+v", got)
	}
	if both := mustRun(t, "report", dir, zero); !strings.Contains(both.Stdout, "on cider") {
		t.Errorf("two evaluations do not compare:\n%s", both.Stdout)
	}
	if r := mustRun(t, args(folder(t), "evaluate.results="+writeTo(t, `[{"image_id": 702, "caption": "a"}]`))...); !strings.Contains(r.Stderr,
		"of one image it is always 0") {
		t.Errorf("nothing says why one image scores 0: %s", r.Stderr)
	}
	for want, more := range map[string][]string{"4 of 24 images with captions have no result: 702, 708": {"evaluate.missing=error"},
		"evaluate.metric=cider does not read it": {"evaluate.questions=" + truth},
		"captions in the annotations":            {"evaluate.annotations=" + writeTo(t, `{"annotations": [{"image_id": 1, "caption": "a"}]}`)},
		"has no image_id or no caption":          {"evaluate.annotations=../../rewardutil/testdata/vqa_annotations.json"},
		"entry 1: want image_id and caption":     {"evaluate.results=../../rewardutil/testdata/vqa_results.json"},
		"entry 2: image 1 has a result already":  {"evaluate.results=" + writeTo(t, `[{"image_id": 1, "caption": ""}, {"image_id": 1, "caption": ""}]`)},
	} {
		if r := run(t, args(folder(t), more...)...); r.Code == 0 || !strings.Contains(r.Stderr, want) {
			t.Errorf("%v: exit %d, %s, want %q", more, r.Code, r.Stderr, want)
		}
	}
}

// writeTo writes a file of a name of its own.
func writeTo(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.json")
	write(t, path, text)
	return path
}

// COCO's published captions go through the loop, and task=evaluate scores its result files against the published file.
func TestICLLoopOfCaptions(t *testing.T) {
	t.Parallel()
	root, dir := published(t, 20, 6), t.TempDir()
	weights := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "tiny_tied", "config.json"))
	args := []string{"exp=icl_loop", "hydra.run.dir=" + dir, "threads=1", "data=captions", "data.root=" + root, "lvlm.path=" + weights,
		"encoder.path=../../selector/clip/testdata/quick", "icl.baselines=[image]", "icl.selectors=[sft]", "icl.shots=[1]", "beams.candidates=5",
		"beams.width=2", "beams.score=cider", "lvlm.max_new_tokens=8", "sft.epochs=1", "report.plots=false"}
	for want, more := range map[string][]string{"take data.reward.mode=beam_score": nil,
		"icl.models=nowhere: no such folder":         {"data.reward.mode=beam_score", "icl.models=[nowhere]"},
		"encoder.path: the stage embed needs a CLIP": {"data.reward.mode=beam_score", "encoder.path=null"},
		"stage sft_0: selector.num_heads=7: want":    {"data.reward.mode=beam_score", "selector.num_heads=7"},
		"icl.models=[a,b,a]: a stands twice":         {"data.reward.mode=beam_score", "icl.models=[a,b,a]"}} {
		if r := run(t, append(slices.Clone(args), more...)...); r.Code != 2 || !strings.Contains(r.Stderr, want) {
			t.Errorf("exit %d: %s, want %q", r.Code, r.Stderr, want)
		}
	}
	mustRun(t, append(args, "data.reward.mode=beam_score")...)
	if table := read(t, filepath.Join(dir, "comparison.csv")); strings.Count(table, "\n") != 3 || !strings.Contains(table, "CIDEr-D × 100") {
		t.Errorf("comparison:\n%s", table)
	}
	results, err := filepath.Glob(filepath.Join(dir, "stages", "image_1shot-*", "results.json"))
	if err != nil || len(results) != 1 {
		t.Fatalf("%v %v", results, err)
	}
	for _, truth := range []string{filepath.Join(root, "annotations", "captions_val2014.json"), filepath.Join(dir, "annotations.json")} {
		var got captionScores
		out := folder(t)
		mustRun(t, "task=evaluate", "evaluate.metric=cider", "evaluate.results="+results[0], "evaluate.annotations="+truth, "hydra.run.dir="+out)
		if readJSON(t, filepath.Join(out, "evaluate.json"), &got); got.Images != 6 || got.Missing != 0 {
			t.Errorf("%s: %+v", truth, got)
		}
	}
}
