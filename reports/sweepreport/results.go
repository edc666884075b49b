package sweepreport

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"fulcrum/configs"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/list"
	"fulcrum/reports/sweeps"
)

const resultsFile = "optimization_results.yaml"

// WriteOptimizationResults writes optimization_results.yaml as Hydra's Optuna sweeper does: name,
// best_params and best_value, or with several objectives solutions, a list of params and values, in
// the order of the front. Values have the types that the override grammar gives them. Without a
// feasible result there is nothing to write, nor where the best one is no winner: untrained, or shared by several jobs.
func WriteOptimizationResults(dir string, jobs []sweeps.Job, opt sweeps.Options) error {
	v := newView(dir, jobs, opt)
	keys := sweeps.Swept(v.ByNumber, opt.Dimensions)
	root := []entry{{"name", textNode(opt.Sweeper)}}
	best := v.Best()
	switch {
	case best == nil && (len(v.Opt.Objectives) == 1 || len(v.Front) == 0):
		if err := os.Remove(filepath.Join(dir, resultsFile)); !errors.Is(err, fs.ErrNotExist) { // of an earlier look at the sweep
			return err
		}
		return nil
	case len(v.Opt.Objectives) == 1:
		root = append(root, entry{"best_params", bestParams(*best, keys)}, entry{"best_value", floatNode(best.Objectives[0])})
	default:
		solutions := &configs.Node{Kind: configs.List}
		for _, j := range v.highlighted() {
			values := &configs.Node{Kind: configs.List, Vals: list.Map(j.Objectives[:len(v.Opt.Objectives)], floatNode)}
			solutions.Vals = append(solutions.Vals, mapping(entry{"params", bestParams(j, keys)}, entry{"values", values}))
		}
		root = append(root, entry{"solutions", solutions})
	}
	return atomicfile.Write(filepath.Join(dir, resultsFile), []byte(mapping(root...).YAML()), 0o644)
}

// entry is a key of a mapping with its value.
type entry struct {
	key   string
	value *configs.Node
}

func mapping(entries ...entry) *configs.Node {
	n := &configs.Node{Kind: configs.Map}
	for _, e := range entries {
		n.Keys, n.Vals = append(n.Keys, configs.Key{Kind: configs.String, Text: e.key}), append(n.Vals, e.value)
	}
	return n
}

func textNode(s string) *configs.Node { return &configs.Node{Kind: configs.String, Text: s} }

func floatNode(x float64) *configs.Node { return &configs.Node{Kind: configs.Float, Num: x} }

// bestParams are a job's swept values, as its overrides set them.
func bestParams(j sweeps.Job, keys []sweeps.Dimension) *configs.Node {
	var entries []entry
	for _, k := range keys {
		written, ok := j.Params[k.Key]
		if !ok {
			continue
		}
		value := textNode(written)
		if o, err := configs.ParseOverride("key=" + written); err == nil && o.Value() != nil {
			value = o.Value()
		}
		entries = append(entries, entry{k.Key, value})
	}
	return mapping(entries...)
}
