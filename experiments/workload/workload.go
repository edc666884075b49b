package workload

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"fulcrum/beamdata"
	"fulcrum/beamdata/audit"
	"fulcrum/experiments/job"
	"fulcrum/internal/registry"
	"fulcrum/internal/rng"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/phases/preflight"
	"fulcrum/reports/record"
	"fulcrum/rewardutil/group"
	"fulcrum/selector"
	"fulcrum/selector/seq2seq"
	"fulcrum/selector/vl"
)

// phasesData is what validation needs of the configuration, whatever the policy. average is that of the
// phase whose loss val_loss compares with.
func phasesData(c *job.Config, average string) phases.Data {
	return phases.Data{
		Shuffle:   c.Data.Shuffle,
		Normalize: func(r []float64) []float64 { return group.Normalize(r, c.Data.Normalize) },
		ValLoss: phases.ValLoss{Temperature: c.RCE.Temperature.At(0, 1), Relative: c.RCE.Temperature.Relative,
			Raw: c.RCE.Rewards == "raw", PerToken: average == "token"},
		Advantage: c.GRPO.Advantage,
	}
}

// fewer draws the validation queries that are evaluated (eval.max_queries), and says how many in a sentence; nil and "": all. They are the
// same for every epoch and seed, so that runs are compared on equal questions.
func fewer(j *job.Job, total int) (chosen []int, said string) {
	n := j.Config.Eval.MaxQueries
	if n == nil || *n >= total {
		return nil, ""
	}
	chosen = rng.New(j.Config.Data.SplitSeed, "eval.max_queries").Perm(total)[:*n]
	slices.Sort(chosen)
	said = fmt.Sprintf("validation asks %d of its %d queries, the same in every epoch (eval.max_queries)", *n, total)
	j.Logf("data: %s", said)
	return chosen, said
}

// evaluated is a set of queries on which policies are scored.
type evaluated[S interface{ Len() int }] struct {
	name string
	set  S
}

// splits returns the sets that are evaluated, without those that hold nothing.
func splits[S interface{ Len() int }](val S, evalName string, eval, seen S) []evaluated[S] {
	all := []evaluated[S]{{"val", val}, {evalName, eval}, {"train", seen}}
	return slices.DeleteFunc(all, func(s evaluated[S]) bool { return s.set.Len() == 0 })
}

// recordBaseline records what a baseline earned on the queries ids of a split. An accuracy whose mean is NaN is
// unknown.
func recordBaseline(j *job.Job, split, name string, ids []int64, sel beamdata.Selections, shots int) error {
	reward := record.Evaluation{Split: split, Policy: name, Metric: "reward", Shots: shots, QueryIDs: ids, Scores: sel.Reward}
	means, all := map[string]any{"reward": sel.Mean()}, []record.Evaluation{reward}
	if split == "val" {
		j.Baselines[name] = sel.Mean()
	}
	if mean := sel.MeanAccuracy(); !math.IsNaN(mean) {
		accuracy := reward
		accuracy.Metric, accuracy.Scores = "accuracy", sel.Accuracy
		means["accuracy"], all = mean, append(all, accuracy)
	}
	return j.RecordEvaluation(means, all...)
}

// Policy is a value of policy.
type Policy struct {
	job.Policy

	// What only token policies have.

	// OpenText opens the policy for tasks generate and score, and for judges. o says what is generated; nil: nothing, or a judge's answers.
	OpenText func(j *job.Job, o *GenerateOptions) (TextModel, error)
	// OpenFolder rebuilds the model of a checkpoint onto its base (nil: from scratch), to be written as a Hugging Face folder. save
	// writes the files beside its weights, which lie in folder.
	OpenFolder func(checkpoint string, base *string, folder string, warn func(string)) (model folderModel, save func(out string) error,
		err error)
	// Asks returns a judge's prompt as the model reads it.
	Asks func(prompt string) (PromptLine, error)
}

// Policies returns what policy may name.
func Policies() *registry.Table[Policy] {
	t := registry.New[Policy]("policy")
	t.Add("pointer", pointerPolicy())
	t.Add(vl.Kind, vlPolicy())
	t.Add(seq2seq.Kind, seq2seqPolicy())
	return t
}

