//go:build !core

package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"fulcrum/beamdata"
	records "fulcrum/beamdata/icl"
	"fulcrum/experiments/icl"
	"fulcrum/experiments/job"
	"fulcrum/experiments/lvlm"
	"fulcrum/experiments/workload"
	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/parallel"
	"fulcrum/internal/rng"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

func beamsTask() job.Task {
	return job.Task{Run: beams, Saves: true, Sections: []string{"lvlm"}, Reads: append(recordKeys(), "data.embeddings"),
		Options: new(icl.DefaultBeamsOptions()), On: func(c *job.Config) string { return "by " + beamsOf(c).Score }}
}

func beamsOf(c *job.Config) *icl.BeamsOptions { return job.Own[icl.BeamsOptions](c, "beams") }

func lvlmOf(c *job.Config) *lvlm.Options { return job.Own[lvlm.Options](c, "lvlm") }

// beams runs task=beams: sequences of demonstrations for each query, by what a frozen vision-language model makes of them. All that
// the model says is in its store, so that a job that was killed asks nothing again.
func beams(ctx context.Context, j *job.Job) error {
	b := &beamSearch{job: j, opt: *beamsOf(j.Config), out: option.Or(beamsOf(j.Config).Out, filepath.Join(j.Dir, "beams.json")),
		records: option.Or(beamsOf(j.Config).Records, filepath.Join(j.Dir, "records.json"))}
	if err := b.read(ctx); err != nil {
		return err
	}
	if b.opt.Score == "none" {
		if !j.Config.DryRun {
			j.Begun = true
			return b.writePools()
		}
		return nil
	}
	var err error
	if b.scorer, err = openKept(ctx, j); err != nil {
		return err
	}
	b.search = icl.Search{Scorer: b.scorer, Records: b.set.Records, Seed: j.Config.Seed, BeamsOptions: b.opt}
	if b.opt.Score == "cider" {
		b.search.Captions = icl.References(b.set.Records)
	}
	if err := b.plan(ctx); err != nil || j.Config.DryRun {
		return err
	}
	j.Begun = true
	j.Holder.Heed()
	if err := b.run(ctx); err != nil {
		return err
	}
	if err := b.scorer.Vouch(ctx, j); err != nil {
		return err
	}
	return b.write()
}

// beamSearch is one task=beams.
type beamSearch struct {
	job     *job.Job
	opt     icl.BeamsOptions
	out     string
	records string
	set     *records.Set
	queries []int     // rows
	pools   [][]int32 // of each query; in a dry run, of the last ones
	scorer  *workload.Scorer
	search  icl.Search
	steps   []int // prompts of each step, over all queries
	total   int   // of them
	best    [][]icl.Beam
	others  [][]icl.Beam // what the last step compared
}

// read reads the records, chooses this job's queries, draws their pools and looks for their pictures.
func (b *beamSearch) read(ctx context.Context) (err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(records.ReadingPercent)) // drawing pools leaves much garbage
	o, c := b.opt, b.job.Config
	if b.set, err = openRecords(b.job, nil); err != nil {
		return err
	}
	inputs := map[string]*string{"data.records_icl": c.Data.RecordsICL, "data.embeddings": c.Data.Embeddings,
		"beams.text_embeddings": o.TextEmbeddings, "beams.image_embeddings": o.ImageEmbeddings}
	for key, path := range map[string]string{"beams.out": b.out, "beams.records": b.records} {
		if err := PrepareOut(key, path, inputs, c.DryRun); err != nil {
			return err
		}
	}
	if filepath.Clean(b.out) == filepath.Clean(b.records) {
		return usage.Errorf("beams.records=%s: beams.out is the same file", b.records)
	}
	all := b.set.Queries(o.Split == "val")
	answered := b.set.Records.Answered
	if o.Queries != nil { // those with answers first: whether they are scored or not, the same are drawn
		draw := rng.New(c.Seed, "beams")
		draw.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
		all = append(list.Filter(all, answered), slices.DeleteFunc(all, answered)...)
	}
	if o.Score != "none" {
		all = list.Filter(all, answered)
	}
	if o.Queries != nil {
		all = all[:min(*o.Queries, len(all))]
		slices.Sort(all)
	}
	for i := o.Job; i < len(all); i += o.Jobs {
		b.queries = append(b.queries, all[i])
	}
	if len(b.queries) == 0 {
		return usage.Errorf("beams.split=%s: %d queries, none for job %d of %d", o.Split, len(all), o.Job, o.Jobs)
	}
	text, image, err := b.vectors()
	if err != nil {
		return err
	}
	sampler := records.Sampler{Kind: o.Sampler, Candidates: o.Candidates, Seed: c.Seed}
	look, at := lookAtImages(b.set), len(b.queries)
	if c.DryRun {
		at = 1000 // pools at a time: a dry run asks for none but the last
	}
	for some := range slices.Chunk(b.queries, at) {
		if b.pools, err = sampler.Pools(ctx, b.set, some, text, image); err != nil {
			return err
		}
		look.at(some, b.pools)
	}
	b.job.Data = record.DataSummary{Name: filepath.Base(b.out), Counts: map[string]int{"records": b.set.Records.Len(),
		"queries": len(b.queries), "candidates": o.Candidates}}
	return look.err()
}

