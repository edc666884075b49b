package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fulcrum/beamdata"
	"fulcrum/beamdata/keycheck"
	"fulcrum/experiments/job"
	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/rng"
	"fulcrum/internal/stat"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/reports/record"
	"fulcrum/rewardutil/recorded"
	"fulcrum/selector"
	"fulcrum/selector/pointer"
)

// Pointer trains the pointer selector: beams, recorded groups and a reader over one embedding table.
type Pointer struct {
	*PointerData
	job    *job.Job
	policy *pointer.Policy
}

// pointerPolicy is policy=pointer.
func pointerPolicy() Policy {
	return Policy{Policy: job.Policy{New: newPointerWorkload, Section: "selector", Help: "the pointer selector",
		Options: new(pointer.DefaultOptions()),
		Trains:  []string{"rce.average"},                                // of val_loss
		Needs:   map[string]string{"selector.clip": "data.records_icl"}, // the pictures and questions that CLIP reads
		Ignores: []string{"records_icl", "completions", "mask_truncated", "conversations", "state", "mm_projector_lr",
			"vision_tower_lr"},
		Smoothing: func(c *job.Config) float64 { return selectorOf(c).Smoothing },
		Validate: func(c *job.Config) error {
			if c.Compatible() && selectorOf(c).Clip.Path != nil {
				return option.Errorf("selector.clip.path", "compat=lever_plus reproduces training on a fixed table: leave one of the two out")
			}
			return nil
		}}}
}

func selectorOf(c *job.Config) *pointer.Options { return job.Own[pointer.Options](c, "selector") }

// newPointerWorkload reads the data and builds the selector.
func newPointerWorkload(ctx context.Context, j *job.Job) (job.Workload, error) {
	c := j.Config
	bundle, err := LoadData(j)
	if err != nil {
		return nil, err
	}
	if c.Compatible() {
		c.Entries.Reference.Reproduce(c, bundle.Format)
	}
	if bundle.Val == nil || bundle.Val.Len() == 0 {
		hint := "want some"
		if d, err := c.Data.Dataset(); err == nil && slices.Contains(d.Reads, "val_beams") {
			hint = "lower data.train_ratio or name data.val_beams"
		}
		return nil, usage.Errorf("data.name=%s: no validation queries: %s", bundle.Name, hint)
	}
	chosen, said := fewer(j, bundle.Val.Len())
	if chosen != nil {
		bundle.Val = bundle.Val.Subset(chosen)
	}
	if err := checkBestMetric(c, bundle); err != nil {
		return nil, err
	}
	data := NewPointerData(bundle)
	data.validated = said
	data.control, data.seed = c.Control, c.Seed
	if ask := c.Entries.Frozen.Ask; ask != nil {
		if data.ask, err = ask(ctx, j, bundle); err != nil {
			return nil, err
		}
	}
	least, greatest, _ := c.RewardRange()
	j.Ranges = map[string][2]float64{"reward": {least, greatest}}
	if least, greatest, ok := c.Data.Reward.Range(); ok && bundle.Format == "rl" { // rewards follow from the numbers that the file records
		j.Ranges["recorded_reward"] = [2]float64{least, greatest}
	}
	if n := c.Data.Eval.TrainQueries; n != nil {
		if data.seen = data.trained(*n); data.seen == nil {
			return nil, usage.Errorf("data.eval.train_queries=%d: the training queries of data.name=%s have no reader to score "+
				"selections with (data.reader)", *n, bundle.Name)
		}
	}
	if _, err := job.PlanOf(c, &Pointer{PointerData: data, job: j}); err != nil { // before any weight is read
		TellSkipped(j) // it may say why
		return nil, err
	}
	policy, err := OpenPointer(j, bundle)
	if err != nil {
		return nil, err
	}
	if c.Compatible() {
		c.GRPO.Freeze = c.Entries.Reference.Freeze(policy.Params().Names(), c.GRPO.Freeze)
	}
	tellChosen(j, policy, bundle.Val.Table)
	shots, err := ShotsOf(policy, bundle)
	if err != nil {
		policy.Free()
		return nil, err
	}
	policy.SetShots(shots) // the checkpoints of this run say how many examples it selects
	data.Serve(policy)
	return &Pointer{data, j, policy}, nil
}

