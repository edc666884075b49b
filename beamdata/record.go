package beamdata

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"fulcrum/beamdata/jsonstream"
	"fulcrum/beamdata/keycheck"
	"fulcrum/internal/option"
	"fulcrum/internal/registry"
	"fulcrum/internal/rng"
	"fulcrum/rewardutil/group"
	"fulcrum/rewardutil/recorded"
)

// record is one entry of a beam file, legacy or RL, as written. It is reused from entry to entry:
// readers copy what they keep.
type record struct {
	key string
	id  int64 // the key as a number

	line int // of the key

	image    int64 // query.image_id, of one that is no number a hash
	pictured bool  // it is there

	hasBeams, hasScores bool // legacy: id_list, score_list
	beams               []ids
	scores              []float64

	hasPool, hasTrajectories bool // RL: candidate_pool_ids, pointer_candidates
	pool                     ids
	trajectories             []trajectory

	arena []int64 // the numbers behind every ids
}

// ids is a list of numbers in the arena; absent and null lists differ from empty ones.
type ids struct {
	from, to int
	present  bool
}

func (r *record) place() place { return place{r.line, r.key} }

func (r *record) ints(v ids) []int64 { return r.arena[v.from:v.to] }

// trajectory is one entry of pointer_candidates.
type trajectory struct {
	pointer, global, pos ids // pointer, pointer_global, pointer_pos
	scores               recorded.Trajectory
	reward               float64 // of data.reward.field
	hasReward            bool
	method               uint8 // index into the parser's methods
	failed               bool  // eval_failed
	fallback, evalError  bool  // vqa_eval_mode
}

type parser struct {
	s           *jsonstream.Scanner
	rec         record
	queriesOnly bool   // scores are not looked at, trajectories only where the pool depends on them
	finite      bool   // scores that are not finite are refused
	rewardField string // data.reward.field; "" = none
	keysNotIDs  int    // keys that are neither numbers nor _meta
	notID       place  // of the first of them
	allKeys     bool   // compat: keep them all
	keys        []string

	recordKeys, trajectoryKeys *keycheck.Keys
	modes                      map[string]bool // vqa_eval_mode → whether it is nearly one that is read
	methods                    *methodNames
}

type place struct {
	line int
	key  string
}

// recordKeys are the keys of a query that are read, those that generators of beam files write besides, and what other programs, and
// people, call the former.
func recordKeys(file string) *keycheck.Keys {
	return keycheck.New(file, "record", []string{"id_list", "score_list", "candidate_pool_ids", "pointer_candidates"},
		[]string{"query", "id", "meta"}).
		Also(map[string]string{"candidates": "pointer_candidates", "trajectories": "pointer_candidates", "pointers": "pointer_candidates",
			"candidate_ids": "candidate_pool_ids", "pool": "candidate_pool_ids", "pool_ids": "candidate_pool_ids",
			"ids": "id_list", "beams": "id_list", "beam_ids": "id_list", "scores": "score_list", "rewards": "score_list"})
}

// trajectoryKeys are likewise those of a trajectory; reward is data.reward.field, "" where it has none.
func trajectoryKeys(file, reward string) *keycheck.Keys {
	read := []string{"pointer", "pointer_global", "pointer_pos", "gen_method", "vqa_eval_mode", "eval_failed",
		"vqa_correct", "vqa_acc_score", "vqa_gt_prob", "vqa_rel_score", "beam_score", "logprob_score",
		"vqa_eval_mode=fallback", "vqa_eval_mode=error"} // a misspelling of these two is named like an unknown key
	if reward != "" {
		read = append(read, reward)
	}
	return keycheck.New(file, "trajectory", read, []string{"beam_rank", "temperature", "similarity_score", "vqa_raw_generation",
		"vqa_pred_answer", "vqa_prompt_text", "vqa_prompt_len", "vqa_rel_token_f1", "vqa_rel_edit_sim", "eval_split_used"}).
		Also(map[string]string{"vqa_accuracy": "vqa_acc_score", "accuracy": "vqa_acc_score", "acc_score": "vqa_acc_score",
			"correct": "vqa_correct", "gt_prob": "vqa_gt_prob", "rel_score": "vqa_rel_score", "logprob": "logprob_score",
			"ids": "pointer", "positions": "pointer_pos", "pos": "pointer_pos"})
}

