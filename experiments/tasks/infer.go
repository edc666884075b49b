//go:build !core

package tasks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	records "fulcrum/beamdata/icl"
	"fulcrum/experiments/icl"
	"fulcrum/experiments/job"
	"fulcrum/experiments/lvlm"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/rng"
	"fulcrum/internal/stat"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/reports/page"
	"fulcrum/rewardutil/recorded"
	"fulcrum/rewardutil/vqa"
)

// InferOptions configures task=infer.
type InferOptions struct {
	// who chooses a question's examples: predictions (infer.predictions), random, text or image (nearest by
	// infer.embeddings), mmr (near, unlike each other), best_beam (first candidate in infer.beams), oracle (those of
	// its pool that make the right answer likeliest), none (no examples)
	Method string `koanf:"method" enum:"predictions,random,text,image,mmr,best_beam,oracle,none"`
	// examples in a prompt
	Shots int `koanf:"shots" range:"[1,16]"`
	// predictions.jsonl of task=predict
	Predictions *string `koanf:"predictions"`
	// embedding table of the records: row i belongs to record i (null = data.embeddings)
	Embeddings *string `koanf:"embeddings"`
	// RL file of the questions that are asked, with the pools of random, text, image, mmr and oracle (null = all records)
	Beams *string `koanf:"beams"`
	// the answer that an example shows, of those it has: the most frequent, or the first; shuffled = another example's
	Answer string `koanf:"answer" enum:"majority,first,shuffled"`
	// official result file to write; null = results.json in the run folder
	Out *string `koanf:"out"`
}

// Validate reports a method without what it reads.
func (o InferOptions) Validate() error {
	return errors.Join(
		option.Want(o.Method != "predictions" || o.Predictions != nil, "predictions", "infer.method=predictions needs a file of task=predict"),
		option.Want(o.Method != "best_beam" && o.Method != "oracle" || o.Beams != nil, "beams", "infer.method=%s needs the RL file of the "+
			"questions (beams.records of task=beams)", o.Method))
}

// selection is a line of selections.jsonl: what was shown for a question, and what the model said.
type selection struct {
	QueryID  int64   `json:"query_id"` // global id
	Pointer  []int32 `json:"pointer"`  // global ids, in the order of the prompt
	Question string  `json:"question"`
	Answer   string  `json:"answer"` // the model's
}

func inferTask() job.Task {
	return job.Task{Run: infer, Sections: []string{"lvlm"}, Reads: append(recordKeys(), "data.embeddings"),
		Options: &InferOptions{Method: "predictions", Shots: 2, Answer: "majority"},
		On:      func(c *job.Config) string { return fmt.Sprintf("%s, %d shots", inferOf(c).Method, inferOf(c).Shots) }}
}

func inferOf(c *job.Config) *InferOptions { return job.Own[InferOptions](c, "infer") }

