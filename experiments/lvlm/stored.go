package lvlm

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"fulcrum/experiments/lvlm/store"
	"fulcrum/internal/list"
)

// Stored is a scorer that asks nothing twice: not what its store holds, nor what is being asked at this moment. Whatever was
// answered is in the store before it is returned, also when the rest of a call fails; what a server said is held back there until
// Settle vouches for it. It is safe for concurrent use.
type Stored struct {
	Notes []string // what a log should say of the model's opening

	scorer  Scorer
	store   *store.Store // nil: nothing is kept
	length  int          // of answers, in tokens
	batch   int          // prompts in one call of scorer
	images  bool         // prompts show theirs
	workers chan struct{}

	identity [sha256.Size]byte
	files    sync.Map // path → digest of the file's content
	mu       sync.Mutex
	flying   map[store.Key]*flight
	asked    atomic.Int64
	known    atomic.Int64
	recheck  recheck
}

// Counts is what a Stored has done.
type Counts struct {
	Asked   int64 // prompts that the model was asked
	Known   int64 // prompts that the store, or another question at the same moment, answered
	Again   int64 // answers that a server was asked for once more
	Strayed int64 // of them, those that were not the same
}

// newStored puts a store before a scorer, which is asked batch prompts at a time and workers times at once.
func newStored(scorer Scorer, kept *store.Store, opt Options, batch, workers int) (*Stored, error) {
	id := scorer.Identity()
	if id.Backend != "local" { // the program that serves the model may change while the numbers stay
		id.Engine, id.Revision = "", ""
	}
	text, err := json.Marshal(id)
	if id.Backend == "completions" {
		text = append(text, 2) // asked without penalties and without a second first token: other numbers than before
	}
	return &Stored{scorer: scorer, store: kept, length: opt.MaxNewTokens, batch: batch, images: opt.Images,
		workers:  make(chan struct{}, workers),
		identity: sha256.Sum256(text), flying: map[store.Key]*flight{},
		recheck: recheck{enough: leastAgain, least: map[bool][]question{}, noted: map[store.Key]bool{}}}, err
}

func (s *Stored) Identity() Identity {
	id := s.scorer.Identity()
	id.TextOnly = !s.images
	return id
}

// Counts returns what was asked and what was known so far.
func (s *Stored) Counts() Counts {
	r := &s.recheck
	r.mu.Lock()
	defer r.mu.Unlock()
	return Counts{s.asked.Load(), s.known.Load(), int64(r.scores + r.replies), int64(r.strayed + r.others)}
}

func (s *Stored) Close() error {
	err := s.scorer.Close()
	if s.store != nil {
		err = errors.Join(err, s.store.Close())
	}
	return err
}

// Score returns the likelihood of each prompt's Query.Answer.
func (s *Stored) Score(ctx context.Context, prompts []Prompt) ([]Likelihood, error) {
	for i, p := range prompts {
		if p.Query.Answer == "" {
			return nil, fmt.Errorf("prompt %d, query %d: it has no answer to score", i+1, p.Query.ID)
		}
	}
	packed, err := s.ask(ctx, true, prompts)
	out := make([]Likelihood, len(packed))
	for i := 0; i < len(packed) && err == nil; i++ {
		out[i], err = unpack(packed[i])
	}
	return out, err
}

// Answer returns the model's greedy answers. What older programs stored has no length of its prompt.
func (s *Stored) Answer(ctx context.Context, prompts []Prompt) ([]Reply, error) {
	open := slices.Clone(prompts)
	for i := range open {
		open[i].Query.Answer = ""
	}
	packed, err := s.ask(ctx, false, open)
	if err != nil {
		return nil, err
	}
	return list.Map(packed, readReply), nil
}

// name is what a store's key begins with: scores and greedy answers of some length are different questions.
func (s *Stored) name(score bool) string {
	if score {
		return "score"
	}
	return fmt.Sprintf("answer %d", s.length)
}

// said asks the model, and returns what the store keeps of its answers.
func (s *Stored) said(ctx context.Context, score bool, prompts []Prompt) (values [][]byte, err error) {
	if !score {
		answers, err := s.scorer.Answer(ctx, prompts)
		return list.Map(answers, func(a Reply) []byte { return fmt.Appendf(nil, "%s\x00%d", a.Text, a.Tokens) }), err
	}
	scores, err := s.scorer.Score(ctx, prompts)
	for i := 0; i < len(scores) && err == nil; i++ {
		if err = scores[i].check(); err != nil {
			return nil, fmt.Errorf("query %d: %w", prompts[min(i, len(prompts)-1)].Query.ID, err)
		}
		values = append(values, scores[i].pack())
	}
	return values, err
}

// readReply reads what the store keeps of a greedy answer.
func readReply(v []byte) Reply {
	if at := bytes.LastIndexByte(v, 0); at >= 0 {
		if n, err := strconv.Atoi(string(v[at+1:])); err == nil {
			return Reply{string(v[:at]), n}
		}
	}
	return Reply{Text: string(v)}
}

// seen returns the prompts as the model reads them.
func (s *Stored) seen(prompts []Prompt) []Prompt {
	if s.images {
		return prompts
	}
	return list.Map(prompts, Prompt.WithoutImages)
}

// flight is a question that the model is being asked.
type flight struct {
	done  chan struct{}
	value []byte // set before done is closed; nil: it failed
}

