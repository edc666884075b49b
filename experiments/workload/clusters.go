package workload

import (
	"fulcrum/beamdata/conversation"
	"fulcrum/experiments/job"
	"fulcrum/internal/usage"
)

// Clusters are what queries have in common with those that are no independent ones, by split and query id.
type Clusters map[string]map[int64]string

// known says whether anything is known of some query.
func (c Clusters) known() bool {
	for _, of := range c {
		if len(of) > 0 {
			return true
		}
	}
	return false
}

// RecordClusters tells the run's log. An eval.cluster that fits no record is refused.
func RecordClusters(j *job.Job, c Clusters) error {
	if !c.known() && j.Config.Eval.Cluster != nil {
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

// Clusters implements Grouper.
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

// Clusters implements Grouper.
func (w *textWorkload[P]) Clusters(by string) (Clusters, error) {
	out := Clusters{}
	for _, split := range []struct {
		name string
		set  *conversation.Set
	}{{"val", w.bundle.Val}, {w.bundle.EvalName, w.bundle.Eval}, {"train", w.seen}} {
		of, err := split.set.Clusters(by)
		if err != nil {
			return nil, err
		}
		if split.set.Len() > 0 {
			out[split.name] = of
		}
	}
	return out, nil
}
