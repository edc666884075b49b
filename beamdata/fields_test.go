package beamdata

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/tensorfile"
)

// everyField is a trajectory as the reference's K=64 generator writes it, all documented fields present.
const everyField = `{"pointer":[2,0],"pointer_global":[9,5],"pointer_pos":[2,0],"gen_method":"retrieval","beam_rank":3,
		"beam_score":0.4,"logprob_score":-3.5,
	"temperature":0.7,"similarity_score":0.81,"vqa_raw_generation":"two dogs Question: \"why\"\n","vqa_pred_answer":"2 dogs",
		"vqa_prompt_text":"…{[\"",
	"vqa_prompt_len":812,"vqa_correct":1,"vqa_acc_score":0.6,"vqa_gt_prob":0.31,"vqa_rel_token_f1":0.5,"vqa_rel_edit_sim":0.7,
		"vqa_rel_score":0.7,
	"vqa_eval_mode":"vqaEval","eval_split_used":"train","eval_failed":false}`

const queryField = `"query":{"query_id":7,"question_id":11,"image_id":5,"question":"How ` +
	`many?","gt_answers_raw":["2","two"],"gt_answers_norm":["2","2"]},`

// Fields that training does not use change nothing, whatever they hold; a null field is an absent one.
func TestEveryField(t *testing.T) {
	const want = "7 pool=[5 3 9] picks=[9 5] rewards=[1.6]"
	record := func(trajectory string) string {
		return `{"_meta":{"model":"x"},"7":{` + queryField + `"candidate_pool_ids":[5,3,9],"pointer_candidates":[` + trajectory + `]}}`
	}
	f, err := readTestBeams(t, record(everyField), testOptions())
	if err != nil || describe(f) != want {
		t.Fatalf("%v, %v; want %s", describe(f), err, want)
	}
	s := f.scores[0]
	if s.Correct != 1 || s.AccScore != 0.6 || s.GTProb != 0.31 || s.RelScore != 0.7 || s.BeamScore != 0.4 || s.LogProb != -3.5 {
		t.Errorf("scores %+v", s)
	}
	if method := (*f.names)[f.method[0]]; method != "retrieval" {
		t.Errorf("gen_method %q, want retrieval", method)
	}
	for _, field := range []string{"beam_rank", "temperature", "similarity_score", "vqa_raw_generation", "vqa_pred_answer",
		"vqa_prompt_text", "vqa_prompt_len",
		"vqa_rel_token_f1", "vqa_rel_edit_sim", "eval_split_used", "pointer_pos", "gen_method", "vqa_eval_mode", "eval_failed"} {
		at := strings.Index(everyField, `"`+field+`":`) + len(field) + 3
		end := at + strings.IndexAny(everyField[at:], ",}")
		if everyField[at] == '[' {
			end = at + strings.Index(everyField[at:], "]") + 1
		}
		if field == "vqa_raw_generation" || field == "vqa_prompt_text" {
			continue // text with commas and braces in it
		}
		if f, err := readTestBeams(t, record(everyField[:at]+"null"+everyField[end:]), testOptions()); err != nil || describe(f) != want {
			t.Errorf("%s is null: %v, want %s", field, err, want)
		}
	}
}

func TestEvalFailedIsTruth(t *testing.T) {
	for value, kept := range map[string]int{"true": 0, "false": 1, "1": 0, "0": 1, "null": 1} {
		f, err := readTestBeams(t, `{"7":{"candidate_pool_ids":[5,3],"pointer_candidates":[{"pointer":[5,3],"eval_failed":`+value+`,`+traj+
			`}]}}`, testOptions())
		if err != nil || len(f.ids) != kept || f.counts["trajectory_eval_failed"] != 1-kept {
			t.Errorf("eval_failed=%s: %v, %v, want %d kept", value, f, err, kept)
		}
	}
}

