package beamdata

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/rewardutil/group"
)

// compatOptions are the defaults of exp=lever_plus_compat's data section.
func compatOptions() Options {
	opt := DefaultOptions()
	opt.Name, opt.Compat, opt.PoolSize = "beams", true, ptr(64)
	opt.Reward.NaNIsBest = true
	opt.Normalize.Ties = "position"
	return opt
}

// units/rl_dataset.json: RL records as the reference turns them into samples. Labels outside the pool,
// which it lets through to crash in training, are refused here.
func TestCompatRLRecords(t *testing.T) {
	var cases []struct {
		Name    string
		Data    json.RawMessage
		Options struct {
			SkipFallback   *bool    `json:"skip_fallback_reward"`
			RequirePos     bool     `json:"require_positive_query"`
			FilterGenerate []string `json:"filter_gen_methods"`
		}
		Error   string
		Samples []struct {
			QueryID int64   `json:"query_id"`
			PoolIDs []int32 `json:"pool_ids"`
			Labels  any
			Rewards []float64
		}
	}
	golden.JSON(t, golden.Shared(t, "parity", "units", "rl_dataset.json"), &cases)
	seen := 0
	for _, tc := range cases {
		if tc.Options.FilterGenerate != nil || tc.Name == "wrong_len" {
			continue // dead code of the reference, no switch reaches it; and S is what the file's first trajectory has
		}
		seen++
		opt := compatOptions()
		if tc.Options.SkipFallback != nil {
			opt.SkipFallback = *tc.Options.SkipFallback
		}
		opt.RequirePositiveQuery = tc.Options.RequirePos
		f, err := readTestBeams(t, string(tc.Data), opt)
		if tc.Error != "" {
			if err == nil {
				t.Errorf("%s: accepted, want an error as the reference's %s", tc.Name, tc.Error)
			}
			continue
		}
		broken := false
		for _, s := range tc.Samples {
			labels, ok := s.Labels.([]any)
			broken = broken || !ok
			for _, row := range labels {
				for _, x := range row.([]any) {
					broken = broken || x.(float64) >= float64(len(s.PoolIDs))
				}
			}
		}
		if broken {
			if err == nil {
				t.Errorf("%s: a label outside the pool was accepted", tc.Name)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.Name, err)
			continue
		}
		if len(f.ids) != len(tc.Samples) {
			t.Errorf("%s: %d samples, want %d", tc.Name, len(f.ids), len(tc.Samples))
			continue
		}
		for i, want := range tc.Samples {
			if f.ids[i] != want.QueryID || !slices.Equal(f.pools[i], want.PoolIDs) {
				t.Errorf("%s: query %d pool %v, want %d %v", tc.Name, f.ids[i], f.pools[i], want.QueryID, want.PoolIDs)
			}
			golden.Close(t, f.reward[f.start[i]:f.start[i+1]], want.Rewards, 1e-12)
			k := int(f.start[i]) * f.shots
			for _, row := range want.Labels.([]any) {
				for _, x := range row.([]any) {
					if f.picks[k] != int32(x.(float64)) {
						t.Errorf("%s: label %d, want %v", tc.Name, f.picks[k], x)
					}
					k++
				}
			}
		}
	}
	if seen < 40 {
		t.Errorf("only %d cases", seen)
	}
}

// write makes a file of a test.
func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readTestBeams(t testing.TB, content string, opt Options) (*beamFile, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "beams.json")
	write(t, path, content)
	return readBeams(path, "data.beams", 1000, opt)
}

func TestCompatSplit(t *testing.T) {
	var cases []struct {
		Keys, Train, Val []string
		Error            string
	}
	golden.JSON(t, golden.Shared(t, "parity", "units", "split.json"), &cases)
	for _, tc := range cases {
		val, err := compatSplit(tc.Keys, 0.8)
		train := slices.DeleteFunc(slices.Clone(tc.Keys), func(key string) bool { return slices.Contains(val, key) })
		if (err != nil) != (tc.Error != "") {
			t.Errorf("%v: error %v, want %q", tc.Keys, err, tc.Error)
			continue
		}
		drop := func(keys []string) []string { // the fixture lists _meta on both sides or not at all; its place is immaterial
			return slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return k == "_meta" })
		}
		if err == nil && (!slices.Equal(drop(train), drop(tc.Train)) || !slices.Equal(drop(val), drop(tc.Val))) {
			t.Errorf("%v: train %v val %v, want %v %v", tc.Keys, train, val, tc.Train, tc.Val)
		}
	}
	if len(cases) < 12 {
		t.Errorf("only %d cases", len(cases))
	}
}

