package workload

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fulcrum/phases/preflight"
	"fulcrum/selector/pointer"
	"fulcrum/selector/prompts"
	"fulcrum/selector/vl/pixels"
	"fulcrum/selector/vl/processor"
)

// This file says what a model is and what it reads of a batch, for the table of a dry run. Tensors have the names that
// transformers gives them.

// Weights is how many numbers the model has, trained or not.
func (w *textWorkload[P]) Weights() int { return w.model.Size() }

// weighed shows adapters and parameters.
func (w *textWorkload[P]) weighed(report *preflight.Report) {
	const matrix = ".lora_A.weight"
	params := w.policy.Params()
	kinds := map[string]bool{}
	adapters := 0
	for _, name := range params.Names() {
		if module, ok := strings.CutSuffix(name, matrix); ok {
			adapters++
			kinds[module[strings.LastIndexByte(module, '.')+1:]] = true
		}
	}
	if adapters > 0 {
		names := slices.Sorted(maps.Keys(kinds))
		report.Saw("model", "adapters", "%d, on %s", adapters, strings.Join(names, ", "))
	} else {
		report.Saw("model", "adapters", "none: weights are trained whole")
	}
	trained, all := params.Numel(), w.model.Size()
	report.Saw("model", "parameters", "%d of %d trained (%.3g %%), in %d tensors", trained, all, 100*float64(trained)/float64(all),
		len(params.Names()))
}

// inputs shows what the model reads of a source's first prompts, and the completions that it learns from.
func (w *textWorkload[P]) inputs(report *preflight.Report, src *prompts.Source[P], n int) error {
	n = min(n, src.Len())
	var batch []P
	var queries []int
	longest := 0
	for i := range n {
		p, err := src.Prompt(i)
		if err != nil {
			return err
		}
		batch, queries, longest = append(batch, p), append(queries, i), max(longest, w.length(p))
	}
	report.Saw("inputs", "input_ids", "%d × %d (prompts of %s × the longest one's tokens)", n, longest, src.Name())
	if w.shapes != nil {
		w.shapes(report, batch)
	}
	if b := src.Recorded(queries); b.NumValid() > 0 {
		report.Saw("inputs", "completions", "%d × %d × %d (prompts × candidates × tokens)", b.B(), b.G, b.T)
	}
	return nil
}

// pictured shows the pictures and videos of prompts.
func pictured(c pixels.Config) func(report *preflight.Report, batch []*processor.Prompt) {
	return func(report *preflight.Report, batch []*processor.Prompt) {
		var images, videos []pixels.Patches
		for _, p := range batch {
			images, videos = append(images, p.Images...), append(videos, p.Videos...)
		}
		for _, kind := range []struct {
			values, grid string
			read         []pixels.Patches
		}{{"pixel_values", "image_grid_thw", images}, {"pixel_values_videos", "video_grid_thw", videos}} {
			rows, grids := 0, []string{}
			for _, p := range kind.read {
				rows += p.Rows
				grids = append(grids, fmt.Sprintf("%d·%d·%d", p.Grid[0], p.Grid[1], p.Grid[2]))
			}
			if len(grids) == 0 {
				continue
			}
			report.Saw("inputs", kind.values, "%d × %d (patches × 3 channels · %d frames · %d · %d), %d tokens", rows, c.Width(),
				c.TemporalPatchSize, c.PatchSize, c.PatchSize, rows/(c.MergeSize*c.MergeSize))
			report.Saw("inputs", kind.grid, "%d × 3: %s", len(grids), strings.Join(slices.Compact(grids), ", "))
		}
	}
}

// inputs shows what the selector reads of a batch: rows of the table, pools and candidates.
func (w *Pointer) inputs(report *preflight.Report, src *pointer.Source) {
	set, n := src.Set(), min(w.job.Config.Data.BatchSize, src.Len())
	pool := 0
	var queries []int
	for i := range n {
		pool, queries = max(pool, set.PoolSize(i)), append(queries, i)
	}
	report.Saw("inputs", "query embeddings", "%d × %d (queries of %s × columns)", n, set.Table.Dim, src.Name())
	report.Saw("inputs", "pool embeddings", "%d × %d × %d (queries × candidates of a pool × columns)", n, pool, set.Table.Dim)
	if b := src.Recorded(queries); b.NumValid() > 0 {
		report.Saw("inputs", "recorded selections", "%d × %d × %d (queries × candidates × steps)", b.B(), b.G, b.T)
	}
}
