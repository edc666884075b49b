package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/beamdata/icl"
	"fulcrum/beamdata/iclshapes"
	"fulcrum/experiments/job"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/digest"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/usage"
	"fulcrum/reports/record"
	"fulcrum/rewardutil/vqa"
)

// iclLoop runs task=icl: embeddings, pools and beams of the records, selectors that learn from them, the model's answers with what
// each method chooses, and the comparison.
func iclLoop(ctx context.Context, j *job.Job) error {
	o := j.Config.ICL
	if len(o.Selectors) > 0 && slices.Max(o.Shots) > j.Config.Beams.Shots {
		return usage.Errorf("icl.shots=%v: selectors choose beams.shots=%d examples: ask for no more", o.Shots, j.Config.Beams.Shots)
	}
	s, err := newStages(j)
	if err != nil {
		return err
	}
	if j.Config.DryRun {
		j.Logf("dry_run: nothing was run")
		return nil
	}
	j.Begun = true
	l := &loop{ICLOptions: o, stages: s, job: j}
	if err := l.prepare(ctx); err != nil {
		return err
	}
	var answers []*answered
	for _, shots := range o.Shots {
		for _, b := range o.Baselines {
			a, err := l.baseline(ctx, b, shots)
			if err != nil {
				return err
			}
			answers = append(answers, a)
		}
	}
	for _, name := range o.Selectors {
		of, err := l.selector(ctx, name)
		if err != nil {
			return err
		}
		answers = append(answers, of...)
	}
	return l.report(answers)
}

// loop is one task=icl.
type loop struct {
	job.ICLOptions
	*stages
	job         *job.Job
	set         *icl.Set
	from        []string // digests of the records and of their pictures
	records     []string // overrides that name the records, and where answers are kept
	embeddings  string   // override that names their table
	model       string   // override that names the model
	beams       string   // stage of the training queries' beams
	pools       string   // RL file of the held-out queries' pools
	spent       []spent  // on what the methods have in common
	annotations []vqa.Annotation
}

// prepare makes all that the methods have in common: records, model, embeddings, beams and pools.
func (l *loop) prepare(ctx context.Context) error {
	c := l.job.Config
	c0 := *c
	if c.Data.Name == "icl_shapes" && c.Data.RecordsICL == nil {
		dir, err := l.world(c.Data.ICLShapes)
		if err != nil {
			return err
		}
		records, table := filepath.Join(dir, iclshapes.RecordsFile), filepath.Join(dir, iclshapes.FeaturesFile)
		c0.Data.RecordsICL, c0.Data.Embeddings = &records, &table
	}
	var err error
	if l.set, err = c0.Records(nil); err != nil {
		return err
	}
	shown, err := pictures(ctx, l.set.Records)
	if err != nil {
		return err
	}
	l.from = []string{l.set.Digest, shown}
	l.job.Data = record.DataSummary{Name: "records", Fingerprint: l.set.Digest, Counts: l.set.Counts, Skipped: map[string]int{}}
	if l.annotations = annotationsOf(l.set); len(l.annotations) == 0 {
		return usage.Errorf("no held-out record has an answer: mark some with \"split\": \"val\"")
	}
	if c0.Data.RecordsICL != nil {
		l.records = []string{"data.records_icl=" + quoted(*c0.Data.RecordsICL)}
	}
	if err := l.findModel(ctx); err != nil {
		return err
	}
	if c0.Data.Embeddings == nil {
		dir, err := l.run(ctx, "embed", "embed", append(l.records, "embed.modality=both"), l.from...)
		if err = l.spend("embeddings", dir, err); err != nil {
			return err
		}
		table := filepath.Join(dir, "embeddings.safetensors")
		c0.Data.Embeddings = &table
	}
	l.embeddings = "data.embeddings=" + quoted(*c0.Data.Embeddings)
	args := append(slices.Clone(l.records), l.model, l.embeddings)
	l.beams, err = l.run(ctx, "beams", "beams", args, l.from...)
	if err = l.spend("beams", l.beams, err); err != nil {
		return err
	}
	dir, err := l.run(ctx, "pools", "beams", append(args, "beams.split=val", "beams.score=none"), l.from...)
	l.pools = filepath.Join(dir, "records.json")
	return err
}

// world writes the built-in records, once for equal options.
func (l *loop) world(opt iclshapes.Options) (string, error) {
	key := digest.Of(fmt.Appendf(nil, "%d %+v", edition("world"), opt))
	dir := filepath.Join(l.root, "world-"+key[:12])
	if _, err := os.Stat(filepath.Join(dir, iclshapes.RecordsFile)); err == nil {
		return dir, nil
	}
	w, err := iclshapes.NewWorld(opt)
	if err == nil {
		err = w.Write(dir) // equal bytes, whoever writes them at the same time
	}
	return dir, err
}