// infer runs task=infer: each held-out question after the examples that a method chose for it.
func infer(ctx context.Context, j *job.Job) error {
	o := *inferOf(j.Config)
	out := option.Or(o.Out, filepath.Join(j.Dir, "results.json"))
	inputs := map[string]*string{"infer.predictions": o.Predictions, "infer.embeddings": o.Embeddings, "infer.beams": o.Beams}
	set, err := openRecords(j, nil)
	if err != nil {
		return err
	}
	c := &chooser{InferOptions: o, set: set, seed: j.Config.Seed, table: cmp.Or(o.Embeddings, j.Config.Data.Embeddings),
		chunk: lvlmOf(j.Config).Batch}
	if lvlmOf(j.Config).Backend != "local" {
		c.chunk = 16 * lvlmOf(j.Config).Concurrency // enough that few requests wait for the last of a chunk
	}
	begun := time.Now()
	if err := c.read(); err != nil {
		return err
	}
	if err := PrepareOut("infer.out", out, inputs, j.Config.DryRun); err != nil {
		return err
	}
	scorer, err := openKept(ctx, j)
	if err != nil {
		return err
	}
	c.scorer = scorer
	for _, note := range c.notes {
		j.Log.Warnf("infer: %s", note)
	}
	if j.Config.DryRun {
		j.Logf("dry_run: the model and all files open; nothing was asked")
		return nil
	}
	j.Begun = true
	j.Holder.Heed()
	c.tell = newPace(j, scorer, "infer", c.prompts()).tell
	chosen, err := c.choose(ctx)
	if err == nil {
		err = checkImages(set, c.queries, chosen)
	}
	if err != nil {
		return err
	}
	answers, err := c.answer(ctx, chosen)
	if err != nil {
		return err
	}
	if err := scorer.Vouch(ctx, j); err != nil {
		return err
	}
	if n := list.Tally(answers)[""]; n > 0 {
		j.Log.Warnf("infer: %d of %d answers are empty", n, len(answers))
	}
	counts := scorer.Counts()
	about := Inference{Method: o.Method, Shots: o.Shots, Questions: len(c.queries), Scored: c.scored, Asked: counts.Asked, Known: counts.Known,
		Again: counts.Again, Strayed: counts.Strayed, Copied: c.copied, Tokens: c.tokens, Seconds: time.Since(begun).Seconds(),
		Model: scorer.Identity(), Records: set.Digest, Results: out}
	if err := c.write(j.Dir, out, chosen, answers, about); err != nil {
		return err
	}
	stdout.Printf("answers: %d questions, %s, %d shots, %d prompts asked and %d known → %s\n", len(c.queries), o.Method, o.Shots,
		counts.Asked, counts.Known, out)
	return nil
}

// chooser chooses the examples of questions.
type chooser struct {
	InferOptions
	set     *records.Set
	scorer  lvlm.Scorer
	seed    int64
	table   *string           // file of the embeddings
	queries []int             // rows of the questions that are asked
	pools   [][]int32         // of each, rows that may be shown; nil: all candidates
	listed  map[int64][]int32 // predictions, or first candidates, by global id
	vectors records.Vectors
	entries int      // of the file that says what is asked
	notes   []string // of what it holds beside that
	scored  int64
	copied  int64
	tokens  int64                        // of the prompts that were answered
	chunk   int                          // prompts that are answered in one call
	tell    func(what string, last bool) // of progress
}

// prompts is how many the model will be asked.
func (c *chooser) prompts() int {
	n := len(c.queries)
	for i := 0; c.Method == "oracle" && i < len(c.pools); i++ {
		n += len(c.pools[i])
	}
	return n
}

// read reads the files that the method needs.
func (c *chooser) read() error {
	c.queries = c.set.Queries(true)
	var err error
	if c.Beams != nil {
		if err = c.readBeams(*c.Beams); err != nil {
			return err
		}
	}
	switch c.Method {
	case "predictions":
		err = c.readPredictions(*c.Predictions)
	case "text", "image", "mmr":
		if c.vectors, err = unitVectors("infer.embeddings", "infer.method="+c.Method, c.table); err == nil {
			if err = c.vectors.Check("", c.set.Records.Len()); err != nil {
				err = fmt.Errorf("%s: %w", *c.table, err)
			}
		}
	}
	if err != nil {
		return err
	}
	if c.listed != nil && c.pools == nil {
		c.queries = slices.DeleteFunc(c.queries, func(q int) bool { return c.listed[int64(q)] == nil })
	}
	if left := c.entries - len(c.queries); left > 0 {
		c.notes = append(c.notes, fmt.Sprintf("%d of %d entries are about no question to ask (held out, and answered where the oracle asks)",
			left, c.entries))
	}
	if n := len(c.set.Candidates()); n < c.Shots && c.pools == nil && c.listed == nil && c.Method != "none" {
		return usage.Errorf("infer.shots=%d: %d records may be examples (of the training split, with an answer)", c.Shots, n)
	}
	if len(c.queries) == 0 {
		return usage.Errorf("no question to ask: no record is held out (\"split\": \"val\"), or none of the file's is")
	}
	return nil
}

