package lvlm

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fulcrum/internal/chat"
	"fulcrum/internal/tokenizer"
)

func serve(t *testing.T, s *Server) Options {
	t.Helper()
	if s.Model == nil {
		s.Model = Toy{}
	}
	Start(t, s)
	opt := DefaultOptions()
	opt.Backend, opt.URL = s.Kind, &s.URL
	return opt
}

func kinds() []string { return []string{"vllm", "sglang", "completions"} }

func red(t *testing.T, margin int) string {
	t.Helper()
	url, err := picture(colours[0], margin)
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// Each kind of server gives the log-probabilities that the model has, whatever the answer.
func TestServersScore(t *testing.T) {
	for _, kind := range kinds() {
		for _, folded := range []bool{false, true} {
			stand := &Server{Kind: kind, Folded: folded}
			scorer, err := Open(t.Context(), serve(t, stand), nil)
			if err != nil {
				t.Fatalf("%s: an honest server is refused: %v", kind, err)
			}
			defer scorer.Close()
			for _, answer := range []string{"blue", "i", "m", "im_end", "a green dog", "end\nstart", "  x", "2"} {
				p := Prompt{Shots: []Example{{Question: "What?", Answer: "red"}}, Query: Example{Question: "And this?", Answer: answer}}
				if kind != "completions" {
					p.Shots[0].Image, p.Query.Image = red(t, 3), red(t, 9)
				}
				got, err := scorer.Score(t.Context(), []Prompt{p})
				if kind == "completions" && answer == "  x" && err == nil { // spaces may belong to the prompt: refused or right
					continue
				}
				if err != nil {
					t.Errorf("%s: %q: %v", kind, answer, err)
					continue
				}
				want := truth(t, kind, p)
				if fmt.Sprintf("%.9f", got[0].LogProbs) != fmt.Sprintf("%.9f", want) {
					t.Errorf("%s: %q: got %v, want %v", kind, answer, got[0].LogProbs, want)
				}
			}
			said, err := scorer.Answer(t.Context(), []Prompt{{Query: Example{Question: "Say something"}}})
			if err != nil || len(said[0].Text) > 5 || said[0].Tokens < 20 || stand.Penalised > 0 {
				t.Errorf("%s: answer %v, %v", kind, said, err)
			}
		}
	}
}

func TestPlainTemplate(t *testing.T) {
	r, err := openRendering(DefaultOptions(), fallback("completions"))
	if err != nil {
		t.Fatal(err)
	}
	p := Prompt{Shots: []Example{{Question: "What?", Answer: "red"}}, Query: Example{Question: "And this?", Answer: "two dogs"}}
	whole, from, err := r.texts(p)
	want := "Question: What?\nShort answer: red\nQuestion: And this?\nShort answer: two dogs\n"
	if err != nil || whole != want || whole[from:] != " two dogs\n" {
		t.Errorf("got %q, the answer %q, %v", whole, whole[from:], err)
	}
}

func decoded(t *testing.T, url string) []byte {
	t.Helper()
	_, data, _ := strings.Cut(url, ";base64,")
	image, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// truth is what the toy model says of a prompt, without a server.
func truth(t *testing.T, kind string, p Prompt) []float64 {
	t.Helper()
	if kind == "vllm" { // the stand-in's own is the same
		kind = "sglang"
	}
	r, err := openRendering(DefaultOptions(), fallback(kind))
	if err != nil {
		t.Fatal(err)
	}
	whole, from, err := r.texts(p)
	if err != nil {
		t.Fatal(err)
	}
	model := Toy{}
	var ids []int
	var images [][]byte
	for _, m := range Messages(p) {
		for _, part := range m.Parts {
			if part.Path != "" {
				images = append(images, decoded(t, part.Path))
			}
		}
	}
	next := 0
	for _, id := range model.Encode(whole) {
		if pad, _ := model.ImageToken(nil); id == pad {
			_, n := model.ImageToken(images[next])
			ids, next = append(ids, slices.Repeat([]int{id}, n)...), next+1
			continue
		}
		ids = append(ids, id)
	}
	n := len(model.Encode(whole[from:]))
	var out []float64
	for i, row := range model.LogProbs(ids, images, len(ids)-n-1) {
		if i < n {
			out = append(out, row[ids[len(ids)-n+i]])
		}
	}
	return out
}

// promised is how long something may take; make test, on a machine that may be slow and busy, allows a minute.
func promised(d time.Duration) time.Duration {
	if testing.Short() {
		return time.Minute
	}
	return d
}

// Every liar is refused with a reason of its own, in less than five seconds beyond what a busy machine takes: an honest server is asked
// beside them.
func TestLiarsAreRefused(t *testing.T) {
	const honest = ""
	for _, kind := range kinds() {
		var wg sync.WaitGroup
		var mu sync.Mutex
		reasons, took := map[string]string{}, map[string]time.Duration{}
		for _, lie := range append(Faults(kind), honest) {
			opt := serve(t, &Server{Kind: kind, Lie: lie})
			wg.Go(func() {
				start := time.Now()
				scorer, err := Open(t.Context(), opt, nil)
				mu.Lock()
				defer mu.Unlock()
				took[lie] = time.Since(start)
				if err == nil {
					scorer.Close()
				}
				switch {
				case (err == nil) != (lie == honest):
					t.Errorf("%s: %q: got %v", kind, lie, err)
				case lie != honest:
					t.Logf("%s: %s: %v", kind, lie, err)
					_, reason, refused := strings.Cut(err.Error(), ": refused: ")
					if strings.Contains(reason, "\n") || !refused {
						t.Errorf("%s: %s: %v", kind, lie, err)
					}
					reasons[reason] = lie
				}
			})
		}
		wg.Wait()
		for lie, d := range took {
			if most := promised(5*time.Second) + 2*took[honest]; d > most {
				t.Errorf("%s: %s: refused after %v, want %v at most", kind, lie, d, most)
			}
		}
		if n := len(Faults(kind)); len(reasons) != n || n < 12 {
			t.Errorf("%s: %d reasons for %d lies", kind, len(reasons), n)
		}
	}
}

// A server whose list of models never ends, or never begins, is refused long before a request would be late.
func TestEndlessModelsAreRefused(t *testing.T) {
	var wg sync.WaitGroup
	for _, lie := range []string{"endless models", "no models"} {
		opt := serve(t, &Server{Kind: "vllm", Lie: lie})
		wg.Go(func() {
			start := time.Now()
			_, err := Open(t.Context(), opt, nil)
			if err == nil || !strings.Contains(err.Error(), "refused: no whole list of models (/v1/models) in 10s") {
				t.Errorf("%s: got %v", lie, err)
			}
			if d := time.Since(start); d > promised(12*time.Second) {
				t.Errorf("%s: refused after %v", lie, d)
			}
		})
	}
	wg.Wait()
}

func TestServersRefuse(t *testing.T) {
	t.Setenv("TEST_SERVER_KEY", "sesame-4711")
	t.Setenv("TEST_WRONG_KEY", "wrong-4711")
	name := func(s string) *string { return &s }
	for _, tc := range []struct {
		name   string
		key    string
		change func(o *Options)
		want   string // "" = none
	}{
		{"the key", "sesame-4711", func(o *Options) { o.KeyEnv = name("TEST_SERVER_KEY") }, ""},
		{"no key", "sesame-4711", func(o *Options) {}, "status 401"},
		{"a wrong key", "sesame-4711", func(o *Options) { o.KeyEnv = name("TEST_WRONG_KEY") }, "TEST_WRONG_KEY"},
		{"a key that is not set", "", func(o *Options) { o.KeyEnv = name("TEST_NO_KEY") }, "TEST_NO_KEY: this variable is not set"},
		{"another model", "", func(o *Options) { o.Model = name("gpt") }, `no model "gpt": it serves toy`},
		{"its model", "", func(o *Options) { o.Model = name("toy") }, ""},
		{"no server", "", func(o *Options) { o.URL = name("http://127.0.0.1:9") }, "connection refused"},
		{"a user in the address", "", func(o *Options) { o.URL = name("http://me:sesame@127.0.0.1:9/v1") }, "127.0.0.1:9"},
		{"no address", "", func(o *Options) { o.URL = name("localhost:8000") }, "want an http or https address"},
		{"the /v1 of OpenAI's clients", "", func(o *Options) { u := *o.URL + "/v1/"; o.URL = &u }, ""},
	} {
		for _, kind := range kinds() {
			opt := serve(t, &Server{Kind: kind, Key: tc.key})
			tc.change(&opt)
			scorer, err := Open(t.Context(), opt, nil)
			switch {
			case err == nil && tc.want == "":
				scorer.Close()
			case err == nil || tc.want == "" || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") ||
				strings.Contains(err.Error(), "sesame") || strings.Contains(err.Error(), "wrong-4711"):
				t.Errorf("%s: %s: got %v, want %q", kind, tc.name, err, tc.want)
			}
		}
	}
}

// One bad prompt is one clear line, and what was scored before it is kept.
func TestBadPrompts(t *testing.T) {
	dir := t.TempDir()
	for _, kind := range kinds() {
		stand := &Server{Kind: kind, Context: 1200}
		opt := serve(t, stand)
		opt.Store, opt.Concurrency = &dir, 4
		scorer, err := Open(t.Context(), opt, nil)
		if err != nil {
			t.Fatal(err)
		}
		asked := prompts("", 20)
		asked[17].Query.Answer = strings.Repeat("long ", 300)
		if _, err := scorer.Score(t.Context(), asked); err == nil || !strings.Contains(err.Error(), "query 17: status 400") ||
			!strings.Contains(err.Error(), "maximum context length is 1200 tokens") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: an answer longer than the context: %v", kind, err)
		}
		stand.Forget()
		scorer.recheck.enough = 0 // to check the server
		if _, err := scorer.Score(t.Context(), asked[:17]); err != nil || len(stand.Asked()) != 0 {
			t.Errorf("%s: asked again: %d, %v", kind, len(stand.Asked()), err)
		}
		bad := prompts(imageFile(t, t.TempDir(), "a.png", "no picture"), 1)
		want := map[bool]string{true: "reads text only", false: "a.png"}[kind == "completions"]
		if _, err := scorer.Score(t.Context(), bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: a file that is no picture: %v", kind, err)
		}
		scorer.Close()
	}
}

// A server that is busy, or still loads its model, is waited for as in the middle of a job.
func TestProbeOfABusyServer(t *testing.T) {
	stand, busy := &Server{Kind: "vllm", Loading: 1}, 0
	opt := serve(t, stand)
	stand.Refuse = func(n int) (int, http.Header) {
		if n < 4 || n > 5 {
			return 0, nil
		}
		busy++
		return http.StatusTooManyRequests, http.Header{"Retry-After": {"0"}}
	}
	scorer, err := Open(t.Context(), opt, nil)
	if err != nil || busy != 2 || stand.Loading != 0 {
		t.Fatalf("busy %d times: %v", busy, err)
	}
	scorer.Close()
	stand.Loading, opt.Retries = 2, 1
	if _, err := Open(t.Context(), opt, nil); err == nil || !strings.Contains(err.Error(), "2 attempts: status 503") {
		t.Errorf("a server that stays busy: %v", err)
	}
}

// A server that has too much to do is asked less at a time, as it asks for, and every answer comes.
func TestBackPressure(t *testing.T) {
	stand := &Server{Kind: "vllm", Wait: 5 * time.Millisecond}
	opt := serve(t, stand)
	opt.Concurrency = 16
	scorer, err := Open(t.Context(), opt, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer scorer.Close()
	scorer.recheck.enough = 0
	stand.Forget()
	stand.Refuse = func(n int) (int, http.Header) {
		if n > 8 && n <= 16 {
			return http.StatusTooManyRequests, http.Header{"Retry-After": {"1.2"}}
		}
		return 0, nil
	}
	start := time.Now()
	if _, err := scorer.Score(t.Context(), prompts("", 64)); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d < 1200*time.Millisecond || d > promised(5*time.Second) {
		t.Errorf("%v, want what the server asked for (1.2 s) and not much more", d)
	}
	if bound := scorer.scorer.(*server).throttle.bound; bound >= 15 || stand.Most() > 16 {
		t.Errorf("the bound is %v after 8 refusals, %d requests at a time", bound, stand.Most())
	}
	for p, n := range stand.Asked() {
		if n != 1 {
			t.Errorf("scored %d times: %.40s", n, p)
		}
	}
}

// Requests that wait for their turn are not late: timeout_seconds is for one request.
func TestWaitingIsNotLate(t *testing.T) {
	opt := serve(t, &Server{Kind: "vllm"})
	opt.Concurrency = 8
	scorer, err := Open(t.Context(), opt, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer scorer.Close()
	s := scorer.scorer.(*server)
	s.throttle.bound, s.throttle.most = 1, 1 // as after refusals
	s.opt.Timeout, s.retries = 2, 0          // 2 s for what takes a thousandth of that: the machine may be busy
	if err := s.throttle.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(2500*time.Millisecond, func() { s.throttle.exit(false) }) // a request of somebody else
	if _, err := scorer.Score(t.Context(), prompts("", 8)); err != nil {
		t.Error(err)
	}
}

// Scores of another model under the same name are none of the store's.
func TestStoreKnowsItsModel(t *testing.T) {
	dir := t.TempDir()
	stand := &Server{Kind: "vllm"}
	opt := serve(t, stand)
	opt.Store = &dir
	for _, model := range []Model{Toy{}, Toy{}, other{}} {
		stand.Model = model
		scorer, err := Open(t.Context(), opt, nil)
		if _, changed := model.(other); changed {
			if err == nil || !strings.Contains(err.Error(), "another model") {
				t.Errorf("got %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		scorer.Close()
	}
}

// other has the toy's tokens and other numbers.
type other struct{ Toy }

func (o other) LogProbs(ids []int, images [][]byte, from int) [][]float64 {
	return o.Toy.LogProbs(ids, append(images, []byte("other")), from)
}

func TestAlike(t *testing.T) {
	if !alike(-3, -3.1) || alike(-3, -3.4) || !alike(-20, -20.5) || alike(-0.1, math.Log(0.5)) {
		t.Error("the tolerance has moved")
	}
}

// folder writes a model folder with the toy's tokens, shifted by some bytes, and a template.
func folder(t *testing.T, shift int, template string) *string {
	t.Helper()
	vocab := map[string]int{}
	next := 256
	for b := range 256 { // GPT-2's alphabet
		r := rune(b)
		if b < 33 || b > 126 && b < 161 || b == 173 {
			r = rune(next)
			next++
		}
		vocab[string(r)] = (b + shift) % 256
	}
	var added []tokenizer.Added
	for i, content := range []string{"<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|image_pad|>", "<|vision_end|>"} {
		added = append(added, tokenizer.Added{ID: 256 + i, Content: content, Special: true})
	}
	tokens, err := tokenizer.New(vocab, nil, added)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := tokens.Save(dir); err != nil {
		t.Fatal(err)
	}
	imageFile(t, dir, "chat_template.jinja", template)
	return &dir
}

// A vLLM that scores chosen tokens is asked for nothing but the answer's, once its numbers were found to be those of prompts.
func TestTeacher(t *testing.T) {
	for _, lie := range []string{"", "off by one"} {
		stand := &Server{Kind: "vllm", Teacher: true}
		opt := serve(t, stand)
		opt.Path = folder(t, 0, chat.QwenVL().Source())
		scorer, err := Open(t.Context(), opt, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer scorer.Close()
		if !scorer.scorer.(*server).teacher || scorer.Notes != nil {
			t.Fatalf("it was not found: %q", scorer.Notes)
		}
		p := Prompt{Shots: []Example{{Question: "What?", Answer: "red", Image: red(t, 3)}}, Query: Example{Question: "And?", Answer: "end",
			Image: red(t, 9)}}
		stand.Lie = lie // of whole prompts, which are asked for no more
		got, err := scorer.Score(t.Context(), []Prompt{p})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range truth(t, "vllm", p) {
			if math.Abs(got[0].LogProbs[i]-want) > 1e-6 { // they come in float32
				t.Errorf("got %v, want %v at %d", got[0].LogProbs, want, i)
			}
		}
	}
}

// Where the answer's tokens alone cannot be scored, the log learns why.
func TestWhyNoTeacher(t *testing.T) {
	template := chat.QwenVL().Source()
	for _, tc := range []struct {
		name   string
		stand  *Server
		folder *string
		want   string
	}{
		{"no folder", &Server{Teacher: true}, nil, "give the model's folder, lvlm.path"},
		{"not offered", &Server{}, folder(t, 0, template), "Restart vllm serve with --enable-scale-out to enable them"},
		{"other numbers", &Server{Teacher: true, Lie: "teacher of another prompt"}, folder(t, 0, template),
			"/inference/v1/generate gives ["},
	} {
		tc.stand.Kind = "vllm"
		opt := serve(t, tc.stand)
		opt.Path = tc.folder
		scorer, err := Open(t.Context(), opt, nil)
		if err != nil {
			t.Fatal(err)
		}
		if notes := strings.Join(scorer.Notes, "\n"); !strings.Contains(notes, tc.want) || strings.Contains(notes, "\n") {
			t.Errorf("%s: %q, want %q", tc.name, notes, tc.want)
		}
		scorer.Close()
	}
	for _, kind := range []string{"sglang", "completions"} {
		scorer, err := Open(t.Context(), serve(t, &Server{Kind: kind}), nil)
		if err != nil || scorer.Notes != nil {
			t.Errorf("%s: %q, %v", kind, scorer.Notes, err)
		}
	}
}

// With the model's folder a prompt begins as its template does: a server that puts another token before it is told not to, and
// refused where it does not listen.
func TestPromptsBeginOnce(t *testing.T) {
	for _, begins := range []string{"unless told", "always"} {
		opt := serve(t, &Server{Kind: "completions", Begins: begins})
		opt.Path = folder(t, 0, chat.QwenVL().Source())
		scorer, err := Open(t.Context(), opt, nil)
		if begins == "always" {
			if err == nil || !strings.Contains(err.Error(), "lvlm.path's template has") {
				t.Errorf("got %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer scorer.Close()
		p := prompts("", 1)[0]
		got, err := scorer.Score(t.Context(), []Prompt{p})
		if want := truth(t, "sglang", p); err != nil || fmt.Sprintf("%.9f", got[0].LogProbs) != fmt.Sprintf("%.9f", want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
}

// So it is where the template alone is here; the server is asked for a prompt as it reads it.
func TestTemplatesAloneBeginOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "chat.jinja")
	if err := os.WriteFile(path, []byte("<|im_start|>"+plainTemplate), 0o666); err != nil {
		t.Fatal(err)
	}
	p := prompts("", 1)
	var want string
	for _, begins := range []string{"", "unless told", "always"} {
		opt := serve(t, &Server{Kind: "completions", Begins: begins})
		opt.Template = &path
		scorer, err := Open(t.Context(), opt, nil)
		if begins == "always" {
			if err == nil || !strings.Contains(err.Error(), `begin with "<|im_start|>" twice, by itself and by lvlm.template`) {
				t.Errorf("got %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer scorer.Close()
		got, err := scorer.Score(t.Context(), p)
		if want = cmp.Or(want, fmt.Sprint(got)); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%q: got %v, %v, want %v", begins, got, err, want)
		}
	}
}

// A server that takes no field that it does not know is asked without the penalties, once it has said so, and the log says that.
func TestStrictServers(t *testing.T) {
	for _, strict := range []string{"repeat_penalty", "repetition_penalty repeat_penalty"} {
		stand := &Server{Kind: "completions", Strict: strings.Fields(strict)}
		scorer, err := Open(t.Context(), serve(t, stand), nil)
		if err != nil {
			t.Fatalf("%s: %v", strict, err)
		}
		defer scorer.Close()
		if _, err := scorer.Answer(t.Context(), prompts("", 1)); err != nil || len(scorer.Notes) != 1 || stand.Penalised == 0 {
			t.Errorf("%s: notes %q, %d penalised, %v", strict, scorer.Notes, stand.Penalised, err)
		}
	}
}

// A language model behind a server is asked about texts alone, by the probe too.
func TestTextsAlone(t *testing.T) {
	dir := t.TempDir()
	for _, kind := range []string{"vllm", "sglang"} {
		for _, images := range []bool{false, true} { // one store knows the probes of both
			opt := serve(t, &Server{Kind: kind})
			if !images {
				opt = serve(t, &Server{Kind: kind, Model: texts{}})
			}
			opt.Images, opt.Store = images, &dir
			scorer, err := Open(t.Context(), opt, nil)
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			if _, err := scorer.Score(t.Context(), prompts("", 3)); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
			scorer.Close()
		}
	}
}

// texts reads no pictures.
type texts struct{ Toy }

func (texts) LogProbs(ids []int, images [][]byte, from int) [][]float64 {
	if len(images) > 0 {
		panic("a language model is asked about a picture")
	}
	return Toy{}.LogProbs(ids, images, from)
}

// With the model's folder every prompt is compared token by token.
func TestServersWithFolder(t *testing.T) {
	right := chat.QwenVL().Source()
	long := prompts("", 1)[0]
	long.Shots = slices.Repeat(long.Shots, 40)
	for _, kind := range kinds() {
		for _, tc := range []struct {
			name   string
			folder *string
			stand  *Server
			want   string // "" = none
		}{
			{"the model's", folder(t, 0, right), &Server{}, ""},
			{"images as one token", folder(t, 0, right), &Server{Folded: true}, ""},
			{"another tokenizer", folder(t, 1, right), &Server{}, "want"},
			{"another template", folder(t, 0, strings.Replace(right, "helpful", "useful", 1)), &Server{}, "another tokenizer or template"},
			{"a turn that goes on", folder(t, 0, right), &Server{Lie: "shifted template"}, "the prompt "},
			{"nothing ends an answer", folder(t, 0, "{% for m in messages %}{{ m.content }}{% endfor %}"), &Server{}, "lvlm.path="},
			{"none that parses", folder(t, 0, "{% if"), &Server{}, "lvlm.path="},
		} {
			tc.stand.Kind = kind
			opt := serve(t, tc.stand)
			opt.Path = tc.folder
			scorer, err := Open(t.Context(), opt, nil)
			if tc.name == "another template" && kind != "vllm" { // it is applied here, and is the one
				tc.want = ""
			}
			if kind == "completions" && tc.name == "another tokenizer" { // texts are the same
				tc.want = ""
			}
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: %s: got %v, want %q", kind, tc.name, err, tc.want)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %s: refused: %v", kind, tc.name, err)
				continue
			}
			asked := []Prompt{{Shots: slices.Clone(long.Shots), Query: long.Query}}
			if kind != "completions" {
				asked[0].Shots[3].Image, asked[0].Query.Image = red(t, 3), red(t, 9)
			}
			got, err := scorer.Score(t.Context(), asked)
			if want := truth(t, "sglang", asked[0]); tc.name != "another template" && (err != nil ||
				fmt.Sprintf("%.9f", got[0].LogProbs) != fmt.Sprintf("%.9f", want)) {
				t.Errorf("%s: %s: got %v, %v, want %v", kind, tc.name, got, err, want)
			}
			tc.stand.Lie = "cut prompts" // from now on
			asked[0].Query.Question = "another"
			if _, err := scorer.Score(t.Context(), asked); err == nil {
				t.Errorf("%s: %s: a prompt that is cut later: %v", kind, tc.name, err)
			}
			scorer.Close()
		}
	}
}
