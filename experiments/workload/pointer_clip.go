//go:build !core

package workload

import (
	"fmt"

	"fulcrum/beamdata"
	"fulcrum/experiments/job"
	"fulcrum/internal/usage"
	"fulcrum/selector/clip"
	"fulcrum/selector/pointer"
	"fulcrum/selector/vl/pixels"
)

// adaptedClip returns what opens the CLIP model of selector.clip for the rows of a table, each about the record of its place. Pictures
// that are missing, and a table that is not the model's, are found before the first step.
func adaptedClip(j *job.Job, table *beamdata.Table) func(pointer.ClipOptions) (pointer.Embedder, error) {
	return func(o pointer.ClipOptions) (pointer.Embedder, error) {
		if err := CheckDownloaded("selector.clip.path", *o.Path); err != nil {
			return nil, err
		}
		set, err := j.Config.Records(nil)
		if err != nil {
			return nil, fmt.Errorf("selector.clip.path: %w", err)
		}
		if n := set.Records.Len(); n != table.Rows {
			return nil, usage.Errorf("selector.clip.path: %d records and %d rows of embeddings: row i must belong to record i", n, table.Rows)
		}
		var pictures, questions []string
		seen := map[string]bool{}
		for row, r := range set.Records.All() {
			pictures, questions = append(pictures, r.Image), append(questions, r.Question)
			if o.Modality == "text" || seen[r.Image] {
				continue
			}
			if seen[r.Image] = true; r.Image == "" {
				return nil, usage.Errorf("%s: no image: selector.clip.modality=%s needs one", set.At(row), o.Modality)
			}
			if _, _, err := pixels.Size(r.Image); err != nil {
				return nil, fmt.Errorf("%s: %w", set.At(row), err)
			}
		}
		model, err := clip.OpenAdapted(o, pictures, questions, "float32", j.Device)
		if err != nil {
			return nil, err
		}
		if model.Dim() != table.Dim {
			err = usage.Errorf("selector.clip.path: the model's embeddings (selector.clip.modality=%s) have %d columns, those of "+
				"data.embeddings %d: want the table that task=embed makes by it", o.Modality, model.Dim(), table.Dim)
		} else {
			err = model.Check(table.Rows, table.Row)
		}
		if err != nil {
			model.Free()
			return nil, err
		}
		j.Logf("selector.clip: %d adapters are trained with the selector; embeddings are computed in each step", model.Adapters())
		return model, nil
	}
}