// misspelt reports whether a vqa_eval_mode is nearly fallback or error. Files have a few modes, so each is looked at once.
func (p *parser) misspelt(mode []byte) bool {
	near, seen := p.modes[string(mode)]
	if !seen && len(p.modes) < 100 {
		_, near = registry.Nearest(string(mode), []string{"fallback", "error"})
		p.modes[string(mode)] = near
	}
	return near
}

// newParser reads the beam file called name in messages.
func newParser(r io.Reader, name string, opt Options) *parser {
	field := option.Or(opt.Reward.Field, "")
	return &parser{s: jsonstream.New(r), modes: map[string]bool{}, methods: knownMethods(), queriesOnly: opt.QueriesOnly,
		finite: !opt.Compat, allKeys: opt.Compat, rewardField: field,
		recordKeys: recordKeys(name), trajectoryKeys: trajectoryKeys(name, field)}
}

// noQuery says what a file holds that holds no query.
func (p *parser) noQuery() error {
	if p.keysNotIDs == 0 {
		return errors.New("no query: the object is empty, want queries by id, {\"17\": {…}}")
	}
	return fmt.Errorf("line %d: no query: no key of the object is a number: found %.40q, want the query's id, its row in the embedding "+
		"table, as in \"17\"", p.notID.line, p.notID.key)
}

