package beamdata

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/beamdata/jsonstream"
	"fulcrum/internal/tensorfile"
)

func testOptions() Options {
	opt := DefaultOptions()
	opt.Name = "beams"
	return opt
}

// readableQuery describes what a file was read as: "id pool=[…] picks=[…] rewards=[…]".
func describe(f *beamFile) string {
	var out []string
	for i, id := range f.ids {
		from, to := f.start[i], f.start[i+1]
		pool := "shared"
		if f.pools != nil {
			pool = fmt.Sprint(f.pools[i])
		}
		out = append(out, fmt.Sprintf("%d pool=%s picks=%v rewards=%v", id, pool, f.picks[from*int64(f.shots):to*int64(f.shots)],
			f.reward[from:to]))
	}
	return strings.Join(out, "; ")
}

const traj = `"vqa_correct":1,"vqa_acc_score":0.6`

func TestReadingRules(t *testing.T) {
	for _, tc := range []struct {
		name, content string
		change        func(*Options)
		want          string
		counts        map[string]int
	}{
		{name: "legacy beams end with the query", content: `{"7":{"id_list":[[1,2,7],[3,4,7]],"score_list":[0.5,1e-7]}}`,
			want: "7 pool=shared picks=[1 2 3 4] rewards=[0.5 1e-07]"},
		{name: "file order is kept, _meta skipped", content: `{"_meta":{"a":[1,{"b":null}]},"9":{"id_list":[[1,9]],` +
			`"score_list":[1]},"2":{"id_list":[[3,2]],"score_list":[-2]}}`,
			want: "9 pool=shared picks=[1] rewards=[1]; 2 pool=shared picks=[3] rewards=[-2]"},
		{name: "a key that is no number is counted", content: `{"a":1,"1_0":2,"9":{"id_list":[[1,9]],"score_list":[1]}}`,
			want: "9 pool=shared picks=[1] rewards=[1]", counts: map[string]int{"key_not_a_number": 2}},
		{name: "pointer is global without pointer_global", content: `{"7":{"candidate_pool_ids":[5,3,9],` +
			`"pointer_candidates":[{"pointer":[9,5],` + traj + `}]}}`,
			want: "7 pool=[5 3 9] picks=[9 5] rewards=[1.6]"},
		{name: "pointer is local with pointer_global", content: `{"7":{"candidate_pool_ids":[5,3,9],` +
			`"pointer_candidates":[{"pointer":[2,0],"pointer_global":[9,5],` + traj + `}]}}`,
			want: "7 pool=[5 3 9] picks=[9 5] rewards=[1.6]"},
		{name: "the reference reads pointer_pos as ids, and is not silent about it", content: `{"7":{"candidate_pool_ids":[5,3,9],` +
			`"pointer_candidates":[{"pointer":[9,5],"pointer_pos":[2,0],` + traj + `}]}}`, change: func(o *Options) { o.Compat = true },
			want:   "7 pool=[0 2] picks=[1 0] rewards=[1.6]",
			counts: map[string]int{"pointers_for_which_the_reference_reads_pointer_pos_as_ids": 1}},
		{name: "pointer_pos alone are positions", content: `{"7":{"candidate_pool_ids":[5,3,9],` +
			`"pointer_candidates":[{"pointer_pos":[1,2],` + traj + `}]}}`,
			want: "7 pool=[5 3 9] picks=[3 9] rewards=[1.6]"},
		{name: "pool after the trajectories in the record", content: `{"7":{"pointer_candidates":[{"pointer":[1,2],` +
			`"pointer_pos":null,"pointer_global":[3,9],` + traj + `}],"candidate_pool_ids":[5,3,9]}}`,
			want: "7 pool=[5 3 9] picks=[3 9] rewards=[1.6]"},
		{name: "without pool ids the pool is what the query's trajectories name",
			content: `{"7":{"pointer_candidates":[{"pointer":[9,5],"pointer_pos":[0,1],` + traj +
				`},{"pointer":[5,3],"vqa_correct":0,"vqa_acc_score":0}]}}`,
			want: "7 pool=[3 5 9] picks=[9 5 5 3] rewards=[1.6 0]"},
		{name: "the query leaves its own pool", content: `{"7":{"candidate_pool_ids":[5,7,9],"pointer_candidates":[{"pointer_pos":[2,0],` +
			traj + `}]}}`,
			want: "7 pool=[5 9] picks=[9 5] rewards=[1.6]", counts: map[string]int{"query_dropped_from_its_pool": 1}},
		{name: "failed, error and fallback trajectories are counted", content: `{"7":{"candidate_pool_ids":[5,3,9],"pointer_candidates":[
			{"pointer":[5],"eval_failed":true},{"pointer":[5],"vqa_eval_mode":"error"},{"pointer":[5],
		"vqa_eval_mode":"fallback"},{"pointer":[9],"vqa_eval_mode":"vqaEval",` + traj + `}]}}`,
			want:   "7 pool=[5 3 9] picks=[9] rewards=[1.6]",
			counts: map[string]int{"trajectory_eval_failed": 1, "trajectory_eval_error": 1, "trajectory_fallback_score": 1}},
		{name: "fallback scores on request", content: `{"7":{"candidate_pool_ids":[5],"pointer_candidates":[{"pointer":[5],` +
			`"vqa_eval_mode":"fallback",` + traj + `}]}}`,
			change: func(o *Options) { o.SkipFallback = false }, want: "7 pool=[5] picks=[5] rewards=[1.6]"},
		{name: "queries without a positive trajectory on request",
			content: `{"7":{"candidate_pool_ids":[5],"pointer_candidates":[{"pointer":[5],"vqa_correct":0,` +
				`"vqa_acc_score":0}]},"8":{"candidate_pool_ids":[5],"pointer_candidates":[{"pointer":[5],` + traj + `}]}}`,
			change: func(o *Options) { o.RequirePositiveQuery = true }, want: "8 pool=[5] picks=[5] rewards=[1.6]",
			counts: map[string]int{"query_without_positive_trajectory": 1}},
		{name: "queries to train on need trajectories", content: `{"7":{"candidate_pool_ids":[5]},` +
			`"8":{"candidate_pool_ids":[5],"pointer_candidates":[]}}`,
			want: "", counts: map[string]int{"query_without_trajectories": 2}},
		{name: "queries to answer need none", content: `{"7":{"candidate_pool_ids":[5]},"8":{"candidate_pool_ids":[6],` +
			`"pointer_candidates":[{"pointer":"broken"}]}}`,
			change: func(o *Options) { o.QueriesOnly = true }, want: "7 pool=[5] picks=[] rewards=[]; 8 pool=[6] picks=[] rewards=[]"},
		{name: "queries to answer ignore scores", content: `{"7":{"id_list":[[1,2,7]],"score_list":[NaN,"x"]}}`,
			change: func(o *Options) { o.QueriesOnly = true }, want: "7 pool=shared picks=[1 2] rewards=[0]"},
		{name: "null is absent, bools count as scores", content: `{"7":{"query":null,"candidate_pool_ids":[5,6],` +
			`"pointer_candidates":[{"pointer":[5],"vqa_correct":true,"vqa_acc_score":null,"beam_rank":null}]}}`,
			change: func(o *Options) { o.Reward.Mode = "hard_only" }, want: "7 pool=[5 6] picks=[5] rewards=[1]"},
		{name: "a recorded number that the reward is", content: `{"7":{"candidate_pool_ids":[5,6],` +
			`"pointer_candidates":[{"pointer":[5],"reward":0.25},{"pointer":[6],"reward":-7}]}}`,
			change: func(o *Options) { o.Reward.Field = ptr("reward") }, want: "7 pool=[5 6] picks=[5 6] rewards=[0.25 -7]"},
		{name: "a known score that the reward is", content: `{"7":{"candidate_pool_ids":[5],"pointer_candidates":[{"pointer":[5],` + traj +
			`}]}}`,
			change: func(o *Options) { o.Reward.Field = ptr("vqa_acc_score") }, want: "7 pool=[5] picks=[5] rewards=[0.6]"},
		{name: "a score with weight 0 may be absent", content: `{"7":{"candidate_pool_ids":[5],` +
			`"pointer_candidates":[{"pointer":[5],"vqa_correct":1}]}}`,
			change: func(o *Options) { o.Reward.SoftWeight = 0 }, want: "7 pool=[5] picks=[5] rewards=[1]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			opt := testOptions()
			if tc.change != nil {
				tc.change(&opt)
			}
			f, err := readTestBeams(t, tc.content, opt)
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(f); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if len(tc.counts) > 0 || len(f.counts) > 0 {
				if !maps.Equal(f.counts, tc.counts) {
					t.Errorf("counts %v, want %v", f.counts, tc.counts)
				}
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	rl := func(trajectory string) string {
		return `{"7":{"candidate_pool_ids":[5,3,9],"pointer_candidates":[{"pointer":[5,3],` + traj + `},` + trajectory + `]}}`
	}
	legacy := func(beams, scores string) string {
		return `{"7":{"id_list":[[1,2,7],` + beams + `],"score_list":[` + scores + `]}}`
	}
	for _, tc := range []struct{ name, content, want string }{
		{"not JSON", "{\n \"7\": {,", `line 2 (byte 9): found ',', want a string`},
		{"truncated", `{"7":{"id_list":[[1,2`, "query 7: id_list[0]: line 1 (byte 21): found the end of the file (is it cut " +
			"short?), want ',' or ']'"},
		{"text behind", `{"7":{"id_list":[[1,7]],"score_list":[1]}} x`, "after the end of the JSON value"},
		{"Latin-1", "{\"_meta\":\n\"caf\xe9\"}", "line 2 (byte 16): string: not UTF-8: save the file in that encoding"},
		{"half of a character", `{"7":{"x":"\ud800"}}`, `query 7: line 1 (byte 18): string: \ud800 is half of a character`},
		{"not an object", `[1]`, "found a list, want a JSON object of queries"},
		{"no query", `{"_meta":{}}`, "no query: the object is empty, want queries by id"},
		{"neither format", `{"7":{"x":1}}`, "query 7: found the key x, want id_list and score_list (legacy), or " +
			"pointer_candidates, candidate_pool_ids or both (RL)"},
		{"no scores", `{"7":{"id_list":[[1,7]]}}`, "query 7: id_list without score_list"},
		{"lengths differ", legacy("[3,4,7]", "1"), "query 7: id_list holds 2 beams, score_list 1 scores"},
		{"another query's beam", legacy("[3,4,8]", "1,2"), "query 7: id_list[1] ends with 8, want the query id 7"},
		{"wrong beam length", legacy("[3,4,5,7]", "1,2"), "query 7: id_list[1] has 3 picks, want 2 as in the first of the file"},
		{"id outside the table", legacy("[3,1000,7]", "1,2"), "query 7: id_list[1][1] = 1000 is outside the embedding table of 1000 rows"},
		{"negative id", legacy("[3,-1,7]", "1,2"), "query 7: id_list[1][1] = -1 is outside the embedding table: ids count rows from 0"},
		{"another query's record", `{"7":{"query":{"query_id":"8","x":[1]},"candidate_pool_ids":[5]}}`, "query 7: line 1 (byte 29): " +
			"query.query_id is 8: want that of the key"},
		{"NaN score", legacy("[3,4,7]", "1,NaN"), "query 7: score_list[1] = NaN, want a finite number"},
		{"infinite score", legacy("[3,4,7]", "1,-Infinity"), "query 7: score_list[1] = -Inf, want a finite number"},
		{"score that overflows a mean", legacy("[3,4,7]", "1,-1e308"), "query 7: score_list[1] = -1e+308, want a number within ±1e+30"},
		{"score too large for a float", legacy("[3,4,7]", "1,1e999"), "score_list[1] = +Inf"},
		{"text for a score", legacy("[3,4,7]", `1,"2"`), "score_list[1]: line 1"},
		{"float for an id", legacy("[3,4.5,7]", "1,2"), `"4.5" is not an integer`},
		{"the query is its own demonstration", legacy("[3,7,7]", "1,2"), "query 7: id_list[1][1] is the query itself"},
		{"picked twice", legacy("[3,3,7]", "1,2"), "query 7: id_list[1] picks 3 twice"},
		{"query outside the table", `{"1000":{"id_list":[[1,1000]],"score_list":[1]}}`, "query 1000: the query id is outside " +
			"the embedding table of 1000 rows"},
		{"query twice", `{"7":{"id_list":[[1,7]],"score_list":[1]},"07":{"id_list":[[1,7]],"score_list":[1]}}`, "query 07: appears twice"},
		{"formats mixed", `{"7":{"id_list":[[1,7]],"score_list":[1]},"8":{"pointer_candidates":[]}}`,
			"query 8: want id_list and score_list"},
		{"pointer outside the pool", rl(`{"pointer":[5,4],` + traj + `}`), "query 7: pointer_candidates[1].pointer[1] = 4 is " +
			"not among the 3 candidate_pool_ids"},
		{"local pointer outside the pool", rl(`{"pointer":[0,3],"pointer_global":[5,9],` + traj + `}`),
			"query 7: pointer_candidates[1].pointer[1] = 3 outside pool of 3 candidates (0..2)"},
		{"position outside the pool", rl(`{"pointer_pos":[0,64],` + traj + `}`), "pointer_candidates[1].pointer_pos[1] = 64 " +
			"outside pool of 3 candidates (0..2)"},
		{"local and global disagree", rl(`{"pointer":[0,1],"pointer_global":[5,9],` + traj + `}`),
			"pointer_candidates[1]: pointer [0 1] names [5 3] of candidate_pool_ids, pointer_global says [5 9]"},
		{"positions and ids disagree", rl(`{"pointer":[5,3],"pointer_pos":[0,2],` + traj + `}`),
			"pointer_candidates[1]: pointer_pos [0 2] names [5 9] of candidate_pool_ids, pointer says [5 3]"},
		{"no pointer", rl(`{"vqa_correct":1}`), "pointer_candidates[1] has no pointer, pointer_global or pointer_pos"},
		{"positions without a pool", `{"7":{"pointer_candidates":[{"pointer_pos":[1]}]}}`,
			"pointer_candidates[0].pointer_pos gives positions, but the query has no candidate_pool_ids"},
		{"wrong number of picks", rl(`{"pointer":[5],` + traj + `}`), "pointer_candidates[1] has 1 pick, want 2"},
		{"NaN reward", rl(`{"pointer":[5,3],"vqa_gt_prob":NaN}`), "pointer_candidates[1]: vqa_gt_prob = NaN, want a finite number"},
		{"own demonstration", `{"7":{"candidate_pool_ids":[5,7],"pointer_candidates":[{"pointer":[5,7],` + traj + `}]}}`,
			"pointer_candidates[0].pointer[1] is the query itself"},
		{"pool id twice", `{"7":{"candidate_pool_ids":[5,5]}}`, "candidate_pool_ids[1] = 5 is there already, at 0"},
		{"pool id outside the table", `{"7":{"candidate_pool_ids":[5,5000]}}`, "candidate_pool_ids[1] = 5000 is outside the " +
			"embedding table of 1000 rows"},
		{"field twice", `{"7":{"candidate_pool_ids":[5],"candidate_pool_ids":[6]}}`, "candidate_pool_ids appears twice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := readTestBeams(t, tc.content, testOptions())
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "beams.json: ") ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v\nwant %s", err, tc.want)
			}
		})
	}
}

