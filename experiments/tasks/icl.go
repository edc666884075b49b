//go:build !core

package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/beamdata/icl"
	"fulcrum/beamdata/iclshapes"
	"fulcrum/configs"
	"fulcrum/experiments/job"
	"fulcrum/experiments/workload"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/digest"
	"fulcrum/internal/hffolder"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/regular"
	"fulcrum/internal/usage"
	"fulcrum/reports/record"
	"fulcrum/rewardutil/vqa"
	"fulcrum/selector/clip"
	"fulcrum/selector/pointer"
	"fulcrum/selector/vl"
)

func iclTask() job.Task {
	return job.Task{Run: iclLoop, Saves: true, Sections: []string{"beams", "lvlm", "evidence"}, Reads: []string{"data"},
		Stages: []string{"embed", "beams", "infer", "train", "predict"}, Options: new(DefaultICLOptions()),
		On: func(c *job.Config) string {
			if in := c.Data.RecordsICL; in != nil {
				return "on " + *in
			}
			return onData(c)
		}}
}

func iclOf(c *job.Config) *ICLOptions { return job.Own[ICLOptions](c, "icl") }

func selectorOf(c *job.Config) *pointer.Options { return job.Own[pointer.Options](c, "selector") }

// iclLoop runs task=icl: embeddings, pools and beams of the records, selectors that learn from them, the model's answers with what
// each method chooses, and the comparison.
func iclLoop(ctx context.Context, j *job.Job) error {
	o := *iclOf(j.Config)
	beams := len(o.Selectors) > 0 || o.bestBeam()
	if beams && slices.Max(o.Shots) > beamsOf(j.Config).Shots {
		return usage.Errorf("icl.shots=%v: selectors and best_beam choose beams.shots=%d examples: ask for no more", o.Shots,
			beamsOf(j.Config).Shots)
	}
	greedy := slices.Contains([]string{"cider", "vqa"}, beamsOf(j.Config).Score)
	if mode := j.Config.Data.Reward.Mode; len(o.Selectors) > 0 && greedy && mode == "vqa_gt_prob" {
		return usage.Errorf("data.reward.mode=%s: beams.score=%s asks for no probabilities: take data.reward.mode=beam_score", mode,
			beamsOf(j.Config).Score)
	}
	c := j.Config
	builtIn := c.Data.Name == "icl_shapes" && c.Data.RecordsICL == nil // with a table of its own
	if encoderOf(c).Path == nil && c.Data.Embeddings == nil && !builtIn {
		return usage.Errorf("encoder.path: the stage embed needs a CLIP folder as save_pretrained writes it, or a language model's, or give a " +
			"table of all records: data.embeddings=FILE")
	}
	s, err := newStages(j)
	if err != nil {
		return err
	}
	l := &loop{ICLOptions: o, stages: s, job: j}
	if err := l.read(ctx); err != nil {
		return err
	}
	if j.Compose != nil { // what a stage lacks is said before the first one starts
		l.plan = true
		if err := l.folders(); err != nil {
			return err
		}
		if _, err := l.all(ctx); err != nil {
			return err
		}
		l.plan = false
	}
	if j.Config.DryRun {
		j.Logf("dry_run: every stage is configured; nothing was run")
		return nil
	}
	j.Begun = true
	j.Holder.Heed()
	answers, err := l.all(ctx)
	if err != nil {
		return err
	}
	return l.report(answers)
}

// folders refuses models that are not there. They are opened by the stages that need them.
func (l *loop) folders() error {
	c := l.job.Config
	if path := encoderOf(c).Path; path != nil && l.table == nil && !readsText(*path) {
		if err := workload.CheckDownloaded("encoder.path", *path); err != nil {
			return err
		}
		folder, err := hffolder.Open(*path)
		if err == nil {
			_, err = clip.ParseConfig(folder.Config)
		}
		if err != nil {
			return usage.Errorf("encoder.path: want a CLIP folder as save_pretrained writes it, or a language model's: %v", err)
		}
	}
	if lvlmOf(c).Backend != "local" {
		return nil
	}
	key, models := "icl.models", l.Models
	if path := lvlmOf(c).Path; path != nil && len(models) == 0 {
		key, models = "lvlm.path", []string{*path}
	}
	for _, path := range models {
		if err := workload.CheckDownloaded(key, path); err != nil {
			return err
		}
		if _, err := workload.CheckArchitecture(key, path, vl.Kind); err != nil {
			return err
		}
	}
	return nil
}