// Each trajectory says itself whether its pointer is local; one that can only be misread is refused.
func TestMixedPointers(t *testing.T) {
	rl := func(trajectories string) string {
		return `{"7":{"candidate_pool_ids":[50,30,90],"pointer_candidates":[` + trajectories + `]}}`
	}
	const local, global = `{"pointer":[2,0],"pointer_global":[90,50],` + traj + `}`, `{"pointer":[90,50],` + traj + `}`
	for _, order := range []string{local + "," + global, global + "," + local} {
		f, err := readTestBeams(t, rl(order), testOptions())
		if err != nil || describe(f) != "7 pool=[50 30 90] picks=[90 50 90 50] rewards=[1.6 1.6]" {
			t.Errorf("%s: %v", order, err)
		}
	}
	for _, tc := range []struct{ name, trajectory, want string }{
		{"positions in the place of ids", `{"pointer":[2,0],` + traj + `}`, "pointer[0] = 2 is not among the 3 candidate_pool_ids"},
		{"ids in the place of positions", `{"pointer":[90,50],"pointer_global":[90,50],` + traj + `}`,
			"pointer[0] = 90 outside pool of 3 candidates (0..2)"},
		{"ids in pointer_pos", `{"pointer_pos":[90,50],` + traj + `}`, "pointer_pos[0] = 90 outside pool"},
		{"lists of different lengths", `{"pointer":[2],"pointer_global":[90,50],` + traj + `}`, "pointer_global says [90 50]"},
		{"an empty pointer_global", `{"pointer":[2,0],"pointer_global":[],` + traj + `}`, "pointer_global says []"},
		{"a global id outside the pool", `{"pointer_global":[90,51],` + traj + `}`, "= 51 is not among the 3 candidate_pool_ids"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := readTestBeams(t, rl(global+","+tc.trajectory), testOptions()); err == nil || !strings.Contains(err.Error(),
				tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// Pools of any size stand side by side in one file, in their own order; cut, they lose what needs more.
func TestPoolsOfAnySize(t *testing.T) {
	sizes := []int{2, 3, 64, 65, 1500}
	var b strings.Builder
	for q, size := range sizes {
		ids := make([]string, size)
		for k := range ids {
			ids[k] = fmt.Sprint(2000 - k) // descending: order matters
		}
		fmt.Fprintf(&b, `,"%d":{"candidate_pool_ids":[%s],"pointer_candidates":[{"pointer":[%d,0],"pointer_global":[%d,2000],`+
			`%s},{"pointer":[0,1],"pointer_global":[2000,1999],%s}]}`,
			q, strings.Join(ids, ","), size-1, 2000-size+1, traj, traj)
	}
	dir := t.TempDir()
	opt := testOptions()
	opt.Beams, opt.Embeddings, opt.TrainRatio = ptr(filepath.Join(dir, "beams.json")), ptr(filepath.Join(dir, "e.safetensors")), 1
	write(t, *opt.Beams, "{"+b.String()[1:]+"}")
	table := tensorfile.FromFloat32s("e", []int{2001, 1}, make([]float32, 2001))
	if err := tensorfile.WriteSafetensors(*opt.Embeddings, []tensorfile.Tensor{table}, nil); err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{0, 64} {
		opt.PoolSize = nil
		if cut > 0 {
			opt.PoolSize = &cut
		}
		bundle, err := Load(opt)
		if err != nil {
			t.Fatal(err)
		}
		dropped := 0
		for q, size := range sizes {
			want, candidates := size, 2
			if cut > 0 && size > cut {
				want, candidates = cut, 1
				dropped++
			}
			pool := bundle.RCE.Pool(q)
			if len(pool) != want || pool[0] != 2000 || pool[want-1] != int32(2000-want+1) || bundle.RCE.NumCandidates(q) != candidates {
				t.Errorf("cut %d: pool of %d has %d from %d, %d candidates; want %d and %d", cut, size, len(pool), pool[0],
					bundle.RCE.NumCandidates(q), want, candidates)
			}
			if got := bundle.RCE.Candidate(q, 0).Positions; candidates == 2 && (got[0] != int32(size-1) || got[1] != 0) {
				t.Errorf("pool of %d: positions %v", size, got)
			}
		}
		if got := bundle.Counts["candidate_behind_pool_cut"]; got != dropped {
			t.Errorf("cut %d: %d candidates counted as dropped, want %d", cut, got, dropped)
		}
	}
}

// The first query decides the format; non-empty trajectories make it RL whatever else is there.
func TestFormatOf(t *testing.T) {
	for content, want := range map[string]string{
		`{"_meta":{},"x":{},"3":{"id_list":[[1,3]],"score_list":[NaN]}`:                                     "legacy",
		`{"3":{"pointer_candidates":[{"pointer":[1]}]}, oops`:                                               "rl",
		`{"3":{"id_list":[[1,3]],"score_list":[1],"pointer_candidates":[{"pointer":[1]}]},`:                 "rl",
		`{"3":{"id_list":[[1,3]],"score_list":[1],"pointer_candidates":[]},"4":{"pointer_candidates":[{}]}`: "legacy",
		`{"3":{"candidate_pool_ids":[1]}}`:                                                                  "rl",
		`{"3":{"id_list":[[1,3]]}}`:                                                                         "id_list without score_list",
		`{"_meta":{}}`:                                                                                      "no query",
		`[]`:                                                                                                "want a JSON object",
	} {
		path := filepath.Join(t.TempDir(), "b.json")
		os.WriteFile(path, []byte(content), 0o644)
		got, err := FormatOf(path)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", content, got, want)
		}
	}
}
