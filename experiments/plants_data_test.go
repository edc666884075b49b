package experiments_test

import (
	"encoding/json"
	"fmt"
	"image/color"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
)

// recorded is a run of 12 steps on a beam file, 120 queries of 8 subjects whose pools are of their own subject.
func recorded(t *testing.T, s scenes, more ...string) []string {
	return with(append(s.write(t), "threads=1", "seed=3", "data.batch_size=16", "selector.hidden_dim=16", "selector=v3_skip", "rce.epochs=1",
		"grpo.epochs=1", "report.plots=false", "logging.tensorboard=false"), more)
}

// scenes are queries with recorded candidates, and the embeddings of all rows.
type scenes struct {
	records []beamRecord
	rows    [][]float32
}

func newScenes() scenes {
	const rows, subjects, dim = 240, 8, 24
	random := rand.New(rand.NewPCG(5, 6))
	vector := func(around []float32, spread float64) []float32 {
		v := make([]float32, dim)
		for i := range v {
			v[i] = float32(spread * random.NormFloat64())
			if around != nil {
				v[i] += around[i]
			}
		}
		return v
	}
	var centres [subjects][]float32
	for i := range centres {
		centres[i] = vector(nil, 1)
	}
	var s scenes
	for row := range rows {
		v := vector(centres[row%subjects], 0.7)
		length := math.Sqrt(dot(v, v))
		for i := range v {
			v[i] /= float32(length)
		}
		s.rows = append(s.rows, v)
	}
	for id := range 120 {
		r := beamRecord{ID: int64(id), Query: map[string]int64{"query_id": int64(id)}}
		for _, k := range random.Perm(rows / subjects) {
			if other := int64(k*subjects + id%subjects); other != r.ID && len(r.Pool) < 12 {
				r.Pool = append(r.Pool, other)
			}
		}
		for range 6 {
			pick := random.Perm(len(r.Pool))[:2]
			chosen := []int64{r.Pool[pick[0]], r.Pool[pick[1]]}
			good := dot(s.rows[id], s.rows[chosen[0]])/2 + dot(s.rows[id], s.rows[chosen[1]])/2 + 0.1*random.NormFloat64()
			r.Candidates = append(r.Candidates, candidate(chosen, good))
		}
		s.records = append(s.records, r)
	}
	return s
}

// candidate is a trajectory of a quality between 0 and 1, about.
func candidate(chosen []int64, good float64) map[string]any {
	p := math.Min(1, math.Max(0, good))
	return map[string]any{"pointer": chosen, "gen_method": "beam", "beam_score": p, "vqa_correct": int(math.Round(p)),
		"vqa_acc_score": math.Round(p*10) / 10, "vqa_gt_prob": p, "vqa_rel_score": p}
}