// WithHeads returns phases.Env.WithHeads of a policy; nil where it has no attention heads to choose.
func WithHeads(p selector.Policy) func(p selector.Policy, heads int) (selector.Policy, error) {
	if _, ok := p.(*pointer.Policy); !ok {
		return nil
	}
	return func(p selector.Policy, heads int) (selector.Policy, error) {
		return p.(*pointer.Policy).CloneWithHeads(heads)
	}
}

func (w *Pointer) Policy() selector.Policy { return w.policy }
func (w *Pointer) PhasesData() phases.Data { return w.ValidationData(w.job.Config, w.shots()) }
func (w *Pointer) shots() int              { return *w.policy.Options().ShotNum }

// Export writes the reference trainer's files beside ours with checkpoint.format=pt.
func (w *Pointer) Export() (func(checkpoint, phase string, epoch int, metrics map[string]any) error, error) {
	if w.job.Config.Checkpoint.Format != "pt" {
		return nil, nil
	}
	if err := w.policy.FitsReference(); err != nil {
		return nil, usage.Errorf("checkpoint.format=pt: %v", err)
	}
	return func(checkpoint, phase string, epoch int, metrics map[string]any) error {
		return exportTrainer(w.job, checkpoint, phase, epoch, metrics)
	}, nil
}

func (w *Pointer) Examples(env *phases.Env, result phases.Result) error {
	return pointerExamples(w.job, w.bundle, env, result)
}

func (w *Pointer) Baselines() error {
	for _, split := range w.splits() {
		of := w.baselines
		if w.ask == nil && split.set.Scorer == nil {
			of = w.recordedBaselines
		}
		if err := of(split); err != nil {
			return err
		}
	}
	return nil
}

func (w *Pointer) splits() []evaluated[*beamdata.Set] {
	return splits(w.bundle.Val, w.bundle.EvalName, w.bundle.Eval, w.seen)
}

// LoadData reads the selector's data and makes the device ready.
func LoadData(j *job.Job) (*beamdata.Bundle, error) {
	var bundle *beamdata.Bundle
	err := j.MapTorch(func() (err error) {
		bundle, err = beamdata.Load(j.Config.Data)
		return err
	})
	if err != nil {
		return nil, err
	}
	j.Data = dataSummary(bundle)
	for _, note := range []string{bundle.Notice, bundle.HeldOut} {
		if note != "" {
			j.Logf("data: %s", note)
		}
	}
	return bundle, nil
}

// TellSkipped says what of the data is not used, and which keys are not read.
func TellSkipped(j *job.Job) {
	d := j.Data
	for _, reason := range slices.Sorted(maps.Keys(d.Skipped)) {
		text := "data: not used: " + record.SkippedText(reason, d.Skipped[reason])
		if at := d.SkippedAt[reason]; at != "" {
			text += " (" + at + ")"
		}
		j.Logf("%s", text)
	}
	for _, u := range d.UnknownKeys {
		if text := "data: " + keycheck.Unknown(u).String(); u.Nearest != "" {
			j.Log.Warnf("%s", text)
		} else {
			j.Logf("%s", text)
		}
	}
}

// unknownKeys are keys of records as a summary keeps them.
func unknownKeys(keys []keycheck.Unknown) []record.UnknownKey {
	return list.Map(keys, func(u keycheck.Unknown) record.UnknownKey { return record.UnknownKey(u) })
}