// The scanner gives the same result whatever the buffer's boundaries cut.
func TestScannerAtEveryBoundary(t *testing.T) {
	const content = `{"_meta" : {"text":"a\"b\\cé\u00e9"}, "12" :  {"id_list":[[1, 2,12] , [3,4,12]],"score_list":[ ` +
		`-0.5e-3,1.25 ], "x":[true,false,null,{"y":[]}]}}`
	opt := testOptions()
	want, err := readTestBeams(t, content, opt)
	if err != nil {
		t.Fatal(err)
	}
	for size := 1; size < len(content); size++ {
		p := newParser(&chunks{data: []byte(content), size: size}, "beams.json", opt)
		p.s = jsonstream.NewSized(&chunks{data: []byte(content), size: size}, 8)
		r := newFileReader(p, "beams.json", 1000, opt)
		if err := p.each(r.add); err != nil {
			t.Fatalf("chunks of %d: %v", size, err)
		}
		if got := describe(r.out); got != describe(want) {
			t.Fatalf("chunks of %d: %s, want %s", size, got, describe(want))
		}
	}
}

type chunks struct {
	data []byte
	size int
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := min(c.size, len(p), len(c.data))
	copy(p, c.data[:n])
	c.data = c.data[n:]
	return n, nil
}

// writeTable writes an embedding table whose row i is [i, 1] and returns its path.
func writeTable(t testing.TB, dir string, rows int) string {
	t.Helper()
	values := make([]float32, 2*rows)
	for i := range rows {
		values[2*i], values[2*i+1] = float32(i), 1
	}
	path := filepath.Join(dir, "emb.safetensors")
	if err := tensorfile.WriteSafetensors(path, []tensorfile.Tensor{tensorfile.FromFloat32s("emb", []int{rows, 2}, values)},
		nil); err != nil {
		t.Fatal(err)
	}
	return path
}