// readPredictions reads what task=predict wrote: a policy that may stop chooses fewer examples for some questions.
func (c *chooser) readPredictions(path string) error {
	c.listed = map[int64][]int32{}
	longest := 0
	err := eachLineOf(path, "infer.predictions", func(_ int, text []byte) error {
		p := prediction{QueryID: -1} // no row, where a line names none
		if err := jsonwords.Unmarshal(text, &p); err != nil {
			return err
		}
		longest = max(longest, len(p.Pointer))
		return c.list(p.QueryID, p.Pointer)
	})
	if c.entries = len(c.listed); err == nil && c.entries > 0 && longest < c.Shots {
		err = fmt.Errorf("%s: queries have %d examples at most, infer.shots=%d wants as many", path, longest, c.Shots)
	}
	return err
}

// list keeps the examples of a question.
func (c *chooser) list(query int64, pointer []int64) error {
	if query < 0 || query >= int64(c.set.Records.Len()) {
		return fmt.Errorf("query %d is none of the %d records: its number is a row of them", query, c.set.Records.Len())
	}
	if len(pointer) == 0 {
		return errors.New(`no pointer: want a line of task=predict, such as {"query_id": 7, "pointer": [3, 1]}`)
	}
	if len(pointer) < c.Shots && c.Method != "predictions" {
		return fmt.Errorf("query %d has %d examples, infer.shots=%d wants as many", query, len(pointer), c.Shots)
	}
	if c.listed[query] != nil {
		return fmt.Errorf("query %d stands twice", query)
	}
	rows := make([]int32, min(len(pointer), c.Shots))
	for i, p := range pointer[:len(rows)] {
		if err := c.shown(p); err != nil {
			return fmt.Errorf("query %d: %w", query, err)
		}
		if slices.Contains(rows[:i], int32(p)) {
			return fmt.Errorf("query %d: example %d stands twice", query, p)
		}
		rows[i] = int32(p)
	}
	c.listed[query] = rows
	return nil
}

// shown refuses a row that is no example.
func (c *chooser) shown(row int64) error {
	if row < 0 || row >= int64(c.set.Records.Len()) {
		return fmt.Errorf("example %d is none of the %d records", row, c.set.Records.Len())
	}
	if r := c.set.Records.At(int(row)); r.HeldOut || len(r.Answers) == 0 {
		return fmt.Errorf("example %d is held out or has no answer: it cannot be shown", row)
	}
	return nil
}

// readBeams reads pools and, for best_beam, the first candidate of each.
func (c *chooser) readBeams(path string) error {
	var file map[string]json.RawMessage
	if err := readNamed(path, "infer.beams", "want an RL file, an object by query: ", &file); err != nil {
		return err
	}
	var meta struct{ Records string }
	if jsonwords.Unmarshal(file["_meta"], &meta) == nil && meta.Records != "" && meta.Records != c.set.Digest {
		c.notes = append(c.notes, path+" was made from other records: do its numbers mean the same rows?")
	}
	delete(file, "_meta")
	held := list.SetBy(c.queries, strconv.Itoa)
	c.queries, c.pools, c.listed = nil, nil, map[int64][]int32{}
	for _, key := range slices.Sorted(maps.Keys(file)) {
		row, _ := strconv.Atoi(key)
		if !held[key] || c.Method == "oracle" && !c.set.Records.Answered(row) {
			continue
		}
		var q struct {
			Pool       []int32 `json:"candidate_pool_ids"`
			Candidates []struct {
				Pointer []int64 `json:"pointer"`
			} `json:"pointer_candidates"`
		}
		fault := jsonwords.Unmarshal(file[key], &q)
		for i := 0; i < len(q.Pool) && fault == nil; i++ {
			fault = c.shown(int64(q.Pool[i]))
		}
		if fault != nil {
			return fmt.Errorf("%s: query %s: %w", path, key, fault)
		}
		if c.Method == "best_beam" {
			if len(q.Candidates) == 0 {
				return fmt.Errorf("%s: query %s has no candidate", path, key)
			}
			if err := c.list(int64(row), q.Candidates[0].Pointer); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		} else if len(q.Pool) < c.Shots {
			return fmt.Errorf("%s: query %s has a pool of %d, want %d at least", path, key, len(q.Pool), c.Shots)
		}
		c.queries, c.pools = append(c.queries, row), append(c.pools, q.Pool)
	}
	c.entries = len(file)
	return nil
}