// all runs the stages: embeddings, and for each model its beams, selectors and answers.
func (l *loop) all(ctx context.Context) (answers []*answered, err error) {
	l.name = "" // the embeddings are no model's
	if err := l.embed(ctx); err != nil {
		return nil, err
	}
	models := l.Models
	if len(models) == 0 {
		models = []string{""}
	}
	for _, name := range models {
		of, err := l.ask(ctx, name)
		if err != nil {
			return nil, err
		}
		answers = append(answers, of...)
	}
	return answers, nil
}

// ask lets a model answer with what every method chooses for it. name is one of icl.models, "" = that of the section lvlm.
func (l *loop) ask(ctx context.Context, name string) (answers []*answered, err error) {
	if l.name = name; name != "" && !l.plan {
		l.job.Logf("model: %s", name)
	}
	if err := l.findModel(ctx, name); err != nil {
		return nil, err
	}
	if err := l.search(ctx); err != nil {
		return nil, err
	}
	for _, shots := range l.Shots {
		for _, b := range l.Baselines {
			a, err := l.baseline(ctx, b, shots)
			if err != nil {
				return nil, err
			}
			answers = append(answers, a)
		}
	}
	for _, name := range l.Selectors {
		of, err := l.selector(ctx, name)
		if err != nil {
			return nil, err
		}
		answers = append(answers, of...)
	}
	return answers, nil
}

// loop is one task=icl.
type loop struct {
	ICLOptions
	*stages
	job        *job.Job
	set        *icl.Set
	from       []string     // digests of the records and of their pictures
	records    []string     // overrides that name the records
	training   []string     // the same for stages that train with them
	table      *string      // of embeddings; nil: a stage makes it
	asking     []string     // overrides of the stages that ask the model: where answers are kept
	embeddings string       // override that names their table
	name       string       // of the model among icl.models; "" = the only one
	model      []string     // overrides that name the model
	weights    []string     // state of its files
	beams      string       // stage of the training queries' beams
	pools      string       // RL file of the held-out queries' pools
	best       string       // and of their beams, where best_beam is compared
	spent      []spent      // on what the methods have in common
	held       []icl.Record // held out, with answers
}

func (l *loop) read(ctx context.Context) error {
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
	for _, q := range l.set.Queries(true) {
		if r := l.set.Records.At(q); len(r.Answers) > 0 {
			l.held = append(l.held, r)
		}
	}
	if n, want := len(l.set.Queries(false)), beamsOf(c).Candidates; n <= want {
		return usage.Errorf("beams.candidates=%d: the %d training records are too few for pools of so many and a question", want, n)
	}
	if len(l.held) == 0 {
		return usage.Errorf("no held-out record has an answer: mark some with \"split\": \"val\"")
	}
	if c0.Data.RecordsICL != nil {
		l.records = []string{"data.records_icl=" + configs.Quote(*c0.Data.RecordsICL)}
	}
	if c.Data.RecordsICL == nil { // or it is among a stage's overrides anyway
		if l.training = l.records; len(l.records) == 0 {
			l.training = []string{"data.records_icl=" + configs.Quote(*c.Data.Root)}
		}
	}
	l.table = c0.Data.Embeddings
	if lvlmOf(c).Store == nil { // what the models say is kept in one store for all stages
		l.asking = []string{"lvlm.store=" + configs.Quote(filepath.Join(l.root, "store"))}
	}
	return nil
}

// embed makes the embeddings that all models have in common, unless there is a table.
func (l *loop) embed(ctx context.Context) error {
	if l.table != nil {
		l.embeddings = "data.embeddings=" + configs.Quote(*l.table)
		return nil
	}
	modality := "both"
	if path := encoderOf(l.job.Config).Path; path != nil && readsText(*path) || l.set.Records.At(0).Image == "" {
		modality = "text"
	}
	dir, err := l.run(ctx, "embed", "embed", append(l.records, "embed.modality="+modality), l.from...)
	l.embeddings = "data.embeddings=" + configs.Quote(filepath.Join(dir, "embeddings.safetensors"))
	return l.spend("embeddings", dir, err)
}