func loadContent(t *testing.T, content string, change func(*Options)) (*Bundle, error) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "beams.json")
	write(t, path, content)
	opt := testOptions()
	opt.Beams, opt.Embeddings = &path, ptr(writeTable(t, dir, 20))
	if change != nil {
		change(&opt)
	}
	return Load(opt)
}

// keepHeldOut leaves the training pools whole.
func keepHeldOut(o *Options) { o.Pool.HeldOut = "keep" }

const tenLegacy = `{"0":{"id_list":[[1,2,0]],"score_list":[1]},"1":{"id_list":[[2,3,1]],"score_list":[1]},
		"2":{"id_list":[[3,4,2]],"score_list":[1]},
"3":{"id_list":[[4,5,3]],"score_list":[1]},"4":{"id_list":[[5,6,4]],"score_list":[1]},"5":{"id_list":[[6,7,5]],
		"score_list":[1]},"6":{"id_list":[[7,8,6]],"score_list":[1]},
"7":{"id_list":[[8,9,7]],"score_list":[1]},"8":{"id_list":[[9,1,8]],"score_list":[1]},"9":{"id_list":[[1,8,9]],"score_list":[1]}}`

// The gathered pool is the sorted ids of the whole file without the query; picks name the same ids.
func TestLegacyGatheredPool(t *testing.T) {
	b, err := loadContent(t, tenLegacy, keepHeldOut)
	if err != nil {
		t.Fatal(err)
	}
	if b.RCE.Len() != 8 || b.Val.Len() != 2 || b.Records != b.RCE || b.Online != nil || b.Shots != 2 {
		t.Fatalf("rce %d val %d shots %d", b.RCE.Len(), b.Val.Len(), b.Shots)
	}
	if b.Counts["query_dropped_from_its_pool"] != 9 { // every query but 0
		t.Errorf("counts %v", b.Counts)
	}
	for _, s := range []*Set{b.RCE, b.Val} {
		for i, id := range s.IDs {
			pool := s.Pool(i)
			if len(pool) != s.PoolSize(i) || slices.Contains(pool, int32(id)) || !slices.IsSorted(pool) {
				t.Errorf("query %d: pool %v", id, pool)
			}
			c := s.Candidate(i, 0)
			first := pool[c.Positions[0]]
			if want := map[int64]int32{8: 9, 9: 1}[id]; want == 0 && int64(first) != id+1 || want != 0 && first != want {
				t.Errorf("query %d: first pick %d", id, first)
			}
		}
	}
}