// choose returns the examples of each question, in the order of the prompt: what is nearest or best stands last, beside the
// question.
func (c *chooser) choose(ctx context.Context) ([][]int32, error) {
	out := make([][]int32, len(c.queries))
	candidates := c.set.Candidates()
	for i, q := range c.queries {
		pool := candidates
		if c.pools != nil {
			pool = list.Convert[int](c.pools[i])
		}
		switch c.Method {
		case "predictions", "best_beam":
			if out[i] = c.listed[int64(q)]; out[i] == nil {
				return nil, fmt.Errorf("%s: no prediction for it in %s", c.set.At(q), *c.Predictions)
			}
		case "random":
			for _, k := range rng.New(c.seed, "infer", int(c.set.Records.ID(q))).Perm(len(pool))[:c.Shots] {
				out[i] = append(out[i], int32(pool[k]))
			}
		case "text", "image":
			near, err := records.Nearest(ctx, c.vectors, []int{q}, pool, c.Shots, func(q, c int) bool { return q == c })
			if err != nil {
				return nil, err
			}
			out[i] = list.Map(near[0], func(n records.Neighbour) int32 { return n.Row })
			slices.Reverse(out[i])
		case "mmr":
			out[i] = c.diverse(q, pool)
		case "oracle":
			if i == 0 {
				if err := checkImages(c.set, c.queries, c.pools); err != nil {
					return nil, err
				}
			}
			best, err := c.likeliest(ctx, q, pool)
			if err != nil {
				return nil, err
			}
			out[i] = best
		}
		c.tell(fmt.Sprintf("examples for %d of %s", i+1, page.Plural(len(c.queries), "question")), false)
	}
	return out, nil
}

// diverse returns examples by maximal marginal relevance (Carbonell & Goldstein 1998, λ = 1/2): the next one is near the question and
// far from those chosen before. The first stands last.
func (c *chooser) diverse(q int, pool []int) (out []int32) {
	row := func(i int) []float32 { return c.vectors.Data[i*c.vectors.Dim : (i+1)*c.vectors.Dim] }
	pool = slices.DeleteFunc(slices.Clone(pool), func(p int) bool { return p == q })
	like := list.Map(pool, func(int) float64 { return -1 }) // largest cosine to an example chosen before
	near := list.Map(pool, func(p int) float64 { return recorded.Cosine(row(q), row(p)) })
	for range min(c.Shots, len(pool)) { // fewer in a small pool, as of the nearest
		best := -1
		for k, p := range pool {
			if !slices.Contains(out, int32(p)) && (best < 0 || near[k]-like[k] > near[best]-like[best]) {
				best = k
			}
		}
		for k, p := range pool {
			like[k] = max(like[k], recorded.Cosine(row(p), row(pool[best])))
		}
		out = slices.Insert(out, 0, int32(pool[best]))
	}
	return out
}

