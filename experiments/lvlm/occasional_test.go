package lvlm

import (
	"context"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// small is a job of 50 questions with a server that tells the truth while it is probed. It returns how many of its numbers are wrong.
func small(t *testing.T, kind, lie, dir string, local func() (Scorer, error)) (wrong int, s *Stored, err error) {
	t.Helper()
	stand := &Server{Kind: kind}
	opt := serve(t, stand)
	opt.Store = &dir
	opt.Concurrency, opt.Retries = 4, 2
	if lie == "a truncated body" {
		opt.Concurrency = 1 // one at a time: what is cut as the seventh is asked again as the eighth, on a busy machine too
	}
	if s, err = Open(t.Context(), opt, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	s.recheck.local = local
	s.scorer.(*server).backoff = 1 // a nanosecond
	stand.Lie = lie
	asked := prompts("", 50)
	if strings.HasSuffix(lie, "answers") {
		honest := serve(t, &Server{Kind: kind})
		h, err := Open(t.Context(), honest, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		said, err := s.Answer(t.Context(), asked)
		if err != nil {
			return 0, s, err
		}
		want, err := h.Answer(t.Context(), asked)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if want[i] != said[i] {
				wrong++
			}
		}
	} else {
		said, err := s.Score(t.Context(), asked)
		if err != nil {
			return 0, s, err
		}
		for i, p := range asked {
			if apart := (Likelihood{LogProbs: truth(t, kind, p)}).apart(said[i]); apart > 1e-3 {
				wrong++
			}
		}
	}
	_, err = s.Settle(t.Context())
	return wrong, s, err
}

// A server that lies every so often does not pass a job of 50 questions: the error names both answers, or the number that no softmax
// gives, and nothing of what the server said is in the store. The honest one beside it passes.
func TestOccasionalLiars(t *testing.T) {
	for _, kind := range kinds() {
		for _, lie := range append(Occasional(), "", "a truncated body") {
			dir := t.TempDir()
			wrong, s, err := small(t, kind, lie, dir, nil)
			if lie == "" || lie == "a truncated body" {
				if err != nil || wrong > 0 || s.Counts().Again < 20 || s.Counts().Asked != 50 {
					t.Errorf("%s: %q: %d wrong, %+v, %v", kind, lie, wrong, s.Counts(), err)
				}
				continue
			}
			t.Logf("%s: %s: %d wrong: %v", kind, lie, wrong, err)
			if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "lvlm.backend="+kind) {
				t.Errorf("%s: %s: %d of 50 wrong: %v", kind, lie, wrong, err)
				continue
			}
			for _, part := range map[string][]string{"another request's numbers": {" had [", " has ["}, "-1e30 now and then": {"-1e+30"},
				"a tenth of a nat of noise": {" had [", "on the mean"}, "another request's answers": {"answered ", "answers "}}[lie] {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %s: %v, want %q in it", kind, lie, err, part)
				}
			}
			if _, again := s.Score(t.Context(), prompts("", 1)); again == nil {
				t.Errorf("%s: %s: it is asked on", kind, lie)
			}
			s.Close()
			files, err := os.ReadDir(dir)
			if err != nil || len(files) > 0 {
				t.Errorf("%s: %s: the store holds %v, %v", kind, lie, files, err)
			}
		}
	}
}

