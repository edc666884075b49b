package beamdata

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// trajectories is an RL file of n queries, each with the same trajectories, one query a line.
func trajectories(n int, text string) string {
	var b strings.Builder
	b.WriteString(`{"_meta":{}`)
	for i := range n {
		fmt.Fprintf(&b, ",\n\"%d\":{\"candidate_pool_ids\":[15,16,17],\"pointer_candidates\":[%s]}", i, text)
	}
	return b.String() + "}"
}

// A score that the reward mode is made of must be there, and the key that was meant for it is named.
func TestAbsentScoreIsAnError(t *testing.T) {
	for _, tc := range []struct {
		name, trajectory string
		change           func(*Options)
		want             string // "" = it loads
	}{
		{"a misspelt one", `{"pointer":[15],"vqa_correct":1,"vqa_accuracy":1}`, nil,
			`query 0: pointer_candidates[0]: no vqa_acc_score, which data.reward.mode=hard_plus_soft wants: is it ` +
				`"vqa_accuracy", which is not read?`},
		{"only another number", `{"pointer":[15],"reward":1}`, nil, `no vqa_correct, which data.reward.mode=hard_plus_soft ` +
			`wants; "reward" is there and not read (data.reward.field=NAME`},
		{"that number named", `{"pointer":[15],"reward":1}`, func(o *Options) { o.Reward.Field = ptr("reward") }, ""},
		{"a misspelt field", `{"pointer":[15],"rewrd":1}`, func(o *Options) { o.Reward.Field = ptr("reward") },
			`no reward, which data.reward.field names: is it "rewrd", which is not read?`},
		{"only values of one's own", `{"pointer":[15],"gen_method":"uniform","vqa_eval_mode":"fall-back"}`,
			func(o *Options) { o.Reward.Field = ptr("reward") }, "no reward, which data.reward.field names"},
		{"a field that is a list", `{"pointer":[15],"reward":1}`, func(o *Options) { o.Reward.Field = ptr("pointer") },
			"data.reward.field=pointer: want a field with a number"},
		{"null behind a number", `{"pointer":[15],"mine":1,"reward":1},{"pointer":[16],"mine":1,"reward":null}`,
			func(o *Options) { o.Reward.Field = ptr("reward") }, "field names (missing or null; 1 before have it): leave"},
		{"null", `{"pointer":[15],"vqa_correct":null,"vqa_acc_score":1}`, nil, "no vqa_correct"},
		{"relevance of a right answer", `{"pointer":[15],"vqa_correct":1,"vqa_gt_prob":1}`,
			func(o *Options) { o.Reward.Mode = "hard_plus_gtprob_plus_rel" }, ""},
		{"relevance of a wrong answer", `{"pointer":[15],"vqa_correct":0,"vqa_gt_prob":1}`,
			func(o *Options) { o.Reward.Mode = "hard_plus_gtprob_plus_rel" }, "no vqa_rel_score"},
		{"quality", `{"pointer":[15],"vqa_correct":0}`, func(o *Options) { o.Reward.Mode, o.Reward.Alpha = "legacy", 1 }, "no beam_score"},
		{"quality by log-probability", `{"pointer":[15],"logprob_score":-1}`,
			func(o *Options) { o.Reward.Mode, o.Reward.Alpha, o.Reward.UseLogProb = "legacy", 1, true }, ""},
		{"as the reference reads", `{"pointer":[15],"vqa_correct":1}`, func(o *Options) { o.Compat = true }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := loadContent(t, trajectories(10, tc.trajectory), tc.change)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) ||
				err != nil && strings.Contains(err.Error(), `_mode=fall-back" is there`) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestRewardFieldWantsTrajectories(t *testing.T) {
	_, err := loadContent(t, tenLegacy, func(o *Options) { o.Reward.Field = ptr("reward") })
	if err == nil || !strings.Contains(err.Error(), "data.reward.field=reward: it names a number of the trajectories of an "+
		"RL file, and data.name=beams reads none here: take data=beams data.beams=FILE with ") {
		t.Error(err)
	}
}

// Keys that nothing reads are counted and named with the nearest that is read.
func TestUnknownKeys(t *testing.T) {
	b, err := loadContent(t, trajectories(10, `{"pointer":[15],"temperature":1,"beam_rank":0,"beam_scor":0.5,`+traj+`}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Unknown) != 1 || b.Unknown[0].String() != `beams.json: unknown key "beam_scor" in 10 trajectories, the first in `+
		`line 2: did you mean beam_score? It is not read` {
		t.Errorf("got %v", b.Unknown)
	}
	b, err = loadContent(t, trajectories(10, `{"pointer":[15],"gen_method":"uniform","vqa_eval_mode":"fall-back",`+traj+`}`), nil)
	if err != nil || len(b.Unknown) != 1 || b.Unknown[0].Nearest != "vqa_eval_mode=fallback" {
		t.Errorf("unknown values: got %v (%v)", b.Unknown, err)
	}
	b, err = loadContent(t, strings.ReplaceAll(tenLegacy, `"score_list"`, `"note":1,"score_list"`), nil)
	if err != nil || len(b.Unknown) != 1 || b.Unknown[0].Key != "note" || b.Unknown[0].Count != 10 || b.Unknown[0].Nearest != "" ||
		b.Unknown[0].First != 1 {
		t.Errorf("legacy: got %v (%v)", b.Unknown, err)
	}
}

// A gen_method of the file's own is kept, and no unknown key; so many names, and the rest together.
func TestOwnMethods(t *testing.T) {
	var text []string
	for i := range 40 {
		text = append(text, fmt.Sprintf(`{"pointer":[15],"gen_method":"own_%d",%s}`, i, traj))
	}
	b, err := loadContent(t, trajectories(10, strings.Join(append(text, text[1]), ",")), nil)
	if err != nil || len(b.Unknown) > 0 {
		t.Fatalf("%v, unknown %v", err, b.Unknown)
	}
	seen := map[string]int{}
	for g := range b.All.NumCandidates(0) {
		seen[b.All.Candidate(0, g).Method]++
	}
	if len(seen) != 28 || seen["own_0"] != 1 || seen["own_1"] != 2 || seen["own_26"] != 1 || seen["(other)"] != 13 {
		t.Errorf("got %v", seen)
	}
}

// Queries that hold nothing to learn from are counted with their place, and refused above a share.
func TestSkippedShare(t *testing.T) {
	text := trajectories(15, `{"pointer":[15],`+traj+`}`)
	text = strings.Replace(text, "{\"_meta\":{}", `{"q1":{}`, 1)
	text = strings.Replace(text, `"7":{"candidate_pool_ids":[15,16,17],"pointer_candidates":[{"pointer":[15],`+traj+`}]}`,
		`"7":{"candidate_pool_ids":[15,16,17],"pointer_candidates":[]}`, 1)
	_, err := loadContent(t, text, nil)
	want := "2 of 16 queries would be left out: 1 key without a number: a query's key is its id (the first: beams.json: line 1, query q1), " +
		"1 query without a usable trajectory (the first: beams.json: line 9, query 7); data.max_skipped_share=0.05 allows 5 %"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("error %v, want %s", err, want)
	}
	b, err := loadContent(t, text, func(o *Options) { o.MaxSkippedShare = 0.13 })
	if err != nil {
		t.Fatal(err)
	}
	if b.Counts["query_without_trajectories"] != 1 || b.Skipped["query_without_trajectories"] != "beams.json: line 9, query 7" {
		t.Errorf("counts %v at %v", b.Counts, b.Skipped)
	}
	for _, change := range []func(*Options){func(o *Options) { o.Compat = true }, func(o *Options) { o.QueriesOnly = true }} {
		if _, err := loadContent(t, text, change); err != nil {
			t.Errorf("the reference, and queries to answer, leave out what they like: %v", err)
		}
	}
}

func TestUnknownItems(t *testing.T) {
	b, err := loadContent(t, tenLegacy, func(o *Options) {
		text := `{"idx":1,"question":"q","anser":"a","tags":[]}` + "\n" + `{"idx":99,"question":"q","answer":"a"}`
		if err := os.WriteFile(filepath.Join(filepath.Dir(*o.Beams), "items.jsonl"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if b.Counts["item_outside_the_embeddings"] != 1 || len(b.Unknown) != 1 || b.Unknown[0].Key != "anser" ||
		b.Unknown[0].Nearest != "answer" {
		t.Errorf("counts %v, unknown %v", b.Counts, b.Unknown)
	}
}