// swapped returns for each candidate the answer of another one, drawn by the seed: one with another text where there is any.
func (c *chooser) swapped() map[int32]string {
	rows := c.set.Candidates()
	order, out := rng.New(c.seed, "shuffled answers").Perm(len(rows)), map[int32]string{}
	said := func(k int) string { return vqa.Majority(c.set.Records.At(rows[order[k%len(rows)]]).Answers) }
	for k := range order {
		next := k + 1
		for next < k+len(rows) && said(next) == said(k) {
			next++
		}
		out[int32(rows[order[k]])] = said(next)
	}
	return out
}

// likeliest returns the examples that make the right answer likeliest, each shown alone; the best one last.
func (c *chooser) likeliest(ctx context.Context, q int, pool []int) ([]int32, error) {
	prompts := make([]lvlm.Prompt, len(pool))
	for k, row := range pool {
		prompts[k] = icl.Prompt(c.set.Records, q, []int32{int32(row)}, c.shows)
		prompts[k].Query.Answer = c.shows(c.set.Records.At(q).Answers)
	}
	scores, err := c.scorer.Score(ctx, prompts)
	if err != nil {
		return nil, err
	}
	c.scored += int64(len(prompts))
	mean := func(k int) float64 { return stat.Mean(scores[k].LogProbs) }
	order := stat.Indices(len(pool))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(mean(b), mean(a)) })
	if c.Shots > 0 && c.Shots < len(order) {
		if err := icl.Doubt(c.scorer, []lvlm.Prompt{prompts[order[c.Shots-1]], prompts[order[c.Shots]]}); err != nil {
			return nil, err
		}
	}
	out := list.Map(order[:c.Shots], func(k int) int32 { return int32(pool[k]) })
	slices.Reverse(out)
	return out, nil
}

// shows picks the answer that a demonstration shows.
func (c *chooser) shows(answers []string) string {
	if c.Answer == "first" {
		return cmp.Or(answers...)
	}
	return vqa.Majority(answers)
}

func (c *chooser) answer(ctx context.Context, chosen [][]int32) ([]string, error) {
	prompts, other := make([]lvlm.Prompt, len(chosen)), map[int32]string{}
	if c.Answer == "shuffled" {
		other = c.swapped()
	}
	for i, rows := range chosen {
		prompts[i] = icl.Prompt(c.set.Records, c.queries[i], rows, c.shows)
		for k, row := range rows {
			prompts[i].Shots[k].Answer = cmp.Or(other[row], prompts[i].Shots[k].Answer)
		}
	}
	out := make([]string, 0, len(prompts))
	for some := range slices.Chunk(prompts, c.chunk) {
		said, err := c.scorer.Answer(ctx, some)
		if err != nil {
			return nil, err
		}
		for k, reply := range said {
			if slices.ContainsFunc(some[k].Shots, func(e lvlm.Example) bool { return e.Answer == icl.Judged(reply.Text, c.set.Captions) }) {
				c.copied++
			}
			out = append(out, reply.Text)
			c.tokens += int64(reply.Tokens)
		}
		c.tell(fmt.Sprintf("%d of %s answered", len(out), page.Plural(len(prompts), "question")), len(out) == len(prompts))
	}
	return out, nil
}

// write writes the official result file, selections.jsonl and infer.json.
func (c *chooser) write(dir, out string, chosen [][]int32, answers []string, about Inference) error {
	results, lines := make([]any, len(answers)), make([]selection, len(answers))
	for i, q := range c.queries {
		r := c.set.Records.At(q)
		said := icl.Judged(answers[i], c.set.Captions)
		results[i] = vqa.Result{QuestionID: r.ID, Answer: said}
		if c.set.Captions {
			results[i] = captionResult{r.ID, said}
		}
		lines[i] = selection{int64(q), chosen[i], r.Question, answers[i]}
	}
	for path, value := range map[string]any{out: results, filepath.Join(dir, "infer.json"): about} {
		if err := atomicfile.WriteJSON(path, value); err != nil {
			return err
		}
	}
	return writeLines(filepath.Join(dir, "selections.jsonl"), lines)
}