// dataSummary describes a bundle for summary.json.
func dataSummary(b *beamdata.Bundle) record.DataSummary {
	asked, sketch := b.Questions(b.Eval)
	sealed, _ := b.Questions(b.Sealed)
	s := record.DataSummary{Name: b.Name, Synthetic: b.Synthetic, Notice: b.Notice, Fingerprint: b.Fingerprint, Shots: b.Shots,
		EvalName: b.EvalName, EvalDigest: asked, EvalSketch: sketch, Sealed: sealed, HeldOut: b.HeldOut, LeftOut: b.LeftOut,
		Counts: map[string]int{}, Skipped: map[string]int{}, SkippedAt: map[string]string{}, UnknownKeys: unknownKeys(b.Unknown)}
	for name, n := range b.Counts {
		if strings.HasSuffix(name, "_queries") {
			s.Counts[name] = n
			continue
		}
		s.Skipped[name] = n
		if at := b.Skipped[name]; at != "" {
			s.SkippedAt[name] = "the first: " + at
		}
	}
	s.Methods = methodsOf(b.All)
	return s
}

// methodsOf returns what the recorded candidates of a set earn by how they were made, the best method first; nil where all were made alike.
func methodsOf(set *beamdata.Set) []record.MethodSummary {
	rewards := map[string][]float64{}
	for i := range set.Len() {
		for g := range set.NumCandidates(i) {
			c := set.Candidate(i, g)
			rewards[c.Method] = append(rewards[c.Method], c.Reward)
		}
	}
	if len(rewards) < 2 {
		return nil
	}
	out := list.Map(slices.Sorted(maps.Keys(rewards)), func(name string) record.MethodSummary {
		return record.MethodSummary{Name: name, Candidates: len(rewards[name]), Mean: record.Number(stat.Mean(rewards[name]))}
	})
	slices.SortStableFunc(out, func(a, b record.MethodSummary) int { return cmp.Compare(b.Mean, a.Mean) })
	return out
}

// checkBestMetric refuses a checkpoint.best.metric that the validation queries cannot give.
func checkBestMetric(c *job.Config, b *beamdata.Bundle) error {
	metric := c.Checkpoint.Best.Metric
	if metric == nil {
		return nil
	}
	switch *metric {
	case "val_reward", "val_accuracy":
		if b.Val.Scorer == nil && (c.FrozenScore() == "" || *metric == "val_accuracy" && c.FrozenScore() != "vqa") {
			return usage.Errorf("checkpoint.best.metric=%s: data.name=%s has no reader to score selections (data.reader)", *metric, b.Name)
		}
	case "val_loss", "val_advantage":
		if !slices.ContainsFunc(stat.Indices(b.Val.Len()), func(i int) bool { return b.Val.NumCandidates(i) > 0 }) {
			return usage.Errorf("checkpoint.best.metric=%s: no validation query of data.name=%s has recorded beams", *metric, b.Name)
		}
	}
	return nil
}

// OpenPointer builds the policy for a run's data: fresh, or from init.checkpoint. The data say what its features read.
func OpenPointer(j *job.Job, bundle *beamdata.Bundle) (*pointer.Policy, error) {
	p, err := openPointer(j, bundle)
	if err != nil {
		return nil, err
	}
	err = scorable(j.Config, bundle, p.Options().Features)
	for _, set := range []*beamdata.Set{bundle.RCE, bundle.Records, bundle.Online, bundle.Val, bundle.Eval, bundle.All} {
		if bad := p.Readable(set); err == nil && bad != nil {
			err = usage.Errorf("%v", bad)
		}
	}
	if err != nil {
		p.Free()
		return nil, err
	}
	return p, nil
}