// dot is the cosine of rows, which have length 1.
func dot(a, b []float32) float64 {
	sum := 0.0
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// write writes the beam file and the table, and returns the overrides that read them.
func (s scenes) write(t *testing.T) []string {
	t.Helper()
	return beamFiles(t, beamLines(t, s.records), s.rows)
}

// each changes every candidate.
func (s scenes) each(change func(query, candidate int, c map[string]any)) scenes {
	for q, r := range s.records {
		for g, c := range r.Candidates {
			change(q, g, c)
		}
	}
	return s
}

// rewards gives every candidate the quality that reward says.
func (s scenes) rewards(reward func(query, candidate int) float64) scenes {
	return s.each(func(q, g int, c map[string]any) {
		for key, value := range candidate(nil, reward(q, g)) {
			if key != "pointer" {
				c[key] = value
			}
		}
	})
}

// twin is a query under another id: a row with the same embedding.
func (s *scenes) twin(r beamRecord) beamRecord {
	s.rows = append(s.rows, s.rows[r.ID])
	r.ID = int64(len(s.rows) - 1)
	r.Query = map[string]int64{"query_id": r.ID}
	return r
}

// dataPlants are faults of the data.
func dataPlants() []plant {
	with := func(change func(s *scenes)) base {
		return func(t *testing.T, more ...string) []string {
			s := newScenes()
			change(&s)
			return recorded(t, s, more...)
		}
	}
	return []plant{
		{name: "rewards that are all equal", check: "constant_rewards",
			base: with(func(s *scenes) { s.rewards(func(int, int) float64 { return 0.6 }) })},
		{name: "rewards that differ by less than their precision", check: "subprecision_rewards",
			args: []string{"grpo.advantage.precision=0.01", "data.reward.mode=vqa_gt_prob"},
			base: with(func(s *scenes) { s.rewards(func(_, g int) float64 { return 0.6 + 1e-4*float64(g) }) })},
		{name: "a reward that is no number", check: "error: query 7: pointer_candidates[2]: vqa_gt_prob = NaN, want a finite number",
			args: []string{"data.reward.mode=vqa_gt_prob"},
			base: with(func(s *scenes) { s.records[7].Candidates[2]["vqa_gt_prob"] = "NaN" })},
		{name: "one candidate a query", check: "small_groups",
			base: with(func(s *scenes) {
				for i := range s.records {
					s.records[i].Candidates = s.records[i].Candidates[:1]
				}
			})},
		{name: "six in seven groups with equal rewards", check: "little_signal",
			base: with(func(s *scenes) {
				s.rewards(func(q, g int) float64 { return 0.6 - 0.1*float64(g)*float64(1-min(1, q%7)) })
			})},
		{name: "the same candidate under two rewards", check: "contradictory_rewards",
			base: with(func(s *scenes) {
				for _, r := range s.records {
					r.Candidates[1]["pointer"] = r.Candidates[0]["pointer"]
				}
			})},
		{name: "half of the embeddings are one", check: "identical_candidates|blank_rows",
			base: with(func(s *scenes) {
				for i := 0; i < len(s.rows); i += 2 {
					s.rows[i] = s.rows[0]
				}
			})},
		{name: "records that all show one picture", check: "shared_pictures",
			base: func(t *testing.T, more ...string) []string { return pictured(t, true, more...) }},
		{name: "copies of one picture under many names", check: "shared_pictures", says: "under",
			base: func(t *testing.T, more ...string) []string { return pictured(t, false, more...) }},
		{name: "queries in their own pools", check: "query_in_own_pool", // under another id: that of its own is left out
			base: with(func(s *scenes) {
				for _, r := range s.records {
					s.rows[r.Pool[0]] = s.rows[r.ID]
				}
			})},
		{name: "queries that stand twice", check: "duplicate_queries",
			base: with(func(s *scenes) {
				for _, r := range s.records[:30] {
					s.records = append(s.records, s.twin(r))
				}
			})},
		{name: "validation queries that are trained on", check: "split_leak",
			base: func(t *testing.T, more ...string) []string {
				s := newScenes()
				val := s
				val.records = nil
				for _, r := range s.records[20:40] {
					val.records = append(val.records, val.twin(r))
				}
				s.rows = val.rows // under other ids: a query that both files name is left out of training
				return recorded(t, s, append(more, "data.val_beams="+strings.TrimPrefix(val.write(t)[1], "data.beams="))...)
			}},
		{name: "pool ids that are off by one", check: "error: is not among the 12 candidate_pool_ids",
			base: with(func(s *scenes) {
				for _, r := range s.records {
					for k := range r.Pool {
						r.Pool[k]++
					}
				}
			})},
		{name: "embeddings in another order", check: "pool_unlike_query",
			base: with(func(s *scenes) {
				rand.New(rand.NewPCG(1, 1)).Shuffle(len(s.rows), func(i, j int) { s.rows[i], s.rows[j] = s.rows[j], s.rows[i] })
			})},
	}
}

// pictured is a run on questions about pictures that are all the same: one file, or copies of it.
func pictured(t *testing.T, oneFile bool, more ...string) []string {
	dir := t.TempDir()
	file := func(set string, n int, c color.Color) string {
		var records []any
		for i := range n {
			name := set + "0.png"
			if !oneFile {
				name = fmt.Sprintf("%s%d.png", set, i)
			}
			writePicture(t, filepath.Join(dir, name), c)
			records = append(records, map[string]any{"id": fmt.Sprint(set, i), "image": name, "conversations": []map[string]string{
				{"from": "human", "value": fmt.Sprintf("<image>\nWhat is %s number %d?", set, i)},
				{"from": "gpt", "value": fmt.Sprintf("it is %d", i*i)}}})
		}
		text, err := json.Marshal(records)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, set+".json")
		write(t, path, string(text))
		return path
	}
	return answering(t, append([]string{"data=conversations", "data.conversations.train=" + file("train", 36, color.RGBA{200, 30, 90, 255}),
		"data.conversations.val=" + file("val", 6, color.RGBA{20, 130, 90, 255}),
		"schedule=[grpo]", "grpo.epoch_queries=16"}, more...)...)
}

// configPlants are settings that train nothing, or not what was meant.
func configPlants() []plant {
	return []plant{
		{name: "β on its bound", check: "beta_at_bound", args: []string{"grpo.kl.beta=1", "grpo.kl.beta_max=1", "grpo.kl.target_min=1e-5",
			"grpo.kl.target_max=1e-4"}},
		{name: "τ far above the spread", check: "ess_uniform", args: []string{"rce.temperature.start=200", "rce.temperature.end=100"}},
		{name: "τ far below the spread", check: "ess_collapsed", args: []string{"rce.temperature.start=1e-3", "rce.temperature.end=1e-3"}},
		{name: "a learning rate of 0", check: "error: grpo.lr=0", args: []string{"grpo.lr=0"}},
		{name: "a learning rate too small for float32", check: "parameters_do_not_move", args: []string{"grpo.lr=1e-12"}},
		{name: "a learning rate far too high", check: "kl_above_band|worse_than_start|nonfinite|ratio_clamped", args: []string{"grpo.lr=3"}},
		{name: "groups of one", base: online, check: "error: grpo_online.group_size=1", args: []string{"grpo_online.group_size=1"}},
		{name: "every answer is cut", base: answering, check: "all_truncated", args: []string{"checks.off=[]"}},
		{name: "samples of a part of the distribution", base: answering, check: "sampling_cut", args: []string{"vl.generation.top_p=0.8"}},
		{name: "a reward that nobody earns", base: answering, check: "no_signal",
			args: []string{"rewards.length.weight=0", "rewards.vqa.weight=1"}},
	}
}

func TestPlantsInData(t *testing.T) {
	t.Parallel()
	for i, p := range dataPlants() {
		if testing.Short() && i%4 != 0 {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			runPlant(t, program(t), p).check(t, p)
		})
	}
	t.Run("healthy", func(t *testing.T) {
		t.Parallel()
		p := plant{base: func(t *testing.T, more ...string) []string { return recorded(t, newScenes(), more...) }}
		if c := runPlant(t, program(t), p); len(c.events) > 0 || c.result.Code != 0 {
			t.Errorf("findings %v, exit code %d\n%s", c.names(), c.result.Code, c.result.Stderr)
		}
	})
}

func TestPlantsInConfig(t *testing.T) {
	t.Parallel()
	for i, p := range configPlants() {
		if testing.Short() && i%4 != 0 {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			runPlant(t, program(t), p).check(t, p)
		})
	}
}