func TestSplits(t *testing.T) {
	for _, tc := range []struct {
		ratio      float64
		train, val int
	}{{0.8, 8, 2}, {0, 0, 10}, {1, 10, 0}, {0.55, 5, 5}} {
		b, err := loadContent(t, tenLegacy, func(o *Options) { o.TrainRatio, o.Pool.HeldOut = tc.ratio, "keep" })
		if err != nil {
			t.Fatal(err)
		}
		if b.RCE.Len() != tc.train || b.Val.Len() != tc.val {
			t.Errorf("ratio %v: %d train, %d val", tc.ratio, b.RCE.Len(), b.Val.Len())
		}
	}
	prints := map[string]bool{}
	for seed := range int64(4) {
		b, _ := loadContent(t, tenLegacy, func(o *Options) { o.SplitSeed = seed })
		prints[b.Fingerprint] = true
	}
	if len(prints) < 2 {
		t.Error("four split seeds gave one split")
	}
	b, err := loadContent(t, tenLegacy, func(o *Options) { o.MaxSamples, o.Pool.HeldOut = ptr(3), "keep" })
	if err != nil || b.RCE.Len() != 3 || b.Val.Len() != 2 {
		t.Errorf("max_samples: %d, %v", b.RCE.Len(), err)
	}
}