func openPointer(j *job.Job, bundle *beamdata.Bundle) (*pointer.Policy, error) {
	table := firstSet(bundle.Val, bundle.All, bundle.Eval, bundle.RCE).Table
	expandFeatures(j, bundle)
	if j.Config.Compatible() {
		selectorOf(j.Config).Taken = "minus_100"
	}
	var openClip func(pointer.ClipOptions) (pointer.Embedder, error) // nil where the table is read
	if selectorOf(j.Config).Clip.Path != nil {
		if j.Config.Entries.Frozen.Embed == nil {
			return nil, usage.Errorf("selector.clip.path: this program is built without the annex \"the loop around a frozen model\"")
		}
		openClip = j.Config.Entries.Frozen.Embed(j, table)
	}
	if j.Config.Init.Checkpoint == nil {
		return freshPointer(j, bundle, table, openClip)
	}
	path, err := job.ResolveCheckpoint("init.checkpoint", *j.Config.Init.Checkpoint)
	if err != nil {
		return nil, err
	}
	j.WarnUntrained(path)
	how := pointer.OpenOptions{Options: *selectorOf(j.Config), Overridden: j.Overridden, Dim: table.Dim,
		RowLength: medianLength(j, table), Seed: j.Config.Seed, Device: j.Device, Strict: j.Config.Init.Strict, Clip: openClip,
		Warn: func(message string) { j.Log.Warnf("%s", message) }}
	if j.Config.Does().Trains {
		how.Fresh = func(names []string) {
			j.Fresh = fmt.Sprintf("%s start fresh, from seed %d: %s has none; all other parameters are its",
				strings.Join(names, " and "), j.Config.Seed, path)
			if how.Reference && !j.Overridden("selector.variant") { // nobody has asked for it
				j.Log.Warnf("init.checkpoint: %s", j.Fresh)
			} else {
				j.Logf("init.checkpoint: %s", j.Fresh)
			}
		}
		how.Reference = j.Config.Compatible()
	}
	p, err := pointer.Open(path, how)
	if _, ok := errors.AsType[*pointer.ConflictError](err); ok {
		return nil, usage.Errorf("%v", err)
	}
	return p, err
}

func freshPointer(j *job.Job, bundle *beamdata.Bundle, table *beamdata.Table,
	openClip func(pointer.ClipOptions) (pointer.Embedder, error)) (*pointer.Policy, error) {
	opt := *selectorOf(j.Config)
	if j.Saved != nil { // as the run began, whatever has become of its data
		if err := opt.Chosen(filepath.Join(j.Dir, "checkpoints", phases.InitialCheckpoint)); err != nil {
			return nil, err
		}
	}
	opt.Relation.Choose(table.Dim, medianLength(j, table))
	if train := firstSet(bundle.RCE, bundle.Records, bundle.Online); len(opt.Features.Names) > 0 && j.Saved == nil && train.Len() > 0 {
		if err := scorable(j.Config, bundle, opt.Features); err != nil {
			return nil, err
		}
		if err := opt.Features.Measure(train); err != nil {
			return nil, usage.Errorf("%v", err)
		}
	}
	if openClip == nil {
		return pointer.New(opt, table.Dim, j.Config.Seed, j.Device)
	}
	model, err := openClip(opt.Clip)
	if err != nil {
		return nil, err
	}
	return pointer.NewOver(model, opt, table.Dim, j.Config.Seed, j.Device)
}

// baselines scores random and similar selections, the best recorded beams where there are some, and what a reader finds best of all. Where
// a model is asked in a reader's place, which is dear, a random selection is drawn once a query, and nobody looks for the best.
func (w *Pointer) baselines(split evaluated[*beamdata.Set]) error {
	set, shots, seed := split.set, w.shots(), w.job.Config.Data.SplitSeed
	similar := beamdata.Similarity(set, shots)
	all := []struct {
		name      string
		positions [][]int32
	}{{"random", nil}, {"similarity", similar}, {"best_beam", beamdata.BestBeam(set, shots, similar)}, {"oracle", nil}}
	if w.ask == nil {
		all[3].positions = beamdata.Oracle(set, shots)
	} else {
		for i, id := range set.IDs {
			order := rng.New(seed, "baseline random", int(id)).Perm(set.PoolSize(i))[:min(shots, set.PoolSize(i))]
			all[0].positions = append(all[0].positions, list.Map(order, func(p int) int32 { return int32(p) }))
		}
	}
	for _, of := range all {
		var sel beamdata.Selections
		switch {
		case of.positions != nil:
			var err error
			if sel, err = w.scored(set, of.positions); err != nil {
				return err
			}
		case of.name == "random":
			sel = beamdata.Random(set, seed, 20, shots)
		default:
			continue
		}
		if err := recordBaseline(w.job, split.name, of.name, set.IDs, sel, shots); err != nil {
			return err
		}
	}
	return nil
}