// vectors opens the tables that the sampler reads.
func (b *beamSearch) vectors() (text, image records.Vectors, err error) {
	by, table := b.opt.Sampler, b.job.Config.Data.Embeddings
	if by == "text" || by == "mix" {
		text, err = unitVectors("beams.text_embeddings", "beams.sampler="+by, cmp.Or(b.opt.TextEmbeddings, table))
	}
	if err == nil && (by == "image" || by == "mix") {
		image, err = unitVectors("beams.image_embeddings", "beams.sampler="+by, cmp.Or(b.opt.ImageEmbeddings, table))
	}
	return text, image, err
}

// unitVectors opens the table that an option names and a reader needs.
func unitVectors(key, reader string, path *string) (v records.Vectors, err error) {
	if path == nil {
		return v, usage.Errorf("%s: %s needs a table of unit vectors (task=embed writes one)", key, reader)
	}
	t, err := beamdata.OpenTable(*path)
	if err != nil {
		return v, fmt.Errorf("%s: %w", key, err)
	}
	return records.Vectors{Dim: t.Dim, Data: t.Data}, nil
}

// imageLook names the first pictures of queries and their examples that are not there, are none or are cut: the model would stumble
// over them hours later.
type imageLook struct {
	set    *records.Set
	rows   []bool          // seen
	images map[string]bool // seen
	errs   []error
}

func lookAtImages(set *records.Set) *imageLook {
	return &imageLook{set: set, rows: make([]bool, set.Records.Len()), images: map[string]bool{}}
}

func (l *imageLook) at(queries []int, examples [][]int32) {
	for i, q := range queries {
		l.row(q)
		for _, c := range examples[i] {
			l.row(int(c))
		}
	}
}

func (l *imageLook) row(row int) {
	if l.rows[row] {
		return
	}
	l.rows[row] = true
	r := l.set.Records.At(row)
	if r.Image == "" || l.images[r.Image] {
		return
	}
	l.images[r.Image] = true
	if err := wholeImage(r.Image); err != nil {
		l.errs = append(l.errs, fmt.Errorf("%s: %w", l.set.At(row), err))
	}
}

func (l *imageLook) err() error {
	if more := len(l.errs) - shown; more > 0 {
		return errors.Join(append(l.errs[:shown], fmt.Errorf("%d more pictures cannot be read", more))...)
	}
	return errors.Join(l.errs...)
}

// checkImages is one look.
func checkImages(set *records.Set, queries []int, examples [][]int32) error {
	l := lookAtImages(set)
	l.at(queries, examples)
	return l.err()
}