func TestPoolCut(t *testing.T) {
	content := `{"7":{"candidate_pool_ids":[5,3,9],"pointer_candidates":[{"pointer":[5,3],` + traj + `},{"pointer":[5,9],` + traj + `}]}}`
	b, err := loadContent(t, content, func(o *Options) { o.PoolSize, o.TrainRatio = ptr(2), 1 })
	if err != nil {
		t.Fatal(err)
	}
	if b.RCE.NumCandidates(0) != 1 || b.Counts["candidate_behind_pool_cut"] != 1 || !slices.Equal(b.RCE.Pool(0), []int32{5, 3}) {
		t.Errorf("%d candidates, pool %v, counts %v", b.RCE.NumCandidates(0), b.RCE.Pool(0), b.Counts)
	}
}

func TestLoadErrorsNameFileAndKey(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"beams", func(o *Options) { o.Beams = ptr("/no/such.json") }, "/no/such.json: no such file (there is no folder " +
			"/no): set data.beams to an existing one"},
		{"embeddings", func(o *Options) { o.Embeddings = ptr("/no/such.npy") }, "/no/such.npy: no such file (there is no " +
			"folder /no): set data.embeddings to an existing one"},
		{"embedding format", func(o *Options) { o.Embeddings = ptr("/no/such.npz") }, `unknown embedding format ".npz" (did ` +
			`you mean .npy?)`},
		{"reader", func(o *Options) { o.Reader = ptr("/no/such.npz") }, "/no/such.npz: no such file (there is no folder " +
			"/no): set data.reader to an existing one"},
		{"records", func(o *Options) { o.Records = ptr("/no/rl.json") }, "/no/rl.json: no such file (there is no folder " +
			"/no): set data.records"},
		{"root", func(o *Options) { o.Name, o.Root = "okvqa", ptr("/no/such") }, "data.root=/no/such: no such folder: give " +
			"the folder that holds reader_train.npz"},
		{"format", func(o *Options) { o.Format = "rl" }, "query 0: the file is in format legacy, data.format=rl asks for another"},
		{"no embeddings", func(o *Options) { o.Embeddings = nil }, "embeddings: data=beams needs an embedding table: data.embeddings=FILE"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := loadContent(t, tenLegacy, tc.change)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
}