type scenarioSample struct {
	QueryID     int64   `json:"query_id"`
	K           int     `json:"K"`
	PoolIDs     []int32 `json:"pool_ids"`
	Labels      [][]int32
	RewardsRaw  []float64 `json:"rewards_raw"`
	RewardsNorm []any     `json:"rewards_norm"`
}

// Every recorded run's samples: queries in processing order, pools, labels, raw and normalised rewards.
func TestCompatScenarios(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(golden.Shared(t, "parity", "scenarios"), "*", "expected.json"))
	if err != nil || len(paths) < 24 {
		t.Fatalf("%d scenarios, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, word := range []string{"NaN", "Infinity"} {
				data = bytes.ReplaceAll(data, []byte(word), []byte(`"x"`))
			}
			var want struct {
				Config struct {
					Files      map[string]string
					Argv       []string
					LegacyPool string `json:"legacy_pool"`
				}
				TrainSamples []scenarioSample `json:"train_samples"`
				ValSamples   []scenarioSample `json:"val_samples"`
			}
			if err := json.Unmarshal(data, &want); err != nil {
				t.Fatal(err)
			}
			opt := compatOptions()
			opt.Beams = ptr(golden.Shared(t, "parity", want.Config.Files["beams"]))
			opt.Embeddings = ptr(golden.Shared(t, "parity", want.Config.Files["emb"]))
			if strings.HasPrefix(want.Config.LegacyPool, "full_table") {
				opt.LegacyPool = "full_table"
			}
			argvOptions(t, want.Config.Argv, &opt)
			f, err := os.ReadFile(*opt.Beams)
			if err != nil {
				t.Fatal(err)
			}
			legacy := bytes.Contains(f, []byte("id_list"))
			if legacy {
				opt.PoolSize = nil
				opt.Normalize.Method = "z_score"
			}
			b, err := Load(opt)
			if err != nil {
				t.Fatal(err)
			}
			checkSamples(t, b.RCE, want.TrainSamples, opt)
			checkSamples(t, b.Val, want.ValSamples, opt)
		})
	}
}

func argvOptions(t *testing.T, argv []string, opt *Options) {
	for i, a := range argv {
		number := func(v *float64) {
			x, err := strconv.ParseFloat(argv[i+1], 64)
			if err != nil {
				t.Fatal(err)
			}
			*v = x
		}
		switch a {
		case "--reward_mode":
			opt.Reward.Mode = argv[i+1]
		case "--normalize_method":
			opt.Normalize.Method = argv[i+1]
		case "--normalize_clamp_value":
			number(&opt.Normalize.Clamp)
		case "--hard_weight":
			number(&opt.Reward.HardWeight)
		case "--soft_weight":
			number(&opt.Reward.SoftWeight)
		case "--rel_weight":
			number(&opt.Reward.RelWeight)
		case "--reward_alpha":
			number(&opt.Reward.Alpha)
		case "--reward_beta":
			number(&opt.Reward.Beta)
		case "--reward_correctness_mode":
			opt.Reward.CorrectnessMode = argv[i+1]
		case "--use_logprob":
			opt.Reward.UseLogProb = true
		case "--no_skip_fallback_reward":
			opt.SkipFallback = false
		case "--require_positive_query":
			opt.RequirePositiveQuery = true
		}
	}
}

func checkSamples(t *testing.T, s *Set, want []scenarioSample, opt Options) {
	t.Helper()
	if s.Len() != len(want) {
		t.Fatalf("%s: %d queries, want %d", s.Name, s.Len(), len(want))
	}
	for i, w := range want {
		pool := s.Pool(i)
		if s.IDs[i] != w.QueryID || len(pool) != w.K || w.PoolIDs != nil && !slices.Equal(pool, w.PoolIDs) ||
			s.NumCandidates(i) != len(w.Labels) {
			t.Fatalf("%s %d: query %d, K %d, %d candidates; want %d, %d, %d", s.Name, i, s.IDs[i], len(pool), s.NumCandidates(i),
				w.QueryID, w.K, len(w.Labels))
		}
		var raw []float64
		for g := range s.NumCandidates(i) {
			c := s.Candidate(i, g)
			if !slices.Equal(c.Positions, w.Labels[g]) {
				t.Fatalf("query %d candidate %d: labels %v, want %v", w.QueryID, g, c.Positions, w.Labels[g])
			}
			raw = append(raw, float64(float32(c.Reward)))
		}
		golden.Close(t, raw, w.RewardsRaw, 0) // float32 as recorded
		var norm []float64
		for _, x := range w.RewardsNorm {
			if v, ok := x.(float64); ok {
				norm = append(norm, v)
			} else {
				norm = append(norm, math.NaN())
			}
		}
		got := group.Normalize(raw, opt.Normalize)
		// in the reference's float32 the deviation of equal rewards may be rounding noise; their z-scores stay equal
		if slices.Max(raw) == slices.Min(raw) && opt.Normalize.Method != "rank_normalize" {
			got, norm = []float64{got[0] - slices.Min(got)}, []float64{norm[0] - slices.Max(norm)}
		}
		golden.Close(t, got, norm, 2e-6) // float32 arithmetic there, float64 here
	}
}