// plan says what the search will cost: prompts exactly, tokens and hours by probes of the last query, whose prompts are the least
// likely to be in the store.
func (b *beamSearch) plan(ctx context.Context) error {
	b.steps = make([]int, b.opt.Shots+1)
	for _, q := range b.queries {
		for k, n := range b.search.Prompts(b.set.Records.At(q), b.opt.Candidates) {
			b.steps[k] += n
			b.total += n
		}
	}
	const probes = 8 // prompts of each step
	last := len(b.queries) - 1
	tokens, seconds, measured := 0.0, 0.0, true
	for k, n := range b.steps {
		if n == 0 {
			continue
		}
		before, start := b.scorer.Counts(), time.Now()
		prompts, err := b.search.Probe(ctx, b.queries[last], b.pools[len(b.pools)-1], k, probes)
		if err != nil {
			return err
		}
		took, asked := time.Since(start).Seconds(), b.scorer.Counts().Asked-before.Asked
		if asked == 0 {
			measured = false
		} else {
			seconds += took / float64(asked) * float64(n)
		}
		if b.scorer.Tokens != nil {
			length, err := b.scorer.Tokens(prompts[len(prompts)-1])
			if err != nil {
				return err
			}
			tokens += float64(length) * float64(n)
		}
	}
	what := fmt.Sprintf("plan: %s, %s scorings", page.Plural(len(b.queries), "query"), page.Thousands(b.total))
	if tokens > 0 {
		what += fmt.Sprintf(", %s prompt tokens", page.Thousands(int(tokens)))
	}
	if measured {
		what += fmt.Sprintf("; at the measured rate of %.3g a second %s, less what the store knows", float64(b.total)/seconds,
			page.Duration(seconds))
	} else {
		what += "; the store knows the prompts that the rate is measured by"
	}
	b.job.Logf("%s", what)
	return nil
}

// run searches for the beams of all queries. Behind a server several searches go on at once, so that none waits for the end of
// another's step.
func (b *beamSearch) run(whole context.Context) error {
	ctx, stop := context.WithCancelCause(whole)
	defer stop(nil)
	n := len(b.queries)
	b.best, b.others = make([][]icl.Beam, n), make([][]icl.Beam, n)
	workers := 1
	if lvlmOf(b.job.Config).Backend != "local" {
		workers = max(4, runtime.NumCPU())
	}
	pace, done := newPace(b.job, b.scorer, "beams", b.total), 0
	var telling sync.Mutex
	parallel.Each(ctx, n, workers, func(i int) (err error) {
		if b.best[i], b.others[i], err = b.search.Beams(ctx, b.queries[i], b.pools[i]); err != nil {
			stop(err)
			return err
		}
		b.others[i] = b.spread(b.best[i], b.others[i])
		telling.Lock()
		defer telling.Unlock()
		done++
		pace.tell(fmt.Sprintf("%d of %s", done, page.Plural(n, "query")), done == n)
		return nil
	})
	if whole.Err() != nil { // interrupted, which is no failure
		return whole.Err()
	}
	return context.Cause(ctx)
}

// spread returns the best beams and, up to the trajectories of a record, others at even ranks of those compared.
func (b *beamSearch) spread(best, compared []icl.Beam) []icl.Beam {
	out := slices.Clone(best[:min(len(best), b.opt.Trajectories)])
	rest := compared[len(best):]
	for k, n := 1, min(b.opt.Trajectories-len(out), len(rest)); k <= n; k++ {
		out = append(out, rest[k*len(rest)/n-1])
	}
	return out
}

func (b *beamSearch) write() error {
	meta := b.meta()
	if err := icl.WriteBeams(b.out, meta, b.queries, b.best); err != nil {
		return err
	}
	if err := icl.WriteRecords(b.records, meta, b.queries, b.pools, b.others, b.search.Trajectory); err != nil {
		return err
	}
	asked := b.scorer.Counts()
	b.job.Data.Counts["asked"], b.job.Data.Counts["known"] = int(asked.Asked), int(asked.Known)
	stdout.Printf("beams: %s, %d shots → %s, %s\n", page.Plural(len(b.queries), "query"), b.opt.Shots, b.out, b.records)
	return nil
}

// writePools writes records without sequences, which task=predict answers.
func (b *beamSearch) writePools() error {
	if err := icl.WriteRecords(b.records, b.meta(), b.queries, b.pools, make([][]icl.Beam, len(b.queries)), b.search.Trajectory); err != nil {
		return err
	}
	stdout.Printf("pools: %s of %d candidates → %s\n", page.Plural(len(b.queries), "query"), b.opt.Candidates, b.records)
	return nil
}

// meta is what both files say of where they come from: equal searches give equal bytes.
func (b *beamSearch) meta() map[string]any {
	o := b.opt
	m := map[string]any{"sampler": o.Sampler, "candidates": o.Candidates, "shots": o.Shots, "width": o.Width, "order": o.Order,
		"score": o.Score, "answer": o.Answer, "split": o.Split, "seed": b.job.Config.Seed, "records": b.set.Digest}
	if b.scorer != nil {
		m["model"] = b.scorer.Identity()
	}
	if o.Noise > 0 {
		m["noise"] = o.Noise
	}
	return m
}