// ask answers prompts from the store, or from the same question under way elsewhere in this process, or from the model. After
// the first failure nothing new is asked; what is under way then is awaited and kept. A server is asked again for some of it.
func (s *Stored) ask(ctx context.Context, score bool, prompts []Prompt) ([][]byte, error) {
	prompts = s.seen(prompts)
	out, err := s.answers(ctx, score, prompts)
	const enough = 8 // so that other prompts were asked between
	if err == nil {
		err = s.again(ctx, enough)
	}
	if err != nil {
		return nil, s.refuse(err)
	}
	return out, nil
}

func (s *Stored) answers(ctx context.Context, score bool, prompts []Prompt) ([][]byte, error) {
	if err := s.recheck.found(); err != nil {
		return nil, err
	}
	keys := make([]store.Key, len(prompts))
	for i, p := range prompts {
		var err error
		if keys[i], err = s.key(s.name(score), p); err != nil {
			return nil, fmt.Errorf("prompt %d, query %d: %w", i+1, p.Query.ID, err)
		}
	}
	values := make(map[store.Key][]byte, len(prompts))
	asked := 0
	for { // again where another caller's question failed
		mine, others, err := s.claim(keys, values)
		if err != nil {
			return nil, err
		}
		asked += len(mine)
		if err := s.work(ctx, score, mine, keys, prompts, values); err != nil {
			return nil, err
		}
		for key, f := range others {
			select {
			case <-f.done:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if f.value != nil {
				values[key] = f.value
			}
		}
		out := list.Map(keys, func(key store.Key) []byte { return values[key] })
		if slices.ContainsFunc(out, func(value []byte) bool { return value == nil }) {
			continue
		}
		s.asked.Add(int64(asked))
		s.known.Add(int64(len(keys) - asked))
		for i, key := range keys { // what nobody has vouched for yet
			if s.store == nil || s.store.Held(key) {
				s.recheck.note(question{key, score, prompts[i], out[i]})
			}
		}
		return out, nil
	}
}

// claim fills values with what the store holds. It returns the first prompts of the keys that this caller is to ask for, and
// those that others ask for now.
func (s *Stored) claim(keys []store.Key, values map[store.Key][]byte) (mine []int, others map[store.Key]*flight, err error) {
	missing, err := s.recall(keys, values)
	if err == nil && len(missing) > 0 && s.store != nil {
		if err = s.store.Refresh(); err != nil {
			return nil, nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil { // under the lock: an answer is stored before its flight ends
		missing, err = s.recall(missing, values)
	}
	if err != nil {
		return nil, nil, err
	}
	first := make(map[store.Key]int, len(missing))
	for i, key := range slices.Backward(keys) {
		first[key] = i
	}
	others = map[store.Key]*flight{}
	for _, key := range missing {
		if f := s.flying[key]; f != nil {
			others[key] = f
			continue
		}
		s.flying[key] = &flight{done: make(chan struct{})}
		mine = append(mine, first[key])
	}
	return mine, others, nil
}

// recall fills values from the store and returns the keys that it does not hold, each once.
func (s *Stored) recall(keys []store.Key, values map[store.Key][]byte) (missing []store.Key, err error) {
	seen := make(map[store.Key]bool, len(keys))
	for _, key := range keys {
		if seen[key] || values[key] != nil {
			continue
		}
		seen[key] = true
		var value []byte
		ok := false
		if s.store != nil {
			if value, ok, err = s.store.Get(key); err != nil {
				return nil, err
			}
		}
		if !ok {
			missing = append(missing, key)
			continue
		}
		values[key] = append([]byte{}, value...) // an empty answer is one
	}
	return missing, nil
}

// work asks the model for prompts[mine], in batches, and puts what it says into the store and into values.
func (s *Stored) work(ctx context.Context, score bool, mine []int, keys []store.Key, prompts []Prompt,
	values map[store.Key][]byte) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for batch := range slices.Chunk(mine, s.batch) {
		var err error
		select {
		case s.workers <- struct{}{}:
		case <-ctx.Done():
			err = ctx.Err()
		}
		mu.Lock()
		failed = errors.Join(failed, err)
		stop := failed != nil
		mu.Unlock()
		if stop {
			if err == nil {
				<-s.workers
			}
			s.land(batch, keys, nil)
			continue
		}
		wg.Go(func() {
			defer func() { <-s.workers }()
			said, err := s.put(ctx, score, batch, keys, prompts)
			s.land(batch, keys, said)
			mu.Lock()
			defer mu.Unlock()
			failed = cmp.Or(failed, err)
			for i, value := range said {
				values[keys[batch[i]]] = value
			}
		})
	}
	wg.Wait()
	return failed
}

// put asks one batch and stores what the model says; no answers where anything failed.
func (s *Stored) put(ctx context.Context, score bool, batch []int, keys []store.Key, prompts []Prompt) ([][]byte, error) {
	said, err := s.said(ctx, score, list.Map(batch, func(j int) Prompt { return prompts[j] }))
	if err == nil && len(said) != len(batch) {
		err = fmt.Errorf("%d answers to %d prompts", len(said), len(batch))
	}
	for i := 0; i < len(said) && err == nil && s.store != nil; i++ {
		err = s.keep(keys[batch[i]], said[i])
	}
	if err != nil {
		return nil, err
	}
	return said, nil
}

// keep puts a value into the store; a server's is held back.
func (s *Stored) keep(key store.Key, value []byte) error {
	if s.recheck.server != nil {
		return s.store.Hold(key, value)
	}
	return s.store.Put(key, value)
}

// land ends the flights of a batch, with what was said or, nil, in failure.
func (s *Stored) land(batch []int, keys []store.Key, said [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, j := range batch {
		f := s.flying[keys[j]]
		if said != nil {
			f.value = said[i]
		}
		close(f.done)
		delete(s.flying, keys[j])
	}
}