// What the model's folder says of a fair sample holds against what a server says again and again.
func TestScoredHereToo(t *testing.T) {
	for _, tc := range []struct {
		name string
		off  float64 // nats
		err  error   // of opening the model
		want string
	}{
		{"the same numbers", 0, nil, "10 prompts were scored by the model in lvlm.path too"},
		{"half precision", 0.05, nil, "no token differs by more than 0.05 nats"},
		{"other weights", 1, nil, "by the model in lvlm.path: other weights"},
		{"no weights", 0, os.ErrNotExist, "no prompt was scored here too: file does not exist"},
	} {
		asked := 0
		local := func() (Scorer, error) { return here50{t, tc.off, &asked}, tc.err }
		dir := t.TempDir()
		stand := &Server{Kind: "sglang"}
		opt := serve(t, stand)
		opt.Store = &dir
		s, err := Open(t.Context(), opt, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.recheck.local = local
		if _, err := s.Score(t.Context(), prompts("", 50)); err != nil {
			t.Fatal(err)
		}
		note, err := s.Settle(t.Context())
		if err != nil {
			note = err.Error()
		}
		if !strings.Contains(note, tc.want) || (err != nil) != (tc.off == 1) || tc.err == nil && tc.off < 1 && asked != 10 {
			t.Errorf("%s: %d asked, %q, %v", tc.name, asked, note, err)
		}
		s.Close()
	}
}

// here50 is the stand-in's model in this process.
type here50 struct {
	t     *testing.T
	off   float64
	asked *int
}

func (h here50) Identity() Identity { return Identity{} }
func (h here50) Close() error       { return nil }
func (h here50) Answer(context.Context, []Prompt) ([]Reply, error) {
	panic("scores alone are compared")
}
func (h here50) Score(_ context.Context, prompts []Prompt) (out []Likelihood, err error) {
	for _, p := range prompts {
		*h.asked++
		l := truth(h.t, "sglang", p)
		for i := range l {
			l[i] -= h.off
		}
		out = append(out, Likelihood{LogProbs: l})
	}
	return out, nil
}

// What a search decides by is asked again once, and not where the store has it from a job that has passed.
func TestDoubt(t *testing.T) {
	dir := t.TempDir()
	stand := &Server{Kind: "vllm"}
	opt := serve(t, stand)
	opt.Store = &dir
	asked := prompts("", 300)
	for job, want := range []int{1, 0} {
		s, err := Open(t.Context(), opt, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Score(t.Context(), asked); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := s.Doubt(asked[:150]); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if c := s.Counts(); c.Again < int64(want*150) || want == 0 && c.Again > 0 || c.Again > 300 {
			t.Errorf("job %d: %+v", job, c)
		}
		s.Close()
	}
	for p, n := range stand.Asked() {
		if n > 2 && !strings.Contains(p, "square") {
			t.Errorf("asked %d times: %s", n, p)
		}
	}
}

// A certain first token of an honest server is what it says itself; float32's limits are no lies.
func TestHonestExtremes(t *testing.T) {
	for _, v := range []float64{0, -1e-45, -3.4e-7, 1e-3, -103.97, -999} {
		if err := (Likelihood{Tokens: []int{1}, LogProbs: []float64{v}}).check(); err != nil {
			t.Errorf("%v: %v", v, err)
		}
	}
	for _, v := range []float64{-1e30, -9999, -math.MaxFloat32, math.Inf(-1), math.NaN(), 0.1} {
		if err := (Likelihood{Tokens: []int{1}, LogProbs: []float64{v}}).check(); err == nil {
			t.Errorf("%v passes", v)
		}
	}
	for _, kind := range kinds() {
		stand := &Server{Kind: kind, Model: sure{}}
		s, err := Open(t.Context(), serve(t, stand), nil)
		if err != nil {
			t.Fatal(err)
		}
		p := prompts("", 30)
		for i := range p {
			p[i].Query.Answer = "b"
		}
		said, err := s.Score(t.Context(), p)
		if err == nil {
			_, err = s.Settle(t.Context())
		}
		if err != nil || slices.Max(said[29].LogProbs) != 0 || said[29].LogProbs[0] != 0 {
			t.Errorf("%s: %v %v", kind, said[29:], err)
		}
		s.Close()
	}
}

// sure is certain that an answer to a number is "b", and that it ends there.
type sure struct{ Toy }

func (m sure) LogProbs(ids []int, images [][]byte, from int) [][]float64 {
	rows := m.Toy.LogProbs(ids, images, from)
	for i, row := range rows {
		at := from + i
		text := ""
		for _, id := range ids[max(0, at-40) : at+1] {
			text += m.Text(id)
		}
		if strings.Contains(text, "colour") || strings.Contains(text, "dogs") {
			continue
		}
		next := -1
		if strings.HasSuffix(text, "assistant\n") || strings.HasSuffix(text, "answer:") || strings.HasSuffix(text, "answer: ") {
			next = 'b'
		} else if strings.HasSuffix(text, "assistant\nb") || strings.HasSuffix(text, "answer: b") {
			next = map[bool]int{true: 257, false: '\n'}[strings.HasSuffix(text, "assistant\nb")]
		}
		if strings.HasSuffix(text, "answer:") {
			next = ' '
		}
		if next >= 0 {
			for j := range row {
				row[j] = -100
			}
			row[next] = 0
		}
	}
	return rows
}