// scored scores one selection a query, by the set's reader or the model that is asked.
func (w *Pointer) scored(set *beamdata.Set, positions [][]int32) (beamdata.Selections, error) {
	if w.ask == nil {
		return beamdata.ScoreAll(set, positions), nil
	}
	rewards, accuracy, err := w.ask(set)(stat.Indices(set.Len()), positions)
	if accuracy == nil {
		accuracy = slices.Repeat([]float64{math.NaN()}, len(rewards))
	}
	return beamdata.Selections{Positions: positions, Reward: rewards, Accuracy: accuracy}, err
}

// recordedBaselines judges the recorded candidates of a split that no reader scores: any of them, the one whose examples are
// most similar to the query, the one that the file lists first; and by reward alone the best of them, which is the ceiling.
func (w *Pointer) recordedBaselines(split evaluated[*beamdata.Set]) error {
	set := split.set
	var random, similarity, order, oracle recorded.Scores
	for i := range set.Len() {
		var rewards, near, place []float64
		for g := range set.NumCandidates(i) {
			c := set.Candidate(i, g)
			rewards, near, place = append(rewards, c.Reward), append(near, set.Nearness(i, c.Positions)), append(place, -float64(g))
		}
		if len(rewards) == 0 {
			continue
		}
		id := set.IDs[i]
		random.Follow(id, make([]float64, len(rewards)), rewards)
		similarity.Follow(id, near, rewards)
		order.Follow(id, place, rewards)
		oracle.Follow(id, rewards, rewards)
	}
	for _, of := range []struct {
		name   string
		scores recorded.Scores
	}{{"random", random}, {"similarity", similarity}, {"recorded_order", order}, {record.PolicyOracle, oracle}} {
		means, all := map[string]any{}, []record.Evaluation{}
		wanted := func(metric string) bool { return of.name != record.PolicyOracle || metric == "recorded_reward" } // it is 1 by the others
		for metric, mean := range of.scores.Means() {
			if wanted(metric) {
				means[metric] = mean
			}
		}
		of.scores.Each(func(metric string, ids []int64, scores []float64) error {
			if wanted(metric) {
				all = append(all, record.Evaluation{Split: split.name, Policy: of.name, Metric: metric, Shots: w.shots(), QueryIDs: ids,
					Scores: scores})
			}
			return nil
		})
		if len(all) == 0 { // no query has two candidates
			continue
		}
		if err := w.job.RecordEvaluation(means, all...); err != nil {
			return err
		}
	}
	return nil
}

// exportTrainer writes the reference trainer's file of an epoch (checkpoint.format=pt): RUN/rce_epoch1.pt, with
// the metrics that it stores there and the KL coefficient after the epoch.
func exportTrainer(j *job.Job, checkpoint, phase string, epoch int, metrics map[string]any) error {
	c, err := pointer.ReadCheckpoint(checkpoint)
	if err != nil {
		return err
	}
	defer c.Close()
	kept := map[string]any{"kl_beta": j.Config.GRPO.KL.Beta}
	for _, name := range []string{"loss", "ppo_loss", "kl_loss", "kl", "mean_ratio", "mean_advantage", "std_advantage",
		"max_advantage", "val_loss", "kl_beta_next"} {
		x, ok := metrics[name].(float64)
		switch {
		case !ok:
		case name == "kl_beta_next":
			kept["kl_beta"] = x
		case x-x != 0: // JSON has no such number
			kept[name] = strconv.FormatFloat(x, 'g', -1, 64)
		default:
			kept[name] = x
		}
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	c.Metadata["metrics"] = string(text)
	return c.Export(filepath.Join(j.Dir, fmt.Sprintf("%s_epoch%d.pt", phase, epoch)), "pt")
}
