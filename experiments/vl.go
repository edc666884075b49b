package experiments

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/beamdata"
	"fulcrum/beamdata/conversation"
	"fulcrum/internal/atomicfile"
	"fulcrum/phases"
	"fulcrum/reports"
	"fulcrum/rewardutil"
	"fulcrum/selector"
	"fulcrum/selector/prompts"
	"fulcrum/selector/vl"
	"fulcrum/selector/vl/pixels"
	"fulcrum/selector/vl/processor"
)

// vlSource are conversations as the vision-language policy reads them.
type vlSource = prompts.Source[*processor.Prompt]

// vlWork trains Qwen2.5-VL on conversations.
type vlWork struct {
	run       *run
	bundle    *conversation.Bundle
	processor *processor.Processor
	policy    *vl.Policy
	rewards   *rewardutil.TextRewards // nil: nothing scores completions
	sources   map[*conversation.Set]*vlSource
}

// newVLWork reads the data and builds the model.
func newVLWork(r *run) (workload, error) {
	c := r.cfg
	w := &vlWork{run: r, sources: map[*conversation.Set]*vlSource{}}
	err := r.mapTorch(func() (err error) {
		if w.bundle, err = beamdata.LoadConversations(c.Data); err != nil {
			return err
		}
		if c.Rewards.Any() {
			if w.rewards, err = c.Rewards.Build(); err != nil {
				return &UsageError{err.Error()}
			}
			r.closers = append(r.closers, w.rewards)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if w.bundle.Notice != "" {
		r.logf("data: %s", w.bundle.Notice)
	}
	if w.bundle.Val.Len() == 0 {
		return nil, usagef("data.name=%s: no validation conversations: lower data.train_ratio or name data.conversations.val", w.bundle.Name)
	}
	if w.bundle.Train.Len() == 0 {
		return nil, usagef("data.name=%s: no training conversations: raise data.train_ratio", w.bundle.Name)
	}
	if !c.VL.Trains() {
		return nil, usagef("vl: nothing would be trained: vl.lora.enabled=true, or tune_mm_llm, tune_mm_vision or tune_mm_mlp")
	}
	model, proc, err := r.vlModel(w.bundle)
	if err != nil {
		return nil, err
	}
	w.policy, w.processor = vl.NewPolicy(model), proc
	if err := w.probe(); err != nil {
		w.policy.Free()
		return nil, err
	}
	return w, nil
}

// modelFolder is where a run from random weights keeps config.json, tokenizer and preprocessor.
const modelFolder = "model"

// vlModel opens or makes the model and its processor. bundle is nil for tasks without training data.
func (r *run) vlModel(bundle *conversation.Bundle) (*vl.Model, *processor.Processor, error) {
	c := r.cfg
	warn := func(message string) { r.log.Warnf("%s", message) }
	checkpoint := ""
	if c.Init.Checkpoint != nil {
		var err error
		if checkpoint, err = resolveCheckpoint(*c.Init.Checkpoint); err != nil {
			return nil, nil, err
		}
	}
	var proc *processor.Processor
	var err error
	switch {
	case c.VL.Path != nil:
		if proc, err = processor.Open(*c.VL.Path); err != nil {
			err = usagef("vl.path: %v (want a model folder on disk: nothing is downloaded)", err)
		}
	case checkpoint != "":
		if base := baseOf(checkpoint); base != "" { // the run trained a part of a model folder
			c.VL.Path = &base
			proc, err = processor.Open(base)
			break
		}
		proc, err = processor.Open(besideCheckpoint(checkpoint))
	case bundle == nil:
		return nil, nil, usagef("vl.path: task=%s needs a model folder (vl.path=DIR) or a run from random weights (init.checkpoint=RUN_FOLDER)", c.Task)
	default:
		proc, err = builtinProcessor(bundle, c.VL.Scratch)
	}
	if err != nil {
		return nil, nil, err
	}
	if err := proc.Limit(c.VL.MinPixels, c.VL.MaxPixels); err != nil {
		return nil, nil, usagef("vl.min_pixels, vl.max_pixels: %v", err)
	}
	var model *vl.Model
	switch {
	case checkpoint != "":
		model, err = vl.OpenCheckpoint(checkpoint, c.VL, r.device, c.Seed, warn)
	case c.VL.Path != nil:
		model, err = vl.Open(c.VL, r.device, c.Seed, warn)
	default:
		model, err = vl.New(c.VL, vocabularyOf(proc), r.device, c.Seed)
	}
	if err != nil {
		return nil, nil, err
	}
	if bundle != nil && c.VL.Path == nil && !c.DryRun {
		err = r.keepModel(model, proc)
	}
	if err != nil {
		model.Free()
		return nil, nil, err
	}
	return model, proc, nil
}

// runOf is the folder of the run that wrote a checkpoint: RUN/checkpoints/x.safetensors.
func runOf(checkpoint string) string {
	if real, err := filepath.EvalSymlinks(checkpoint); err == nil {
		checkpoint = real
	}
	return filepath.Dir(filepath.Dir(checkpoint))
}

// besideCheckpoint is that run's model folder.
func besideCheckpoint(checkpoint string) string { return filepath.Join(runOf(checkpoint), modelFolder) }

// keepModel writes what the checkpoints of a model from random weights don't hold, so that they can be
// opened and exported.
func (r *run) keepModel(m *vl.Model, p *processor.Processor) error {
	dir := filepath.Join(r.dir, modelFolder)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(dir, "config.json"), m.Config().Raw, 0o644); err != nil {
		return err
	}
	return p.Save(dir)
}

// corpusSamples bounds what a built-in vocabulary is trained on.
const corpusSamples = 4000

// builtinProcessor trains a small vocabulary on the texts of the data.
func builtinProcessor(b *conversation.Bundle, sizes vl.ScratchOptions) (*processor.Processor, error) {
	var corpus []string
	taught := b.Train
	if b.Demos != nil {
		taught = b.Demos
	}
	step := max(1, taught.Len()/corpusSamples) // evenly: demonstrations of one kind may lie together
	for i := 0; i < taught.Len(); i += step {
		s, err := taught.Sample(i)
		if err != nil {
			return nil, err
		}
		for _, m := range s.Messages {
			corpus = append(corpus, m.Text)
			for _, part := range m.Parts {
				corpus = append(corpus, part.Text)
			}
		}
		corpus = append(corpus, s.Reference)
		for _, c := range s.Completions {
			corpus = append(corpus, c.Text)
		}
		corpus = append(corpus, s.Answers...)
	}
	config := pixels.DefaultConfig()
	config.MinPixels, config.MaxPixels = sizes.ImagePixels, sizes.ImagePixels
	return processor.Train(corpus, sizes.VocabSize, config)
}

// vocabularyOf tells a model from random weights what its processor needs.
func vocabularyOf(p *processor.Processor) vl.Vocabulary {
	ids := p.IDs()
	return vl.Vocabulary{Size: p.Tokenizer().Size(), EOS: ids.EOS, Pad: ids.Pad, Image: ids.ImagePad, Video: ids.VideoPad,
		VisionStart: ids.VisionStart, VisionEnd: ids.VisionEnd, VisionPad: ids.VisionPad}
}

func (w *vlWork) source(set *conversation.Set) *vlSource {
	if w.sources[set] == nil {
		longest := w.maxTokens()
		if set == w.bundle.Demos {
			longest = math.MaxInt // nobody samples there
		}
		w.sources[set] = prompts.New(w.run.ctx, set.Name, set, func(s conversation.Sample) (*processor.Prompt, error) { return w.processor.Prompt(s.Messages) },
			prompts.Text{Encode: w.processor.Tokenizer().Encode, Decode: w.decode, EOS: w.policy.Model().EOS(), MaxTokens: longest}, w.rewards)
	}
	return w.sources[set]
}

func (w *vlWork) decode(ids []int64) string { return w.processor.Tokenizer().Decode(ids, true) }

func (w *vlWork) maxTokens() int { return w.run.cfg.VL.Generation.MaxNewTokens }

// probe reads the first samples of each set and scores their references, so that a missing picture, answer
// or scorer shows before anything is trained.
func (w *vlWork) probe() error {
	probed := 256
	if r := w.run.cfg.Rewards; r.External.Weight != 0 || r.Points.Weight != 0 {
		probed = 4 // a scorer of the user's may take seconds a sample
	}
	if err := w.checkPictures(); err != nil {
		return err
	}
	for _, set := range []*conversation.Set{w.bundle.Train, w.bundle.Val, w.bundle.Eval} {
		if set.Len() == 0 {
			continue
		}
		src := w.source(set)
		queries := make([]int, min(probed, set.Len()))
		for i := range queries {
			queries[i] = i
		}
		for _, q := range queries[:min(4, len(queries))] {
			if _, err := src.Prompt(q); err != nil {
				return err
			}
		}
		if w.rewards != nil {
			if err := src.Score(src.Recorded(queries)); err != nil {
				return &UsageError{err.Error()}
			}
		}
	}
	return nil
}

// warnOfCuts says how many targets are longer than a completion may be: they are imitated cut, without an end.
func (w *vlWork) warnOfCuts(phase string, src *vlSource) {
	const looked = 256
	n := min(looked, src.Len())
	queries := make([]int, n)
	for i := range queries {
		queries[i] = i
	}
	cut := 0
	b := src.Recorded(queries)
	for i := range queries {
		if slices.Contains(b.Truncated[i*b.G:(i+1)*b.G], true) {
			cut++
		}
	}
	if cut > 0 {
		w.run.log.Warnf("%s: %d of the first %d samples have a target longer than vl.generation.max_new_tokens=%d: it is imitated cut, without an end", phase, cut, n, src.MaxTokens())
	}
}

// checkPictures reads the headers of the pictures of the first check_records samples of each set: one that is
// too small, or no picture at all, would end the run hours later.
func (w *vlWork) checkPictures() error {
	for _, set := range []*conversation.Set{w.bundle.Train, w.bundle.Demos, w.bundle.Val, w.bundle.Eval} {
		n := set.Len()
		if limit := w.run.cfg.Data.Conversations.CheckRecords; limit != nil {
			n = min(n, *limit)
		}
		for i := range n {
			if err := w.run.ctx.Err(); err != nil {
				return err
			}
			s, err := set.Sample(i)
			if err == nil {
				err = w.processor.Check(s.Messages)
			}
			if err != nil {
				return fmt.Errorf("%s set, %s: %w", set.Name, s.Name, err)
			}
		}
	}
	return nil
}

func (w *vlWork) Policy() selector.Policy { return w.policy }

// Beams are the demonstrations of sft, else the target and recorded completions of the training conversations.
func (w *vlWork) Beams(phase string) (selector.Source, error) {
	set := w.bundle.Train
	if phase == "sft" && w.bundle.Demos != nil {
		set = w.bundle.Demos
	}
	s, err := set.Sample(0)
	if err != nil {
		return nil, err
	}
	if s.Reference == "" && len(s.Completions) == 0 {
		return nil, usagef("schedule: phase %s imitates completions, and %s has none (a last assistant turn, or completions)", phase, s.Name)
	}
	w.warnOfCuts(phase, w.source(set))
	return w.source(set), nil
}

// Records are the recorded completions with rewards.
func (w *vlWork) Records(phase string) (selector.Source, error) {
	s, err := w.bundle.Train.Sample(0)
	if err != nil {
		return nil, err
	}
	if len(s.Completions) < 2 {
		return nil, usagef("schedule: phase %s needs groups of recorded completions, and %s has %d: %s.rollout=online samples them", phase, s.Name, len(s.Completions), phase)
	}
	return w.source(w.bundle.Train), nil
}

// Online are the training conversations with rewards for new completions.
func (w *vlWork) Online(phase string) (selector.Source, error) {
	if w.rewards == nil {
		return nil, usagef("schedule: phase %s samples new completions, and no term of rewards has a weight (rewards.vqa.weight=1, …)", phase)
	}
	return w.source(w.bundle.Train), nil
}

// PhasesData is what validation needs.
func (w *vlWork) PhasesData() phases.Data {
	c := w.run.cfg
	out := c.phasesData(c.SFT.Average)
	out.Val, out.EvalName = w.source(w.bundle.Val), w.bundle.EvalName
	out.Shots, out.EvalBatch = w.maxTokens(), c.Data.BatchSize
	if w.bundle.Eval.Len() > 0 {
		out.Eval = w.source(w.bundle.Eval)
	}
	return out
}

// Export writes nothing beside our own checkpoints: run checkpoint export makes Hugging Face folders.
func (w *vlWork) Export() (func(checkpoint, phase string, epoch int, metrics map[string]any) error, error) {
	if f := w.run.cfg.Checkpoint.Format; f == "pt" {
		return nil, usagef("checkpoint.format=pt is the pointer reference's layout: want safetensors for policy=%s", w.run.cfg.Policy)
	}
	return nil, nil
}

// Summary describes the data.
func (w *vlWork) Summary() reports.DataSummary {
	b := w.bundle
	return reports.DataSummary{Name: b.Name, Synthetic: b.Synthetic, Notice: b.Notice, Fingerprint: b.Fingerprint, EvalName: b.EvalName, Counts: maps.Clone(b.Counts), Skipped: map[string]int{}}
}

// Asked finds a training conversation by its id, for readers of completions.jsonl.
func (w *vlWork) Asked(query int64) asked {
	set := w.bundle.Train
	for i := range set.Len() {
		if set.ID(i) != query {
			continue
		}
		s, err := set.Sample(i)
		if err != nil {
			break // it was sampled from a moment ago: nothing to say here that training does not
		}
		return asked{strings.TrimSpace(s.Text()), s.Reference, s.Answers}
	}
	return asked{}
}

// Baselines scores the most frequent training answer on every question (majority), which needs no picture,
// and the targets themselves (reference), which bound what imitation can reach.
func (w *vlWork) Baselines() error {
	if w.rewards == nil {
		return nil
	}
	most, err := w.majority()
	if err != nil || most == "" { // prompts alone
		return err
	}
	for _, split := range []struct {
		name string
		set  *conversation.Set
	}{{"val", w.bundle.Val}, {w.bundle.EvalName, w.bundle.Eval}} {
		if split.set.Len() == 0 {
			continue
		}
		if err := w.baseline(split.name, "majority", split.set, func(conversation.Sample) string { return most }); err != nil {
			return err
		}
		s, err := split.set.Sample(0)
		if err != nil {
			return err
		}
		if s.Reference == "" {
			continue
		}
		if err := w.baseline(split.name, "reference", split.set, func(s conversation.Sample) string { return s.Reference }); err != nil {
			return err
		}
	}
	return nil
}

// majority is the most frequent target of the training conversations, the first of the alphabet on ties;
// "" where none has a target.
func (w *vlWork) majority() (string, error) {
	counts := map[string]int{}
	for i := range min(w.bundle.Train.Len(), corpusSamples) {
		s, err := w.bundle.Train.Sample(i)
		if err != nil {
			return "", err
		}
		if s.Reference != "" {
			counts[s.Reference]++
		}
	}
	best := ""
	for _, text := range slices.Sorted(maps.Keys(counts)) {
		if counts[text] > counts[best] {
			best = text
		}
	}
	return best, nil
}

func (w *vlWork) baseline(split, name string, set *conversation.Set, answer func(conversation.Sample) string) error {
	src := w.source(set)
	var ids []int64
	var sel beamdata.Selections // without an accuracy where no term says how often an answer is right
	for queries := range selector.Chunks(set.Len(), w.run.cfg.Data.BatchSize) {
		b := selector.NewBatch(src, queries, 1, w.maxTokens())
		for i, q := range queries {
			s, err := set.Sample(q)
			if err != nil {
				return err
			}
			tokens := w.processor.Tokenizer().Encode(answer(s))
			b.Set(i, 0, tokens[:min(len(tokens), b.T)], 0)
			ids = append(ids, set.ID(q))
		}
		acc, err := src.Accuracy(b)
		if err != nil {
			return err
		}
		sel.Reward, sel.Accuracy = append(sel.Reward, b.Rewards...), append(sel.Accuracy, acc...)
	}
	return w.run.recordBaseline(split, name, ids, sel, w.maxTokens())
}

// Examples writes examples.json: what the initial and the best policy answer to a few held-out questions,
// evenly along the change of reward.
func (w *vlWork) Examples(env *phases.Env, result phases.Result) error {
	set, src := w.bundle.Eval, env.Data.Eval
	if src == nil {
		set, src = w.bundle.Val, env.Data.Val
	}
	if w.rewards == nil {
		return nil
	}
	before, after, err := initialAndBest(env, src, result)
	if err != nil {
		return err
	}
	out := []reports.Example{}
	for _, i := range spread(before.Rewards, after.Rewards, func(i int) bool { return !slices.Equal(before.Selections[i], after.Selections[i]) }) {
		s, err := set.Sample(i)
		if err != nil {
			return err
		}
		out = append(out, reports.Example{Question: strings.TrimSpace(s.Text()), Answer: s.Reference, RewardBefore: before.Rewards[i], RewardAfter: after.Rewards[i],
			Before: []reports.ItemText{{Answer: w.decode(before.Selections[i])}}, After: []reports.ItemText{{Answer: w.decode(after.Selections[i])}}})
	}
	return w.run.writeExamples(out)
}

// --- task=generate and task=score

// textModel opens the token policy that the configuration names.
func (r *run) textModel() (textModel, error) {
	make, err := textModels().Get(r.cfg.Policy)
	if err != nil {
		return nil, usagef("policy=%s: task=%s needs a token policy: want one of %s", r.cfg.Policy, r.cfg.Task, strings.Join(textModels().Names(), ", "))
	}
	return make(r)
}

// vlText answers and scores prompts.
type vlText struct {
	model     *vl.Model
	processor *processor.Processor
}

func newVLText(r *run) (textModel, error) {
	if err := r.mapTorch(func() error { return nil }); err != nil {
		return nil, err
	}
	r.cfg.VL.LoRA.Enabled = false // fresh adapters would add nothing; those of vl.adapter and init.checkpoint come all the same
	model, proc, err := r.vlModel(nil)
	if err != nil {
		return nil, err
	}
	return &vlText{model, proc}, nil
}

func (t *vlText) Free() { t.model.Free() }

func (t *vlText) Prompt(line promptLine, dir string) (any, int, error) {
	msgs, err := conversationOf(line, dir)
	if err != nil {
		return nil, 0, err
	}
	p, err := t.processor.Prompt(msgs)
	if err != nil {
		return nil, 0, err
	}
	return p, len(p.IDs), nil
}

func (t *vlText) Encode(text string) []int64 { return t.processor.Tokenizer().Encode(text) }

func (t *vlText) Decode(ids []int64) string { return t.processor.Tokenizer().Decode(ids, true) }

func (t *vlText) VocabSize() int { return t.model.Config().Vocab }

func (t *vlText) Generate(_ context.Context, ps []any, o GenerateOptions, seed int64, first int) ([][]completion, error) {
	how := vl.GenerateOptions{SamplingOptions: t.sampling(o), Seed: uint64(seed), IgnoreEOS: o.IgnoreEOS, AllowPlaceholders: true} // as Hugging Face generates
	for i := range ps {
		how.Streams = append(how.Streams, first+i)
	}
	answers, err := t.model.Generate(t.prompts(ps), o.NumReturn, how)
	if err != nil {
		return nil, err
	}
	out := make([][]completion, len(answers))
	for i, group := range answers {
		for _, c := range group {
			out[i] = append(out[i], completion{c.IDs, !c.Finished})
		}
	}
	return out, nil
}

// sampling resolves what a key leaves null: the model's generation_config.json, else Hugging Face's defaults.
func (t *vlText) sampling(o GenerateOptions) vl.SamplingOptions {
	g := t.model.Generation()
	s := vl.SamplingOptions{MaxNewTokens: o.MaxNewTokens, TopP: 1, RepetitionPenalty: first(1, o.RepetitionPenalty, g.RepetitionPenalty)}
	if !first(false, o.DoSample, g.DoSample) {
		return s
	}
	s.Temperature, s.TopP, s.TopK = first(1, o.Temperature, g.Temperature), first(1, o.TopP, g.TopP), first(50, o.TopK, g.TopK)
	return s
}

// first returns the first value that is given.
func first[T any](otherwise T, values ...*T) T {
	for _, v := range values {
		if v != nil {
			return *v
		}
	}
	return otherwise
}

func (t *vlText) LogProbs(ps []any, completions [][]int64) ([][]float64, error) {
	groups := make([]vl.Group, len(ps))
	for i, p := range t.prompts(ps) {
		groups[i] = vl.Group{Prompt: p, Completions: [][]int64{completions[i]}}
	}
	logp, err := t.model.LogProbs(groups)
	if err != nil {
		return nil, err
	}
	out := make([][]float64, len(logp))
	for i := range logp {
		out[i] = logp[i][0]
	}
	return out, nil
}

func (t *vlText) prompts(ps []any) []*processor.Prompt {
	out := make([]*processor.Prompt, len(ps))
	for i, p := range ps {
		out[i] = p.(*processor.Prompt)
	}
	return out
}
