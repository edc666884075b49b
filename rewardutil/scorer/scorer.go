// Package scorer asks a program of the user's for scores, over HTTP or as a command.
package scorer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/secret"
	"fulcrum/internal/webapi"
	"fulcrum/rewardutil/group"
)

// ScorerOptions configures a user's program that scores completions: an HTTP address or a command, never both.
// Without either nothing is started and no network is touched.
//
// Each item is the JSON object
//
//	{"prompt", "completion", "answer", "reference", "answers", "images", "meta", "points", "positive_points", "boxes"}
//
// without its empty fields; answer is the judged part of the completion (Answer). images are absolute paths, and so are
// the texts in meta that name a file under the data's folder.
//
//	url      POST {"items": [item, …]} → {"scores": [number, …]}, or the list alone
//	command  one item a line on stdin → one line a score on stdout: a number, or {"score": number}
//
// Scores are remembered by the content of the item, so equal items have equal scores even if the scorer is not deterministic.
type Options struct {
	// http or https address that batches are posted to; redirects to another host are not followed
	URL *string `koanf:"url"`
	// HTTP headers, such as {Authorization: "Bearer ${oc.env:TOKEN}"}
	Headers map[string]string `koanf:"headers"`
	// program and arguments, no shell: [python, judge.py]; JSON lines (prompt, completion, reference, …) in, numbers out
	Command []string `koanf:"command"`
	// keep the command running between batches; it must flush every line
	Keep bool `koanf:"keep"`
	// items a request
	BatchSize int `koanf:"batch_size" range:"[1,inf)"`
	// requests under way at a time; of a command: processes
	Parallel int `koanf:"parallel" range:"[1,inf)"`
	// for one request, start of the command included
	Timeout float64 `koanf:"timeout_seconds" range:"(0,inf)"`
	// further attempts after a time-out, a lost connection, status 408, 429 or 5xx, or a command that fails
	Retries int `koanf:"retries" range:"[0,inf)" constant:"true"`
	// wait before the first retry; doubles with each: long enough for a server that starts a worker
	Backoff float64 `koanf:"backoff_seconds" range:"[0,inf)" constant:"true"`
	// scores remembered by the content of their item; 0 = none
	Cache int `koanf:"cache" range:"[0,inf)" constant:"true"`
}

// DefaultScorerOptions returns a scorer without address or command.
func DefaultOptions() Options {
	return Options{BatchSize: 32, Parallel: 1, Timeout: 120, Retries: 2, Backoff: 1, Cache: 100_000}
}

func (o Options) On() bool { return o.URL != nil || len(o.Command) > 0 }

// Validate reports options with which a scorer cannot work. TextRewards.Check asks whether the address answers.
func (o Options) Validate() error {
	errs := []error{
		option.Want(o.URL == nil || len(o.Command) == 0, "command", "url and command are both given: want one of them"),
		option.Tags(o),
	}
	if o.URL != nil {
		u, err := url.Parse(*o.URL)
		errs = append(errs, option.Want(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "url",
			"want an http or https address, got %q", secret.Mask(*o.URL)))
	}
	if len(o.Command) > 0 {
		_, err := exec.LookPath(o.Command[0])
		hint := ""
		if words := strings.Fields(o.Command[0]); len(words) > 1 {
			hint = ": a program and its arguments are a list, [" + strings.Join(words, ",") + "]"
		}
		errs = append(errs, option.Want(err == nil, "command", "no program %q: %v%s", o.Command[0], err, hint))
	}
	return errors.Join(errs...)
}

// Script is the file that says what the command does: its first argument that is a file, else the program, where that is given as a path;
// "" for neither. Further arguments may be what it writes.
func (o Options) Script() string {
	for _, name := range append(slices.Clone(o.Command[min(1, len(o.Command)):]), o.Command[:min(1, len(o.Command))]...) {
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
			return name
		}
	}
	return ""
}

// Scorer sends items to the user's program and remembers the scores. Safe for concurrent use.
type Scorer struct {
	opt     Options
	via     Transport
	slots   chan struct{}   // one for each request under way
	open    context.Context // until Close
	close   context.CancelFunc
	running sync.WaitGroup // requests

	mu          sync.Mutex
	fresh, aged map[digest]float64 // two generations: old scores go, half a cache at a time
	under       map[digest]*asked  // way
	waiting     []*asked           // those of them that are in no request yet
}

type digest = [sha256.Size]byte

// asked is an item whose score is under way.
type asked struct {
	key   digest
	body  []byte
	done  chan struct{} // closed when score or err is there
	score float64
	err   error
}

// Transport scores batches of items in JSON. Errors that no further attempt can mend are webapi.Permanent.
type Transport interface {
	Ask(ctx context.Context, items [][]byte) ([]float64, error)
	Name() string
	Close() error
}

// Via returns a scorer over another transport, with the bounds, retries and cache of the options.
func Via(opt Options, via Transport) *Scorer {
	s := &Scorer{opt: opt, via: via, slots: make(chan struct{}, opt.Parallel), fresh: map[digest]float64{}, under: map[digest]*asked{}}
	s.open, s.close = context.WithCancel(context.Background())
	return s
}

