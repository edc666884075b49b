package lvlm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"fulcrum/experiments/lvlm/store"
	"fulcrum/internal/list"
)

// What a server may answer when it is asked again. Half precision rounds logits to 1/8 between 16 and 32, and batches of changing
// sizes round otherwise, so that some tokens stray; noise that is made up strays in all of them.
const (
	far       = 4    // probe's tolerances: no token of an answer strays as far
	scoreOf   = 20   // of so many scores one may stray beyond the tolerance, and one in any job
	replyOf   = 10   // of so many greedy answers one may be another, and one in any job
	meanApart = 0.04 // nats: of all tokens asked again, on the mean

	leastAgain = 20 // answers that are asked again at least, all where there are fewer
	enoughMean = 10 // scores whose mean tells something, at the end of a job
	earlyMean  = 100
	here       = 10 // prompts that the model's folder scores too
)

// recheck asks a server a second time: for a sample, and for what a search decides by. Later, past the store, between other prompts
// and in another order: the probe sees a server at rest, and what is wrong under load shows here.
type recheck struct {
	server *server                // nil: the model runs here, and nothing is asked again
	enough int                    // leastAgain
	local  func() (Scorer, error) // the model, where its folder is here; nil: it is not

	mu    sync.Mutex
	least map[bool][]question // scores and greedy answers with the smallest digests of all: a fair sample however long the job is
	noted map[store.Key]bool
	open  []question // noted, and not asked again yet
	lie   error      // what the server was found to do

	scores, replies, strayed, others int // asked again; of them, beyond the tolerance, and with another text
	tokens, apart                    float64
	worst                            float64 // tolerances between two answers
	worstLine, otherLine             string  // both answers
}

// question is a prompt with what the server said.
type question struct {
	key   store.Key
	score bool // and not a greedy answer
	p     Prompt
	value []byte
}

// note keeps a question that is to be asked again: a hundredth of all, and those with the smallest digests so far. The digest decides,
// so that a job that is started again takes the same hundredth.
func (r *recheck) note(q question) {
	if r.server == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	least := r.least[q.score]
	at, known := slices.BinarySearchFunc(least, q, func(a, b question) int { return bytes.Compare(a.key[16:], b.key[16:]) })
	if known {
		return
	}
	if at < r.enough {
		least = slices.Insert(least, at, q)
		r.least[q.score] = least[:min(len(least), r.enough)]
	}
	if at < r.enough || binary.BigEndian.Uint64(q.key[16:]) < 1<<63/50 { // a hundredth of all keys, by chance
		r.ask(q)
	}
}

// found returns what the server was found to do.
func (r *recheck) found() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lie
}

// ask puts a question down to be asked again, once. The caller holds the lock.
func (r *recheck) ask(q question) {
	if !r.noted[q.key] {
		r.noted[q.key] = true
		r.open = append(r.open, q)
	}
}

// Doubt has a server asked again for answers that decide something, such as who goes on in a search. What was vouched for before is
// not asked again.
func (s *Stored) Doubt(prompts []Prompt) error {
	r := &s.recheck
	if r.server == nil || s.store == nil {
		return nil
	}
	prompts = s.seen(prompts)
	for i, p := range prompts {
		q := question{score: p.Query.Answer != "", p: p}
		var err error
		if q.key, err = s.key(s.name(q.score), p); err != nil {
			return fmt.Errorf("prompt %d, query %d: %w", i+1, p.Query.ID, err)
		}
		if !s.store.Held(q.key) {
			continue
		}
		if q.value, _, err = s.store.Get(q.key); err != nil {
			return err
		}
		r.mu.Lock()
		r.ask(q)
		r.mu.Unlock()
	}
	return nil
}

// Settle asks again for what has not been asked again yet, and has some prompts scored by the model's folder: the end of a job, before
// its results are written. Only then does the store take what the server said. note says what the folder showed.
func (s *Stored) Settle(ctx context.Context) (note string, err error) {
	r := &s.recheck
	if r.server == nil {
		return "", nil
	}
	if err := s.again(ctx, 1); err != nil {
		return "", err
	}
	if err = r.found(); err == nil {
		r.mu.Lock()
		err = r.verdict(true)
		r.mu.Unlock()
	}
	if err == nil {
		note, err = s.scoredHere(ctx)
	}
	if err != nil {
		return "", s.refuse(err)
	}
	if s.store != nil {
		err = s.store.Commit()
	}
	return note, err
}

// refuse ends the work with a server that was found to lie: the store takes nothing of what it said.
func (s *Stored) refuse(err error) error {
	if _, lied := errors.AsType[lie](err); !lied || s.recheck.server == nil {
		return err
	}
	s.recheck.mu.Lock()
	defer s.recheck.mu.Unlock()
	s.recheck.lie = cmp.Or(s.recheck.lie, err)
	if s.store != nil {
		if bad := s.store.Discard(); bad != nil {
			return fmt.Errorf("%w (%w)", err, bad)
		}
	}
	return err
}

// lie is an answer that no honest server gives.
type lie struct{ error }

