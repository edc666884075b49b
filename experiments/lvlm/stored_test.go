package lvlm

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// toy scores by a hash of the prompt's texts and counts what it is asked.
type toy struct {
	mu    sync.Mutex
	asked map[string]int
	most  int // prompts in one call
	wait  time.Duration
	fail  func(p Prompt) error
}

func (s *toy) Identity() Identity { return Identity{Backend: "local", Model: "toy"} }

func (s *toy) Close() error { return nil }

func textOf(p Prompt) string {
	var b strings.Builder
	for _, e := range append(slices.Clone(p.Shots), p.Query) {
		fmt.Fprintf(&b, "%q %q %q ", filepath.Base(e.Image), e.Question, e.Answer)
	}
	return b.String()
}

func (s *toy) see(ctx context.Context, prompts []Prompt) error {
	select {
	case <-time.After(s.wait):
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = max(s.most, len(prompts))
	for _, p := range prompts {
		if s.fail != nil {
			if err := s.fail(p); err != nil {
				return err
			}
		}
		s.asked[textOf(p)]++
	}
	return nil
}

func (s *toy) Score(ctx context.Context, prompts []Prompt) ([]Likelihood, error) {
	if err := s.see(ctx, prompts); err != nil {
		return nil, err
	}
	out := make([]Likelihood, len(prompts))
	for i, p := range prompts {
		h := fnv.New32()
		h.Write([]byte(textOf(p)))
		out[i] = Likelihood{Tokens: []int{7, 1 << 20}, LogProbs: []float64{-float64(h.Sum32()) / 1e9, -0.1}}
	}
	return out, nil
}

func (s *toy) Answer(ctx context.Context, prompts []Prompt) ([]Reply, error) {
	if err := s.see(ctx, prompts); err != nil {
		return nil, err
	}
	out := make([]Reply, len(prompts))
	for i, p := range prompts {
		if out[i].Tokens = 100 + len(p.Shots); p.Query.Question != "silent" {
			out[i].Text = "answer to " + p.Query.Question
		}
	}
	return out, nil
}

func imageFile(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func openToy(t *testing.T, s *toy, opt Options) *Stored {
	t.Helper()
	s.asked = map[string]int{}
	scorer, err := Open(t.Context(), opt, func() (Scorer, error) { return s, nil })
	if err != nil {
		t.Fatal(err)
	}
	return scorer
}

func prompts(image string, n int) []Prompt {
	out := make([]Prompt, n)
	for i := range out {
		out[i] = Prompt{Shots: []Example{{Question: "q", Answer: "a"}}, Query: Example{ID: int64(i), Image: image, Question: fmt.Sprint(i),
			Answer: "red"}}
	}
	return out
}

func TestStoredAsksNothingTwice(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "store")
	opt := DefaultOptions()
	opt.Store, opt.Batch = &folder, 4
	image := imageFile(t, dir, "a.png", "pixels")
	model := &toy{}
	scorer := openToy(t, model, opt)
	asked := append(prompts(image, 10), prompts(image, 10)...)
	want, err := scorer.Score(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	if len(model.asked) != 10 || model.most != 4 || scorer.Counts() != (Counts{Asked: 10, Known: 10}) {
		t.Errorf("asked %v in batches of up to %d, counted %+v", model.asked, model.most, scorer.Counts())
	}
	for i := range want {
		if want[i].LogProbs[0] != want[i%10].LogProbs[0] || i > 0 && i < 10 && want[i].LogProbs[0] == want[i-1].LogProbs[0] {
			t.Errorf("prompt %d got %v", i, want[i])
		}
	}
	scorer.Close()

	scorer = openToy(t, model, opt) // another process, the image under another name
	renamed := prompts(imageFile(t, dir, "b.png", "pixels"), 10)
	got, err := scorer.Score(t.Context(), renamed)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want[:10]) || len(model.asked) != 0 {
		t.Errorf("%v, %v, asked %v", got, err, model.asked)
	}
	for name, change := range map[string]func(p *Prompt){
		"another image": func(p *Prompt) { p.Query.Image = imageFile(t, dir, "c.png", "other") },
		"no image":      func(p *Prompt) { p.Query.Image = "" },
		"question":      func(p *Prompt) { p.Query.Question = "?" },
		"answer":        func(p *Prompt) { p.Query.Answer = "blue" },
		"demonstration": func(p *Prompt) { p.Shots = nil },
		"its answer":    func(p *Prompt) { p.Shots = []Example{{Question: "qa"}} },
		"another place": func(p *Prompt) { p.Shots = []Example{p.Query}; p.Query = Example{Question: "q", Answer: "a"} },
	} {
		clear(model.asked)
		p := prompts(image, 1)
		change(&p[0])
		if _, err := scorer.Score(t.Context(), p); err != nil || len(model.asked) != 1 {
			t.Errorf("%s: asked %v, %v", name, model.asked, err)
		}
	}
	clear(model.asked)
	for range 2 { // an answer is no score; an empty one is an answer
		p := prompts("", 1)
		p[0].Query.Question = "silent"
		if said, err := scorer.Answer(t.Context(), p); err != nil || said[0] != (Reply{"", 101}) || len(model.asked) != 1 {
			t.Errorf("%v, %v, asked %v", said, err, model.asked)
		}
	}
	scorer.Close()
}

// Callers that ask the same at the same moment share one question, with a store and without; a failed one is asked again.
func TestStoredFlights(t *testing.T) {
	folder := t.TempDir()
	for _, kept := range []*string{nil, &folder} {
		synctest.Test(t, func(t *testing.T) { // the model answers once all callers wait for it
			opt := DefaultOptions()
			opt.Store, opt.Batch = kept, 3
			model := &toy{wait: 100 * time.Millisecond}
			scorer := openToy(t, model, opt)
			defer scorer.Close()
			var wg sync.WaitGroup
			impatient, cancel := context.WithCancel(t.Context())
			for i := range 8 {
				wg.Go(func() {
					ctx := t.Context()
					if i == 0 {
						ctx = impatient
					}
					if _, err := scorer.Score(ctx, prompts("", 12)); i > 0 && err != nil {
						t.Error(err)
					}
				})
				synctest.Wait() // the first asks, the others wait for its answer
			}
			cancel() // in the middle of the first batch
			wg.Wait()
			if len(model.asked) != 12 {
				t.Errorf("asked %v", model.asked)
			}
			for p, n := range model.asked {
				if n != 1 {
					t.Errorf("asked %d times: %s", n, p)
				}
			}
		})
	}
}

// What was scored before a failure is kept.
func TestStoredKeepsWhatWasScored(t *testing.T) {
	dir := t.TempDir()
	opt := DefaultOptions()
	opt.Store, opt.Batch = &dir, 1
	bad := errors.New("the answer is longer than the context")
	model := &toy{fail: func(p Prompt) error {
		if p.Query.ID == 6 {
			return bad
		}
		return nil
	}}
	scorer := openToy(t, model, opt)
	if _, err := scorer.Score(t.Context(), prompts("", 10)); !errors.Is(err, bad) {
		t.Fatalf("got %v", err)
	}
	missing := prompts("", 10)
	missing[3].Query.Image = filepath.Join(dir, "none.png")
	if _, err := scorer.Score(t.Context(), missing); err == nil || !strings.Contains(err.Error(), "query 3: image: open") {
		t.Errorf("a missing image: %v", err)
	}
	scorer.Close()
	model.fail = nil
	scorer = openToy(t, model, opt)
	defer scorer.Close()
	if _, err := scorer.Score(t.Context(), prompts("", 10)); err != nil || len(model.asked) != 4 {
		t.Errorf("asked %v again, %v: want those behind the failure", model.asked, err)
	}
}

// With images=false the model and the store see texts alone, and the caller's prompts stay as they are.
func TestImagesAreLeftOut(t *testing.T) {
	model, opt := &toy{asked: map[string]int{}}, DefaultOptions()
	opt.Images = false
	scorer, err := Open(t.Context(), opt, func() (Scorer, error) { return model, nil })
	if err != nil {
		t.Fatal(err)
	}
	p := Prompt{Shots: []Example{{Image: "/no/a.png", Question: "q", Answer: "a"}},
		Query: Example{Image: "/no/b.png", Question: "q", Answer: "b"}}
	if _, err := scorer.Score(t.Context(), []Prompt{p}); err != nil {
		t.Fatal(err)
	}
	if model.asked[textOf(p.WithoutImages())] != 1 || p.Shots[0].Image == "" || p.Query.Image == "" || !scorer.Identity().TextOnly {
		t.Errorf("asked %v with %+v of %+v", model.asked, p, scorer.Identity())
	}
}

// A store with damage is read without it, and says so.
func TestDamageOfTheStoreIsNoted(t *testing.T) {
	dir := t.TempDir()
	opt := DefaultOptions()
	opt.Store = &dir
	for _, damage := range []bool{false, true} {
		scorer := openToy(t, &toy{}, opt)
		if _, err := scorer.Score(t.Context(), prompts("", 10)); err != nil {
			t.Fatal(err)
		}
		if said := strings.Join(scorer.Notes, ""); strings.Contains(said, "bytes are damaged and left out") != damage {
			t.Errorf("damaged %v: notes %q", damage, said)
		}
		scorer.Close()
		files, err := filepath.Glob(filepath.Join(dir, "*.segment"))
		if err != nil || len(files) != 1 {
			t.Fatalf("%v, %v", files, err)
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		text[len(text)/2] ^= 0x10
		if err := os.WriteFile(files[0], text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
