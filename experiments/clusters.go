package experiments

import (
	"fulcrum/beamdata/conversation"
	"fulcrum/internal/usage"
)

// clusters are what queries have in common with those that are no independent ones, by split and query id.
type clusters map[string]map[int64]string

// known says whether anything is known of some query.
func (c clusters) known() bool {
	for _, of := range c {
		if len(of) > 0 {
			return true
		}
	}
	return false
}

// recordClusters tells the run's log. An eval.cluster that fits no record is refused.
func recordClusters(j *job, c clusters) error {
	if !c.known() && j.cfg.Eval.Cluster != nil {
		what := "key " + *j.cfg.Eval.Cluster
		if *j.cfg.Eval.Cluster == "image" {
			what = "image"
		}
		return usage.Errorf("eval.cluster=%s: no question that is evaluated has the %s: want image or a key of its records, or null",
			*j.cfg.Eval.Cluster, what)
	}
	for split, of := range c {
		j.log.ClusterBy(split, of)
	}
	return nil
}

// Clusters implements workload.
func (w *pointerWork) Clusters(string) (clusters, error) { // beamdata.Options.Cluster says by what
	out := clusters{}
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

// Clusters implements workload.
func (w *textWork[P]) Clusters(by string) (clusters, error) {
	out := clusters{}
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