func (l lie) Unwrap() error { return l.error }

const taken = "nothing that it answered in this job is taken into the store"

// again asks again for all that is kept, the newest first, once there are so many.
func (s *Stored) again(ctx context.Context, enough int) error {
	r := &s.recheck
	r.mu.Lock()
	var open []question
	if len(r.open) >= enough {
		open, r.open = r.open, nil
	}
	r.mu.Unlock()
	errs := make(chan error, len(open))
	for _, before := range slices.Backward(open) {
		go func() { errs <- s.compare(ctx, before) }()
	}
	var first error
	for range open {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// compare asks one question again.
func (s *Stored) compare(ctx context.Context, q question) error {
	select {
	case s.workers <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.workers }()
	now, err := s.said(ctx, q.score, []Prompt{q.p})
	if err == nil {
		err = s.recheck.judge(q, now[0])
	}
	return s.refuse(err)
}

// judge holds a second answer against the first one.
func (r *recheck) judge(q question, now []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !q.score {
		r.replies++
		first, second := readReply(q.value), readReply(now)
		if first.Text == second.Text {
			return nil
		}
		r.others++
		r.otherLine = fmt.Sprintf("%s: it answered %q and answers %q when asked again later", q.name(), first.Text, second.Text)
		return r.verdict(false)
	}
	before, err := unpack(q.value)
	if err != nil {
		return err
	}
	again, err := unpack(now)
	if err != nil {
		return err
	}
	r.scores++
	units := before.apart(again)
	if units > r.worst {
		r.worst, r.worstLine = units, fmt.Sprintf("%s: its answer %q had %.4v and has %.4v when asked again later", q.name(),
			q.p.Query.Answer, before.LogProbs, again.LogProbs)
	}
	if units > 1 {
		r.strayed++
	}
	if len(before.LogProbs) == len(again.LogProbs) {
		for i, v := range before.LogProbs {
			r.tokens++
			r.apart += math.Abs(v - again.LogProbs[i])
		}
	}
	return r.verdict(false)
}

// verdict is what all that was asked again says. Before the end of a job it waits for a few more. The caller holds the lock.
func (r *recheck) verdict(end bool) error {
	few, enough := 2, earlyMean
	if end {
		few, enough = 1, enoughMean
	}
	switch {
	case r.worst > far, r.strayed > few && r.strayed*scoreOf > r.scores:
		return r.named(fmt.Errorf("%s (%d of %d prompts asked again differ): %s", r.worstLine, r.strayed, r.scores, cached))
	case r.others > few && r.others*replyOf > r.replies:
		return r.named(fmt.Errorf("%s (%d of %d answers asked again are others): %s", r.otherLine, r.others, r.replies, cached))
	case r.scores >= enough && r.apart > meanApart*r.tokens:
		return r.named(fmt.Errorf("%s; the %.0f tokens asked again differ by %.3f nats on the mean, want %v at most: %s, or serve in float32",
			r.worstLine, r.tokens, r.apart/r.tokens, meanApart, cached))
	}
	return nil
}

func (r *recheck) named(err error) error {
	return lie{r.server.named(fmt.Errorf("%s: %w; %s", r.server.id.Engine, err, taken))}
}

// name says which prompt it is.
func (q question) name() string {
	shots := list.Map(q.p.Shots, func(e Example) string { return fmt.Sprint(e.ID) })
	return fmt.Sprintf("query %d after demonstrations [%s]", q.p.Query.ID, strings.Join(shots, " "))
}

// scoredHere has the model's folder score a fair sample of the prompts too. The server may compute in another precision: a token of
// one answer in five may stray beyond the probe's tolerance, and none far beyond it.
func (s *Stored) scoredHere(ctx context.Context) (note string, err error) {
	r := &s.recheck
	r.mu.Lock()
	sample := slices.Clone(r.least[true][:min(len(r.least[true]), here)])
	r.mu.Unlock()
	if r.local == nil || len(sample) == 0 {
		return "", nil
	}
	model, err := r.local()
	if err != nil {
		return fmt.Sprintf("no prompt was scored here too: %v", err), nil
	}
	defer model.Close()
	strayed, most := 0, 0.0
	for _, q := range sample {
		before, err := unpack(q.value)
		if err != nil {
			return "", err
		}
		own, err := model.Score(ctx, []Prompt{q.p})
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if err != nil {
			return fmt.Sprintf("%s was not scored here too: %v", q.name(), err), nil
		}
		units := before.apart(own[0])
		if units > 1 {
			strayed++
		}
		if units > far || strayed*5 > len(sample) {
			return "", r.named(fmt.Errorf("%s: its answer %q has %.4v there and %.4v by the model in lvlm.path: other weights, another picture, "+
				"or another prompt", q.name(), q.p.Query.Answer, before.LogProbs, own[0].LogProbs))
		}
		for i, v := range before.LogProbs {
			most = max(most, math.Abs(v-own[0].LogProbs[i]))
		}
	}
	return fmt.Sprintf("%d prompts were scored by the model in lvlm.path too: no token differs by more than %.2g nats", len(sample), most), nil
}