func FuzzBeams(f *testing.F) {
	f.Add([]byte(tenLegacy))
	f.Add([]byte(`{"_meta":{},"7":{"candidate_pool_ids":[5,3,9],"pointer_candidates":[{"pointer":[2,0],"pointer_global":[9,` +
		`5],"pointer_pos":[2,0],"gen_method":"beam","vqa_gt_prob":1e-3,"eval_failed":false}]}}`))
	f.Add([]byte(`{"7":{"pointer_candidates":[{"pointer":[9,5]}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, compat := range []bool{false, true} {
			for _, queries := range []bool{false, true} {
				opt := testOptions()
				opt.Compat, opt.QueriesOnly = compat, queries
				p := newParser(strings.NewReader(string(data)), "beams.json", opt)
				r := newFileReader(p, "beams.json", 20, opt)
				if err := p.each(r.add); err != nil {
					continue
				}
				st, err := newBuilder(opt, 20, map[string]int{}).fromFile(r.out)
				if err != nil {
					continue
				}
				s := newSet("fuzz", NewTable(20, 1, make([]float32, 20)), st)
				for i := range s.Len() {
					pool := s.Pool(i)
					for g := range s.NumCandidates(i) {
						for _, p := range s.Candidate(i, g).Positions {
							if int(p) >= len(pool) || p < 0 {
								t.Fatalf("position %d in a pool of %d", p, len(pool))
							}
						}
					}
				}
			}
		}
	})
}

// task=predict: every query of the file has a place in All, in file order, whatever is recorded.
func TestQueriesOnlyKeepsEveryQuery(t *testing.T) {
	content := `{"9":{"candidate_pool_ids":[5,3]},"2":{"candidate_pool_ids":[2,4],"pointer_candidates":[{"pointer":[99]}]},` +
		`"4":{"candidate_pool_ids":[1],"pointer_candidates":null}}`
	b, err := loadContent(t, content, func(o *Options) { o.QueriesOnly = true })
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(b.All.IDs, []int64{9, 2, 4}) || b.RCE.Len()+b.Val.Len() != 3 || !slices.Equal(b.All.Pool(1), []int32{4}) {
		t.Errorf("all %v, train %v, val %v", b.All.IDs, b.RCE.IDs, b.Val.IDs)
	}
}