// search makes beams of the training queries and pools of the held-out ones.
func (l *loop) search(ctx context.Context) (err error) {
	l.beams, err = l.asked(ctx, "beams", "beams")
	if err = l.spend("beams", l.beams, err); err != nil {
		return err
	}
	asked := "beams.queries=null"
	if l.Questions != nil {
		asked = fmt.Sprintf("beams.queries=%d", *l.Questions)
	}
	dir, err := l.asked(ctx, "pools", "beams", "beams.split=val", "beams.score=none", asked)
	if l.pools = filepath.Join(dir, "records.json"); err != nil || !l.bestBeam() {
		return err
	}
	dir, err = l.asked(ctx, "best_beams", "beams", "beams.split=val", asked)
	err = l.spend("beams of held-out questions", dir, err)
	l.best = filepath.Join(dir, "records.json")
	return err
}

// asked makes sure that a stage is done that reads the records and asks the model.
func (l *loop) asked(ctx context.Context, name, task string, args ...string) (string, error) {
	all := slices.Concat(l.records, l.asking, l.model, []string{l.embeddings}, args)
	return l.run(ctx, name, task, all, append(slices.Clone(l.weights), l.from...)...)
}

// world writes the built-in records, once for equal options.
func (l *loop) world(opt iclshapes.Options) (string, error) {
	key := digest.Of(fmt.Appendf(nil, "%d %+v", edition("world"), opt))
	dir := filepath.Join(l.root, "world-"+key[:12])
	if _, err := os.Stat(filepath.Join(dir, iclshapes.RecordsFile)); err == nil {
		return dir, nil
	}
	return dir, iclshapes.NewWorld(opt).Write(dir) // equal bytes, whoever writes them at the same time
}

// findModel names the vision-language model to the stages that ask it, and trains it where none is named.
func (l *loop) findModel(ctx context.Context, name string) error {
	c := l.job.Config
	path, served := lvlmOf(c).Path, lvlmOf(c).Backend != "local"
	if name != "" && !served {
		path = &name
	}
	l.model, l.weights = nil, nil
	if path != nil {
		l.model, l.weights = []string{"lvlm.path=" + configs.Quote(*path)}, state(*path)
	}
	if served && name == "" && lvlmOf(c).Model != nil {
		name = *lvlmOf(c).Model
	}
	if served && name != "" {
		l.model = append(l.model, "lvlm.model="+configs.Quote(name))
	}
	switch {
	case served, path != nil:
	case l.Model == nil:
		return usage.Errorf("lvlm.path: want the folder of a Qwen2.5-VL or of a language model, a run of policy=qwen2_5_vl, or " +
			"icl.model=EXPERIMENT that trains one")
	default:
		args := append([]string{"exp=" + *l.Model}, list.Filter(l.base, func(o string) bool { // what the model's data and training are made of
			return slices.Contains([]string{"data", "vl", "device", "threads"}, section(o))
		})...)
		dir, err := l.start(ctx, "model", edition("train"), args, nil)
		if err = l.spend("model", dir, err); err != nil {
			return err
		}
		l.model = []string{"lvlm.path=" + configs.Quote(dir)}
	}
	return nil
}

// baseline lets the model answer with what a method chooses that nothing was trained for: chance anew with every seed, the others
// choose the same with any, so that runs of different seeds share the stage.
func (l *loop) baseline(ctx context.Context, method string, shots int) (*answered, error) {
	chooser, args := answering(method)
	args = append(args, "infer.method="+chooser)
	if chooser != record.PolicyRandom {
		return l.infer(ctx, method, shots, l.job.Config.Seed, args...)
	}
	out := &answered{model: l.name, method: method, shots: shots}
	for k := range l.Seeds {
		seed := l.job.Config.Seed + int64(k)
		a, err := l.infer(ctx, fmt.Sprintf("%s_%d", method, seed), shots, seed, slices.Concat(args, []string{fmt.Sprintf("seed=%d", seed)})...)
		if err != nil {
			return nil, err
		}
		out.add(a)
	}
	return out, nil
}