func New(opt Options) (*Scorer, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	if !opt.On() {
		return nil, errors.New("url: want the address of a scorer, or its command")
	}
	if opt.URL == nil {
		return Via(opt, &commandTransport{argv: opt.Command, keep: opt.Keep, idle: make(chan *child, opt.Parallel)}), nil
	}
	client, err := webapi.New(*opt.URL, opt.Headers, opt.Parallel)
	return Via(opt, &httpTransport{client}), err
}

// Close ends requests under way.
func (s *Scorer) Close() error {
	s.close()
	s.running.Wait()
	return s.via.Close()
}

// Item is the JSON form of a completion for a scorer.
type Item struct {
	Prompt     string          `json:"prompt,omitempty"`
	Completion string          `json:"completion"`
	Answer     string          `json:"answer"`
	Reference  string          `json:"reference,omitempty"`
	Answers    []string        `json:"answers,omitempty"`
	Images     []string        `json:"images,omitempty"`
	Meta       json.RawMessage `json:"meta,omitempty"`
	Points     [][2]float64    `json:"points,omitempty"` // negative ones
	Positive   [][2]float64    `json:"positive_points,omitempty"`
	Boxes      [][4]float64    `json:"boxes,omitempty"`
}

// Score returns the scores of items in order. Equal items are sent once. The first error stops the rest.
func (s *Scorer) Score(ctx context.Context, items []Item) ([]float64, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	all, err := s.begin(ctx, items, stop)
	out := make([]float64, len(all))
	for i, a := range all {
		<-a.done
		if out[i] = a.score; a.err != nil {
			return nil, fmt.Errorf("scorer %s: %w", s.via.Name(), cmp.Or(context.Cause(ctx), a.err))
		}
	}
	return out, err
}

// Foresee asks for an item that Score will have, in a batch with others that are foreseen, once that is full. An error is Score's to find.
func (s *Scorer) Foresee(ctx context.Context, it Item) {
	if s.opt.Cache > 0 {
		s.begin(ctx, []Item{it}, nil)
	}
}

// begin sends batches of those items that are not known or under way. With stop, which their errors call, the last one need not be full.
func (s *Scorer) begin(ctx context.Context, items []Item, stop context.CancelCauseFunc) ([]*asked, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*asked, len(items))
	for i, it := range items {
		body, err := jsonwords.Marshal(it)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		key := sha256.Sum256(body)
		a, ok := s.under[key]
		if !ok {
			a = &asked{key: key, body: body, done: make(chan struct{})}
			if a.score, ok = s.recall(key); ok {
				close(a.done)
			} else {
				s.under[key], s.waiting = a, append(s.waiting, a)
			}
		}
		if all[i] = a; len(s.waiting) == s.opt.BatchSize {
			s.send(ctx, stop)
		}
	}
	if stop != nil && len(s.waiting) > 0 {
		s.send(ctx, stop)
	}
	return all, nil
}

// send makes a request of the items that wait, when there is a slot.
func (s *Scorer) send(ctx context.Context, stop context.CancelCauseFunc) {
	batch := s.waiting
	s.waiting = nil
	s.running.Go(func() {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.open, cancel)()
		scores, err := s.attempts(ctx, list.Map(batch, func(a *asked) []byte { return a.body }))
		if err != nil && stop != nil {
			stop(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, a := range batch {
			if a.err = err; err == nil {
				a.score = scores[i]
				s.remember(a.key, a.score)
			}
			delete(s.under, a.key)
			close(a.done)
		}
	})
}

func (s *Scorer) recall(key digest) (float64, bool) {
	if v, ok := s.fresh[key]; ok {
		return v, true
	}
	v, ok := s.aged[key]
	return v, ok
}

func (s *Scorer) remember(key digest, score float64) {
	if s.opt.Cache == 0 {
		return
	}
	if len(s.fresh) >= max(1, s.opt.Cache/2) {
		s.aged, s.fresh = s.fresh, map[digest]float64{}
	}
	s.fresh[key] = score
}

// attempts tries a batch until it succeeds, fails for good, or has been tried often enough.
func (s *Scorer) attempts(ctx context.Context, bodies [][]byte) ([]float64, error) {
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-s.slots }()
	var scores []float64
	err := webapi.Retry(ctx, webapi.Patience{Timeout: seconds(s.opt.Timeout), Retries: s.opt.Retries, Backoff: seconds(s.opt.Backoff),
		What: fmt.Sprintf("no scores for %d items", len(bodies))}, func(ctx context.Context) (err error) {
		if scores, err = s.via.Ask(ctx, bodies); err == nil {
			err = CheckScores(scores, len(bodies))
		}
		return err
	})
	return scores, err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func CheckScores(scores []float64, n int) error {
	if len(scores) != n {
		return webapi.Permanent{Err: fmt.Errorf("%d scores for %d items", len(scores), n)}
	}
	for i, v := range scores {
		if err := group.CheckReward(v); err != nil {
			return webapi.Permanent{Err: fmt.Errorf("score %d is %v: %w", i, v, err)}
		}
	}
	return nil
}