// The reference's files in our own reading: nothing refused, what is dropped is counted.
func TestReferenceFilesInDefaultReading(t *testing.T) {
	for _, tc := range []struct {
		set                   string
		queries, shots        int
		failed, errors, fallb int
	}{{"legacy", 64, 2, 0, 0, 0}, {"rl_k64", 40, 2, 13, 6, 12}, {"rl_old", 15, 2, 2, 2, 4}, {"rl_s4", 20, 4, 2, 0, 2}} {
		opt := testOptions()
		opt.Beams, opt.Embeddings = ptr(golden.Shared(t, "parity", "data", tc.set, "beams.json")),
			ptr(golden.Shared(t, "parity", "data", tc.set, "emb.pt"))
		b, err := Load(opt)
		if err != nil {
			t.Error(err)
			continue
		}
		got := []int{b.All.Len(), b.Shots, b.Counts["trajectory_eval_failed"], b.Counts["trajectory_eval_error"],
			b.Counts["trajectory_fallback_score"]}
		if want := []int{tc.queries, tc.shots, tc.failed, tc.errors, tc.fallb}; !slices.Equal(got, want) {
			t.Errorf("%s: queries, shots, failed, error, fallback %v, want %v", tc.set, got, want)
		}
		opt.QueriesOnly = true
		if b, err = Load(opt); err != nil || b.All.Len() != tc.queries {
			t.Errorf("%s for predict: %d queries, %v", tc.set, b.All.Len(), err)
		}
	}
}

// TestCompatSplitsBeforeItDrops: the reference takes the first 80 % of the file's numeric keys by id and drops queries
// afterwards, in each part: of 50 entries, two of the first 40 and one of the last 10 without a positive trajectory, it
// trains on 38 and validates on 9. (Of the 38 one has a key that is no query here.)
func TestCompatSplitsBeforeItDrops(t *testing.T) {
	var content strings.Builder
	content.WriteString(`{"_meta":{"a":1},"note":2`)
	for i := range 50 {
		id := (i*7 + 3) % 50 // not in order
		correct := 1
		if id == 4 || id == 31 || id == 45 {
			correct = 0
		}
		key := strconv.Itoa(id)
		if id == 12 { // int(key) is 12 there; our reading has no such query, but it counts
			key = "1_2"
		}
		fmt.Fprintf(&content, `,"%s":{"candidate_pool_ids":[1,2,3],"pointer_candidates":[{"pointer":[0,1],`+
			`"pointer_global":[1,2],"vqa_correct":%d,"vqa_acc_score":0.1}]}`, key, correct)
	}
	content.WriteString("}")
	dir := t.TempDir()
	path := filepath.Join(dir, "beams.json")
	write(t, path, content.String())
	for _, tc := range []struct {
		positive        bool
		train, validate int
	}{{false, 39, 10}, {true, 37, 9}} { // "1_2" is none of our queries
		opt := compatOptions()
		opt.Beams, opt.Embeddings, opt.RequirePositiveQuery = &path, ptr(writeTable(t, dir, 60)), tc.positive
		b, err := Load(opt)
		if err != nil {
			t.Fatal(err)
		}
		if b.RCE.Len() != tc.train || b.Val.Len() != tc.validate || slices.Max(b.RCE.IDs) != 39 || slices.Min(b.Val.IDs) != 40 {
			t.Errorf("require_positive_query=%v: %d train to %d, %d validate from %d; want %d to 39, %d from 40",
				tc.positive, b.RCE.Len(), slices.Max(b.RCE.IDs), b.Val.Len(), slices.Min(b.Val.IDs), tc.train, tc.validate)
		}
	}
}