// selector trains a selector with every seed and lets the model answer with what it chooses.
func (l *loop) selector(ctx context.Context, name string) ([]*answered, error) {
	chooser, answers := answering(name)
	phases, control := l.Schedule(chooser)
	short := strings.NewReplacer(":", "_", "+", "_").Replace
	out := list.Map(l.Shots, func(shots int) *answered { return &answered{model: l.name, method: name, shots: shots} })
	data := []string{"data=beams", l.embeddings}
	if lvlmOf(l.job.Config).Reward != nil { // the model scores selections in training
		data = append(data, l.model...)
	}
	if lvlmOf(l.job.Config).Reward != nil || selectorOf(l.job.Config).Clip.Path != nil { // which are of questions and pictures
		data = append(data, l.training...)
	}
	for k := range l.Seeds {
		seed := l.job.Config.Seed + int64(k)
		stage := fmt.Sprintf("%s_%d", short(chooser), seed) // shared where answers alone are shuffled
		trained, err := l.run(ctx, stage, "train", append(slices.Clone(data),
			"data.beams="+configs.Quote(filepath.Join(l.beams, "records.json")), "schedule=["+strings.Join(phases, ",")+"]", "control="+control,
			fmt.Sprintf("selector.shot_num=%d", beamsOf(l.job.Config).Shots), fmt.Sprintf("seed=%d", seed)))
		if answers == nil { // or it is there already
			err = l.spend("training "+name, trained, err)
		}
		if err != nil {
			return nil, err
		}
		chosen, err := l.run(ctx, stage+"_choice", "predict", append(slices.Clone(data), "data.beams="+configs.Quote(l.pools),
			"init.checkpoint="+configs.Quote(filepath.Join(trained, "checkpoints", l.Checkpoint+".safetensors"))))
		if err != nil {
			return nil, err
		}
		for i, shots := range l.Shots {
			a, err := l.infer(ctx, fmt.Sprintf("%s_%d", short(name), seed), shots, seed, slices.Concat(answers, []string{
				"infer.method=predictions", "infer.predictions=" + configs.Quote(filepath.Join(chosen, "predictions.jsonl"))})...)
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
	beams := l.pools
	if strings.HasSuffix(method, "best_beam") {
		beams = l.best
	}
	stage := fmt.Sprintf("%s_%dshot", strings.ReplaceAll(method, ":", "_"), shots)
	dir, err := l.asked(ctx, stage, "infer", append(args, "infer.beams="+configs.Quote(beams), fmt.Sprintf("infer.shots=%d", shots))...)
	if err != nil {
		return nil, err
	}
	a := &answered{model: l.name, method: method, shots: shots, seeds: []int64{seed}, folders: []string{dir}}
	if l.plan {
		return a, nil
	}
	text, err := regular.ReadDocument(filepath.Join(dir, "infer.json"))
	if err == nil {
		err = jsonwords.Unmarshal(text, &a.cost)
	}
	if err != nil {
		return nil, err
	}
	of, err := l.grade(filepath.Join(dir, "results.json"))
	if err != nil {
		return nil, err
	}
	a.runs = []map[int64]float64{of}
	return a, nil
}

// grade scores a result file by question or image: official VQA accuracy from 0 to 1, or CIDEr-D. What nobody answered is left out.
func (l *loop) grade(path string) (map[int64]float64, error) {
	known := map[int64][]string{}
	for _, r := range l.held {
		known[r.ID] = r.Answers
	}
	if l.set.Captions {
		results, err := readCaptionResults(path)
		if err != nil {
			return nil, err
		}
		return gradeCaptions(known, slices.DeleteFunc(results, func(r captionResult) bool { return known[r.ImageID] == nil }))
	}
	results, err := readResults(path)
	out := map[int64]float64{}
	for _, r := range results {
		if answers := known[r.QuestionID]; answers != nil {
			out[r.QuestionID] = vqa.Accuracy(r.Answer, answers, false)
		}
	}
	return out, err
}

// writeAnnotations keeps the held-out records' answers as an official annotation file, so that task=evaluate can score every result file
// again.
func (l *loop) writeAnnotations() error {
	list := []any{}
	for _, r := range l.held {
		a := vqa.Annotation{QuestionID: r.ID, ImageID: r.PublishedImage(), QuestionType: "other", AnswerType: "other"}
		for _, text := range r.Answers {
			a.Answers = append(a.Answers, vqa.Answer{Answer: text})
			if l.set.Captions {
				list = append(list, caption{int64(len(list)), r.ID, text})
			}
		}
		if !l.set.Captions {
			list = append(list, a)
		}
	}
	text, err := json.Marshal(map[string]any{"annotations": list})
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(l.job.Dir, "annotations.json"), append(text, '\n'), 0o644)
}