// findModel trains the vision-language model where none is named. What it says is kept in one store for all stages.
func (l *loop) findModel(ctx context.Context) error {
	c := l.job.Config
	if c.LVLM.Store == nil {
		l.records = append(l.records, "lvlm.store="+quoted(filepath.Join(l.root, "store")))
	}
	switch {
	case c.LVLM.Path != nil:
		l.model = "lvlm.path=" + quoted(*c.LVLM.Path)
	case c.LVLM.Backend != "local":
		l.model = "lvlm.backend=" + c.LVLM.Backend
	case l.Model == nil:
		return usage.Errorf("lvlm.path: want the folder of a Qwen2.5-VL, a run of policy=qwen2_5_vl, or icl.model=EXPERIMENT that trains one")
	default:
		args := []string{"exp=" + *l.Model}
		for _, o := range l.base { // what the model's data and training are made of
			if slices.Contains([]string{"data", "vl", "device", "threads"}, section(o)) {
				args = append(args, o)
			}
		}
		dir, err := l.start(ctx, "model", edition("train"), args, nil)
		if err = l.spend("model", dir, err); err != nil {
			return err
		}
		l.model = "lvlm.path=" + quoted(dir)
	}
	return nil
}

// baseline lets the model answer with what a method chooses that nothing was trained for: chance anew with every seed, the others
// choose the same with any, so that runs of different seeds share the stage.
func (l *loop) baseline(ctx context.Context, method string, shots int) (*answered, error) {
	if method != record.PolicyRandom {
		return l.infer(ctx, method, shots, l.job.Config.Seed, "infer.method="+method)
	}
	out := &answered{method: method, shots: shots}
	for seed := range l.seeds() {
		a, err := l.infer(ctx, fmt.Sprintf("%s_%d", method, seed), shots, seed, "infer.method="+method, fmt.Sprintf("seed=%d", seed))
		if err != nil {
			return nil, err
		}
		out.add(a)
	}
	return out, nil
}

// seeds are those of the selectors and of chance.
func (l *loop) seeds() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for k := range l.Seeds {
			if !yield(l.job.Config.Seed + int64(k)) {
				return
			}
		}
	}
}

// selector trains a selector with every seed and lets the model answer with what it chooses.
func (l *loop) selector(ctx context.Context, name string) ([]*answered, error) {
	phases, control := l.Schedule(name)
	short := strings.NewReplacer(":", "_", "+", "_").Replace(name)
	var out []*answered
	for _, shots := range l.Shots {
		out = append(out, &answered{method: name, shots: shots})
	}
	data := []string{"data=beams", l.embeddings}
	for seed := range l.seeds() {
		stage := fmt.Sprintf("%s_%d", short, seed)
		trained, err := l.run(ctx, stage, "train", append(slices.Clone(data),
			"data.beams="+quoted(filepath.Join(l.beams, "records.json")), "schedule=["+strings.Join(phases, ",")+"]", "control="+control,
			fmt.Sprintf("selector.shot_num=%d", l.job.Config.Beams.Shots), fmt.Sprintf("seed=%d", seed)))
		if err = l.spend("training "+name, trained, err); err != nil {
			return nil, err
		}
		chosen, err := l.run(ctx, stage+"_choice", "predict", append(slices.Clone(data), "data.beams="+quoted(l.pools),
			"init.checkpoint="+quoted(filepath.Join(trained, "checkpoints", l.Checkpoint+".safetensors"))))
		if err != nil {
			return nil, err
		}
		for i, shots := range l.Shots {
			a, err := l.infer(ctx, stage, shots, seed, "infer.method=predictions",
				"infer.predictions="+quoted(filepath.Join(chosen, "predictions.jsonl")))
			if err != nil {
				return nil, err
			}
			out[i].add(a)
		}
	}
	return out, nil
}

// infer lets the model answer with what a method chooses.
func (l *loop) infer(ctx context.Context, method string, shots int, seed int64, args ...string) (*answered, error) {
	all := slices.Concat(l.records, []string{l.model, l.embeddings, "infer.beams=" + quoted(l.pools),
		fmt.Sprintf("infer.shots=%d", shots)}, args)
	dir, err := l.run(ctx, fmt.Sprintf("%s_%dshot", method, shots), "infer", all, l.from...)
	if err != nil {
		return nil, err
	}
	a := &answered{method: method, shots: shots, seeds: []int64{seed}, folders: []string{dir}}
	text, err := os.ReadFile(filepath.Join(dir, "infer.json"))
	if err == nil {
		err = jsonwords.Unmarshal(text, &a.cost)
	}
	if err != nil {
		return nil, err
	}
	results, err := readResults(filepath.Join(dir, "results.json"))
	if err != nil {
		return nil, err
	}
	graded, err := vqa.Evaluate(l.annotations, results, false)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	of := map[int64]float64{}
	for id, percent := range graded.ByQuestion {
		of[id] = percent / 100
	}
	a.runs = []map[int64]float64{of}
	return a, nil
}

// annotationsOf are the held-out records' answers as an official annotation file has them.
func annotationsOf(set *icl.Set) (out []vqa.Annotation) {
	for _, q := range set.Queries(true) {
		r := set.Records[q]
		a := vqa.Annotation{QuestionID: r.ID, ImageID: r.ImageID, QuestionType: "other", AnswerType: "other"}
		for _, text := range r.Answers {
			a.Answers = append(a.Answers, vqa.Answer{Answer: text})
		}
		if len(a.Answers) > 0 {
			out = append(out, a)
		}
	}
	return out
}

// writeAnnotations keeps them beside the report, so that task=evaluate can score every result file again.
func (l *loop) writeAnnotations() error {
	text, err := json.Marshal(map[string]any{"annotations": l.annotations})
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(l.job.Dir, "annotations.json"), append(text, '\n'), 0o644)
}