// Traits returns what a configuration knows of the policies.
func Traits() *registry.Table[job.Policy] {
	t, policies := registry.New[job.Policy]("policy"), Policies()
	for _, name := range policies.Names() {
		p, _ := policies.Get(name)
		t.Add(name, p.Policy)
	}
	return t
}

// textPolicies returns the token policies.
func textPolicies() *registry.Table[Policy] {
	t, policies := registry.New[Policy]("token policy"), Policies()
	for _, name := range policies.Names() {
		if p, _ := policies.Get(name); p.Text != nil {
			t.Add(name, p)
		}
	}
	return t
}

func sectionOf(policy string) string {
	p, _ := Policies().Get(policy)
	return p.Section
}

// Exporter is a workload whose checkpoints another program reads (checkpoint.format=pt).
type Exporter interface {
	// Export is phases.Env.Export; nil: checkpoints are written in our own layout alone.
	Export() (func(checkpoint, phase string, epoch int, metrics map[string]any) error, error)
}

// Auditor is a workload that can hold its data against itself before training.
type Auditor interface {
	// Audit looks for faults of the data that training would not notice.
	Audit(precision float64) ([]audit.Fault, error)
	// Recompute holds what phases and validation read of the data against values read query by query.
	Recompute(report *preflight.Report, plan phases.Plan, e Effort) error
}

// Weigher is a workload whose model has weights that are not trained.
type Weigher interface {
	// Weights is how many numbers the model has, trained or not.
	Weights() int
}

// Scaler is a workload whose policy scales what it reads.
type Scaler interface {
	// Scale is preflight.Trial.Scale.
	Scale() (key string, value float64, why string)
}

// Sizer is a workload whose queries differ in size: memory is measured on the largest.
type Sizer interface {
	// Largest returns the n queries of a source that make the largest batch.
	Largest(src selector.Source, n int) []int
}

// Grouper is a workload that knows which queries are not independent.
type Grouper interface {
	// Clusters are groups of queries by split and query id: those about one image, or with one value of the key by. Splits of
	// which nothing is known are left out.
	Clusters(by string) (Clusters, error)
}

// Asker is a workload that knows what its queries ask.
type Asker interface{ Asked(query int64) job.Asked }

// Prober is a workload whose model is large, or has senses: only it knows what a trial costs and what to ask.
type Prober interface {
	// Effort says how much may be tried.
	Effort(most int) Effort
	// Unused is preflight.Trial.Unused.
	Unused(b *selector.Batch, name string) string
	// Senses tries the policy outside of any phase.
	Senses(report *preflight.Report, e Effort) error
}

// Effort is how much a trial may do.
type Effort struct {
	Queries int  // of a batch
	Short   bool // completions and groups must be small
	Long    bool // a whole step takes minutes: its memory is not measured
	Rough   bool // log-probabilities have less than 24 bits
}

// Clusters are what queries have in common with those that are no independent ones, by split and query id.
type Clusters map[string]map[int64]string

// RecordClusters tells the run's log. An eval.cluster that fits no record is refused.
func RecordClusters(j *job.Job, c Clusters) error {
	known := func(of map[int64]string) bool { return len(of) > 0 }
	if j.Config.Eval.Cluster != nil && !slices.ContainsFunc(slices.Collect(maps.Values(c)), known) {
		what := "key " + *j.Config.Eval.Cluster
		if *j.Config.Eval.Cluster == "image" {
			what = "image"
		}
		return usage.Errorf("eval.cluster=%s: no question that is evaluated has the %s: want image or a key of its records, or null",
			*j.Config.Eval.Cluster, what)
	}
	for split, of := range c {
		j.Log.ClusterBy(split, of)
	}
	return nil
}

func (w *Pointer) Clusters(string) (Clusters, error) { // beamdata.Options.Cluster says by what
	out := Clusters{}
	for _, split := range w.splits() {
		of := map[int64]string{}
		for i := range split.set.Len() {
			if name := w.bundle.Cluster(int(split.set.Row(i))); name != "" {
				of[split.set.IDs[i]] = name
			}
		}
		out[split.name] = of
	}
	return out, nil
}

func (w *textWorkload[P]) Clusters(by string) (Clusters, error) {
	out := Clusters{}
	for _, split := range w.splits() {
		of, err := split.set.Clusters(by)
		if err != nil {
			return nil, err
		}
		out[split.name] = of
	}
	return out, nil
}