// each reads the file, calling entry for every key that is a number. _meta is skipped; other keys are counted.
func (p *parser) each(entry func(*record) error) error {
	switch c := p.s.Peek(); c {
	case '{':
	case 0:
		return p.s.Errorf("the file is empty")
	default:
		what := map[byte]string{0xff: " (UTF-16: save the file as UTF-8)", 0x1f: " (the file is compressed: unpack it)",
			0x93: " (the file is a table, .npy: data.embeddings=FILE)", 'P': " (a zip archive; a table, .pt, is data.embeddings=FILE)",
			'/': " (JSON has no comments)"}[c]
		return p.s.Errorf("found %s%s, want a JSON object of queries by id, {\"17\": {…}}; conversations are read with data=conversations",
			jsonstream.Found(c), what)
	}
	err := p.s.Object(func(key []byte) error {
		if string(key) == "_meta" {
			return p.s.Skip()
		}
		if p.allKeys {
			p.keys = append(p.keys, string(key))
		}
		id, err := strconv.ParseInt(string(key), 10, 64)
		if err != nil {
			if p.keysNotIDs++; p.keysNotIDs == 1 {
				p.notID = place{p.s.Line(), string(key)}
			}
			return p.s.Skip()
		}
		p.rec = record{key: string(key), id: id, line: p.s.Line(), beams: p.rec.beams[:0], scores: p.rec.scores[:0],
			trajectories: p.rec.trajectories[:0], arena: p.rec.arena[:0]}
		if err := p.record(); err != nil {
			return fmt.Errorf("query %s: %w", p.rec.key, err)
		}
		if err := entry(&p.rec); err != nil {
			return fmt.Errorf("query %s: %w", p.rec.key, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return p.s.Done()
}

func (p *parser) record() error {
	r, s := &p.rec, p.s
	return s.Object(func(key []byte) error {
		name, has := r.known(key)
		if has == nil {
			if p.recordKeys.See(key, s.Line); string(key) == "query" {
				return p.about()
			}
		}
		if null, err := s.Null(); null || err != nil {
			return err
		}
		if has == nil {
			return s.Skip()
		}
		if *has {
			return s.Errorf("%s appears twice", name)
		}
		*has = true
		switch name {
		case "id_list":
			return s.List(func() error {
				v, err := p.intList("id_list[%d]", len(r.beams))
				r.beams = append(r.beams, v)
				return err
			})
		case "score_list":
			if p.queriesOnly {
				return s.Skip()
			}
			return s.List(func() error {
				v, err := s.Number()
				if err != nil {
					return fmt.Errorf("score_list[%d]: %w", len(r.scores), err)
				}
				if err := group.CheckReward(v); p.finite && err != nil {
					return fmt.Errorf("score_list[%d] = %v, %w", len(r.scores), v, err)
				}
				r.scores = append(r.scores, v)
				return nil
			})
		case "candidate_pool_ids":
			var err error
			r.pool, err = p.intList("candidate_pool_ids", -1)
			return err
		default: // pointer_candidates
			if p.queriesOnly && r.hasPool {
				return s.Skip()
			}
			return s.List(func() error {
				t, err := p.trajectory()
				if err != nil {
					return fmt.Errorf("pointer_candidates[%d]: %w", len(r.trajectories), err)
				}
				r.trajectories = append(r.trajectories, t)
				return nil
			})
		}
	})
}

// picture returns the number of a picture, or one made of its file's name, and whether it is known: tables write nothing in several ways.
func picture(text string) (int64, bool) {
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, n >= 0
	}
	const whole = 1 << 53 // float64 has all whole numbers below
	if f, err := strconv.ParseFloat(text, 64); err == nil && (f != f || f < 0 || f > math.MaxFloat64) {
		return 0, false
	} else if err == nil && f == math.Trunc(f) && f < whole {
		return int64(f), true
	}
	if lower := strings.ToLower(text); lower == "" || lower == "none" || lower == "null" {
		return 0, false
	}
	return int64(rng.Key(0, text)), true
}

// about reads what "query" says, which the reference writes and does not read: the query whose key it stands under, and its picture.
func (p *parser) about() error {
	if p.s.Peek() != '{' {
		return p.s.Skip()
	}
	return p.s.Object(func(key []byte) error {
		image := string(key) == "image_id"
		if !image && (string(key) != "query_id" || p.allKeys) || strings.IndexByte("{[tf", p.s.Peek()) >= 0 {
			return p.s.Skip()
		}
		text, err := p.s.Scalar()
		id, not := strconv.ParseInt(text, 10, 64)
		switch {
		case image:
			p.rec.image, p.rec.pictured = picture(text)
		case !image && err == nil && not == nil && id != p.rec.id:
			err = p.s.Errorf("query.query_id is %d: want that of the key, the query's row in data.embeddings", id)
		}
		return err
	})
}

// known returns a key that is read, as a constant that outlives the scanner's buffer, and where it is noted; nil for any other.
func (r *record) known(key []byte) (name string, has *bool) {
	switch string(key) {
	case "id_list":
		return "id_list", &r.hasBeams
	case "score_list":
		return "score_list", &r.hasScores
	case "candidate_pool_ids":
		return "candidate_pool_ids", &r.hasPool
	case "pointer_candidates":
		return "pointer_candidates", &r.hasTrajectories
	}
	return "", nil
}

// scoreKeys are the recorded scores that a trajectory may have, by their keys.
var scoreKeys = [...]struct {
	key   string
	field recorded.Field
}{{"vqa_correct", recorded.Correct}, {"vqa_acc_score", recorded.AccScore}, {"vqa_gt_prob", recorded.GTProb},
	{"vqa_rel_score", recorded.RelScore}, {"beam_score", recorded.BeamScore}, {"logprob_score", recorded.LogProb}}

func scoreField(key []byte) (recorded.Field, string) {
	for _, s := range scoreKeys {
		if string(key) == s.key {
			return s.field, s.key
		}
	}
	return 0, ""
}

func (p *parser) trajectory() (trajectory, error) {
	var t trajectory
	s := p.s
	err := s.Object(func(key []byte) error {
		field, name := scoreField(key)
		var list *ids
		var kind byte
		reward := p.rewardField != "" && string(key) == p.rewardField
		switch string(key) {
		case "pointer":
			list, name = &t.pointer, "pointer"
		case "pointer_global":
			list, name = &t.global, "pointer_global"
		case "pointer_pos":
			list, name = &t.pos, "pointer_pos"
		case "gen_method":
			kind = 'g'
		case "vqa_eval_mode":
			kind = 'm'
		case "eval_failed":
			kind = 'f'
		}
		if reward && (list != nil || kind != 0) {
			return fmt.Errorf("data.reward.field=%s: want a field with a number", p.rewardField)
		}
		if field == 0 && list == nil && kind == 0 && !reward {
			p.trajectoryKeys.See(key, s.Line)
			return s.Skip()
		}
		if null, err := s.Null(); null || err != nil {
			return err
		}
		switch {
		case list != nil:
			v, err := p.intList(name, -1)
			*list = v
			return err
		case field != 0 || reward:
			if p.queriesOnly {
				return s.Skip()
			}
			if field == 0 {
				name = p.rewardField
			}
			v, err := p.score()
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if err := group.CheckReward(v); p.finite && err != nil {
				return fmt.Errorf("%s = %v, %w", name, v, err)
			}
			if reward {
				t.reward, t.hasReward = v, true
			}
			t.scores.Set(field, v)
			return nil
		case kind == 'f':
			failed, err := p.score() // a bool, or 0 and 1
			t.failed = failed != 0
			return err
		}
		return p.word(&t, kind)
	})
	return t, err
}

// word reads gen_method (kind g) or vqa_eval_mode (kind m).
func (p *parser) word(t *trajectory, kind byte) error {
	v, err := p.s.Text()
	if err != nil {
		return err
	}
	switch {
	case kind == 'g':
		t.method = p.methods.index(v)
	case string(v) == "fallback":
		t.fallback = true
	case string(v) == "error":
		t.evalError = true
	default: // how an answer was scored: any word but those two, and their misspellings
		if p.misspelt(v) {
			p.trajectoryKeys.See(fmt.Appendf(nil, "vqa_eval_mode=%s", v), p.s.Line)
		}
	}
	return nil
}

// methodNames are the values of gen_method by their index: those of knownMethods, then a file's own in its order.
type methodNames []string

// knownMethods are "" (not said) and those of the reference's generators.
func knownMethods() *methodNames { return &methodNames{"", "beam", "sample", "retrieval", "random"} }

// index returns that of a name, which it adds if it is new. Names beyond the first 32 are "(other)".
func (m *methodNames) index(name []byte) uint8 {
	for i, n := range *m {
		if string(name) == n {
			return uint8(i)
		}
	}
	const most = 32
	switch n := len(*m); {
	case n < most:
		*m = append(*m, string(name))
	case n == most:
		*m = append(*m, "(other)")
	}
	return uint8(len(*m) - 1)
}

// score reads a number, or a bool as 0 or 1.
func (p *parser) score() (float64, error) {
	if c := p.s.Peek(); c == 't' || c == 'f' {
		b, err := p.s.Boolean()
		if b {
			return 1, err
		}
		return 0, err
	}
	return p.s.Number()
}

// intList reads a list of integers into the arena; what and i name it in errors.
func (p *parser) intList(what string, i int) (ids, error) {
	r := &p.rec
	v := ids{from: len(r.arena), present: true}
	err := p.s.List(func() error {
		x, err := p.s.Integer()
		r.arena = append(r.arena, x)
		return err
	})
	v.to = len(r.arena)
	if err != nil {
		if i >= 0 {
			what = fmt.Sprintf(what, i)
		}
		return v, fmt.Errorf("%s: %w", what, err)
	}
	return v, nil
}
