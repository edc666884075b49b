package experiments

import (
	"encoding/json"
	"fmt"
	"strings"

	"fulcrum/beamdata/conversation"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/option"
	"fulcrum/internal/usage"
)

// EvalOptions says how evaluations are judged (config section eval).
type EvalOptions struct {
	// questions that count as one: image, or a key of their records; null = by image where it is known
	Cluster *string `koanf:"cluster"`
}

// Validate refuses a name that no key has.
func (o EvalOptions) Validate() error {
	if o.Cluster != nil && strings.TrimSpace(*o.Cluster) == "" {
		return option.Errorf("cluster", "want image or a key of the records; null = by image where the data knows it")
	}
	return nil
}

// by is what the questions are grouped by.
func (o EvalOptions) by() string {
	if o.Cluster == nil {
		return "image"
	}
	return *o.Cluster
}

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

// annotationClusters reads what the questions of an annotation file have in common: their image, or the value of a key.
func annotationClusters(path, by string) (map[int64]string, error) {
	f, err := openNamed(path, "evaluate.annotations")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var file struct {
		Annotations []json.RawMessage `json:"annotations"`
	}
	if err := jsonwords.Decode(json.NewDecoder(f), &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if by == "image" {
		by = "image_id"
	}
	out := map[int64]string{}
	for _, raw := range file.Annotations {
		var id struct {
			Question int64 `json:"question_id"`
		}
		if err := jsonwords.Unmarshal(raw, &id); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if name := conversation.Value(raw, by); name != "" {
			out[id.Question] = name
		}
	}
	return out, nil
}
