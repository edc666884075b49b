package reward

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fulcrum/internal/testkit/golden"
	"fulcrum/rewardutil/scorer"
)

// httpScorer serves reply, which gets the items of each request.
func httpScorer(t *testing.T, reply func(w http.ResponseWriter, items []scorer.Item)) scorer.Options {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Items []scorer.Item }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		reply(w, body.Items)
	}))
	t.Cleanup(server.Close)
	o := scorer.DefaultOptions()
	o.URL, o.Backoff = &server.URL, 0.001
	return o
}

// build returns the reward and closes it with the test.
func build(t *testing.T, o scorer.Options) Reward {
	t.Helper()
	r, err := ExternalOptions{Weight: 1, Options: o}.build()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.(io.Closer).Close() })
	return r
}

// lengths are the scores that the scorers of these tests give: bytes of the answer.
func lengths(items []scorer.Item) []float64 {
	out := make([]float64, len(items))
	for i, it := range items {
		out[i] = float64(len(it.Answer))
	}
	return out
}

func words5() []Item {
	var items []Item
	for _, s := range []string{"a", "bb", "<answer>ccc</answer>", "bb", "dddd"} {
		items = append(items, Item{Completion: s})
	}
	return items
}

func TestHTTPScorerBatchesAndRemembers(t *testing.T) {
	var mu sync.Mutex
	var batches []int
	o := httpScorer(t, func(w http.ResponseWriter, items []scorer.Item) {
		mu.Lock()
		defer mu.Unlock()
		batches = append(batches, len(items))
		json.NewEncoder(w).Encode(map[string]any{"scores": lengths(items)})
	})
	o.BatchSize, o.Parallel = 2, 3
	r := build(t, o)
	for range 2 {
		got, err := r.Score(context.Background(), words5())
		if err != nil {
			t.Fatal(err)
		}
		golden.Close(t, got, []float64{1, 2, 3, 2, 4}, 0)
	}
	if len(batches) != 2 || batches[0] != 2 || batches[1] != 2 {
		t.Errorf("batches of %v, want 2 and 2: equal items once, none a second time", batches)
	}
}

// TestScoresAreForeseen: what is foreseen goes out as soon as a batch is full, nothing goes out twice, and Score returns errors of either.
func TestScoresAreForeseen(t *testing.T) {
	asked := make(chan []scorer.Item, 8)
	status := http.StatusOK
	judged := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"choices": [{"message": {"content": "5"}}], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}`)
	}))
	t.Cleanup(judged.Close)
	all := DefaultOptions()
	all.Judge.Weight, all.Judge.URL, all.External.Weight = 1, &judged.URL, 1
	all.External.Options = httpScorer(t, func(w http.ResponseWriter, items []scorer.Item) {
		asked <- items
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(lengths(items))
	})
	all.External.BatchSize = 2
	r, err := all.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	foresee := func(items []Item) {
		for _, it := range items {
			r.Foresee()(context.Background(), it)
		}
	}
	foresee(words5()[:4])
	if first := <-asked; len(first) != 2 || first[0].Answer != "a" || first[1].Answer != "bb" {
		t.Fatalf("%v went out first, want a and bb", first)
	}
	total, terms, err := r.Score(context.Background(), words5())
	if err != nil {
		t.Fatal(err)
	}
	golden.Close(t, total, []float64{1.5, 2.5, 3.5, 2.5, 4.5}, 0)
	golden.Close(t, terms["judge_tokens"], slices.Repeat([]float64{8}, 5), 0) // four different completions of ten tokens
	if second := <-asked; len(second) != 2 || second[0].Answer != "ccc" || second[1].Answer != "dddd" || len(asked) > 0 {
		t.Errorf("%v went out then, and %d more batches, want ccc and dddd", second, len(asked))
	}
	if foresee(words5()); len(asked) > 0 {
		t.Error("a known item went out again")
	}
	status = http.StatusBadRequest
	refused := []Item{{Completion: "x1"}, {Completion: "x2"}}
	foresee(refused)
	if _, _, err := r.Score(context.Background(), refused); err == nil || !strings.Contains(err.Error(), "400") {
		t.Errorf("got %v of a foreseen batch that was refused", err)
	}
}

// TestFirstErrorStopsTheRest: a batch that was refused ends one that hangs, and its error is said.
func TestFirstErrorStopsTheRest(t *testing.T) {
	done := make(chan struct{})
	defer close(done)
	o := httpScorer(t, func(w http.ResponseWriter, items []scorer.Item) {
		if items[0].Answer == "a" { // the first of them
			<-done
		}
		w.WriteHeader(http.StatusBadRequest)
	})
	o.BatchSize, o.Parallel, o.Timeout, o.Retries = 1, 3, 30, 0
	began := time.Now()
	_, err := build(t, o).Score(context.Background(), words5())
	if err == nil || !strings.Contains(err.Error(), "400") || time.Since(began) > 20*time.Second {
		t.Errorf("%v after %v, want 400 at once", err, time.Since(began))
	}
}

// TestClosedWhileForeseen: a run that ends does not wait for a scorer that is slow.
func TestClosedWhileForeseen(t *testing.T) {
	o := scorer.DefaultOptions()
	o.Command, o.BatchSize = []string{"sleep", "60"}, 1
	r, err := ExternalOptions{Weight: 1, Options: o}.build()
	if err != nil {
		t.Fatal(err)
	}
	r.(foresees).foresee()(context.Background(), words5()[0])
	began := time.Now()
	if err := r.(io.Closer).Close(); err != nil || time.Since(began) > 30*time.Second {
		t.Errorf("closed after %v: %v", time.Since(began), err)
	}
}

func TestHTTPScorerSeesTheRecord(t *testing.T) {
	var seen scorer.Item
	o := httpScorer(t, func(w http.ResponseWriter, items []scorer.Item) {
		seen = items[0]
		fmt.Fprint(w, "[0.5]") // the list alone is an answer too
	})
	r := build(t, o)
	it := Item{Prompt: "p<", Completion: "<answer>c</answer>", Reference: "r", Answers: []string{"x"}, Images: []string{"/a.png"},
		Meta: []byte(`{"k":1}`)}
	golden.Close(t, []float64{score1(t, r, it)}, []float64{0.5}, 0)
	want := scorer.Item{Prompt: "p<", Completion: "<answer>c</answer>", Answer: "c", Reference: "r", Answers: []string{"x"},
		Images: []string{"/a.png"}, Meta: []byte(`{"k":1}`)}
	if fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", seen, want)
	}
}

func TestHTTPScorerRetries(t *testing.T) {
	for _, tc := range []struct {
		name   string
		status []int // of the first requests; then 200
		tries  int32
		want   string // error; empty: success
	}{
		{"an overloaded server", []int{503, 429}, 3, ""},
		{"for ever", []int{500, 500, 500, 500}, 3, "3 attempts: status 500"},
		{"a closed connection", []int{0, 0, 0, 0}, 3, "3 attempts: the server closed the connection without an answer"},
		{"a refusal is final", []int{400}, 1, "status 400 Bad Request: no | good"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var n atomic.Int32
			o := httpScorer(t, func(w http.ResponseWriter, items []scorer.Item) {
				if k := int(n.Add(1)) - 1; k < len(tc.status) {
					if tc.status[k] == 0 {
						panic(http.ErrAbortHandler)
					}
					http.Error(w, "no\ngood", tc.status[k])
					return
				}
				json.NewEncoder(w).Encode(lengths(items))
			})
			_, err := build(t, o).Score(context.Background(), words5())
			if n.Load() != tc.tries {
				t.Errorf("%d requests, want %d", n.Load(), tc.tries)
			}
			if tc.want == "" && err != nil || tc.want != "" &&
				(err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), *o.URL)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// An answer that breaks off is asked for again, as after a status 500.
func TestCutAnswers(t *testing.T) {
	whole := `{"scores": [1, 2]}`
	for n := range len(whole) {
		var asked atomic.Int32
		o := httpScorer(t, func(w http.ResponseWriter, _ []scorer.Item) {
			if asked.Add(1) == 1 {
				fmt.Fprint(w, whole[:n])
				return
			}
			fmt.Fprint(w, whole)
		})
		got, err := build(t, o).Score(context.Background(), []Item{{Completion: "a"}, {Completion: "b"}})
		if err != nil || fmt.Sprint(got) != "[1 2]" || asked.Load() != 2 {
			t.Errorf("%q: %v, %v after %d requests", whole[:n], got, err, asked.Load())
		}
	}
}

func TestScorersThatAnswerWrong(t *testing.T) {
	for _, tc := range []struct{ name, body, want string }{
		{"too few", `{"scores": [1]}`, "1 scores for 2 items"},
		{"null", `[1, null]`, "score 1 is null: want a number"},
		{"no JSON", `Traceback`, `answer Traceback: want {"scores": [numbers]}`},
		{"text", `["1", "2"]`, `answer ["1", "2"]: want {"scores": [numbers]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var n atomic.Int32
			o := httpScorer(t, func(w http.ResponseWriter, _ []scorer.Item) {
				n.Add(1)
				fmt.Fprint(w, tc.body)
			})
			_, err := build(t, o).Score(context.Background(), []Item{{Completion: "a"}, {Completion: "b"}})
			if err == nil || !strings.Contains(err.Error(), tc.want) || n.Load() != 1 {
				t.Errorf("got %v after %d requests, want %q after one", err, n.Load(), tc.want)
			}
		})
	}
}

func TestScorerTimesOut(t *testing.T) {
	release := make(chan struct{})
	o := httpScorer(t, func(http.ResponseWriter, []scorer.Item) { <-release })
	t.Cleanup(func() { close(release) }) // before the server waits for its handlers
	slow := scorer.DefaultOptions()
	slow.Command = []string{"sh", "-c", "echo loading >&2; sleep 600"}
	for name, o := range map[string]scorer.Options{"http": o, "command": slow} {
		o.Retries = 0
		for _, o.Keep = range []bool{false, true} {
			var err error
			for o.Timeout = 0.2; o.Timeout < 60; o.Timeout *= 8 { // until the command has begun in time
				_, err = build(t, o).Score(context.Background(), words5())
				if err == nil || !strings.Contains(err.Error(), fmt.Sprint("no scores for 4 items within timeout_seconds=", o.Timeout)) {
					t.Fatalf("%s: got %v", name, err)
				}
				if name == "http" || strings.Contains(err.Error(), "stderr: loading") {
					break
				}
			}
			if name == "command" && (!strings.Contains(err.Error(), "stderr: loading") || strings.Contains(err.Error(), "flush") != o.Keep) {
				t.Errorf("keep %v: got %v", o.Keep, err)
			}
		}
	}
}

// TestCommandThatGoesOn: a command that is not kept and does not end after its scores is named, not waited for batch by batch.
func TestCommandThatGoesOn(t *testing.T) {
	for _, script := range []string{"while read -r l; do echo 1; done; sleep 60", "while read -r l; do echo 1; done; exec >&-; sleep 60"} {
		o := scorer.DefaultOptions()
		o.Command, o.Backoff = []string{"sh", "-c", script}, 0.01
		var err error
		for o.Timeout = 0.3; o.Timeout < 60 && (err == nil || strings.Contains(err.Error(), "of 4 scores")); o.Timeout *= 8 {
			if _, err = build(t, o).Score(t.Context(), words5()); err == nil {
				t.Fatalf("%s: it was waited for, and no error", script)
			}
		}
		if !strings.Contains(err.Error(), ": all scores are there, but the command") || strings.Contains(err.Error(), "attempts") {
			t.Errorf("%s: %v", script, err)
		}
	}
}

func TestCancelledScorer(t *testing.T) {
	o := scorer.DefaultOptions()
	o.Command, o.Backoff = []string{"sh", "-c", "exit 1"}, 100
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := build(t, o).Score(ctx, words5()); err == nil || !strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
		t.Errorf("got %v", err)
	}
}

func TestCommandScorer(t *testing.T) {
	dir := t.TempDir()
	count := filepath.Join(dir, "started")
	script := `echo x >> ` + count + `; while read -r line; do a=${line##*\"answer\":\"}; a=${a%%\"*}; echo ${#a}; done`
	for _, tc := range []struct {
		name    string
		script  string
		keep    bool
		started int
	}{
		{"one process a batch", script, false, 4},
		{"a kept process", script, true, 1},
		{"a program that reads everything first", `echo x >> ` + count +
			`; n=$(wc -l); i=0; while [ $i -lt $n ]; do i=$((i+1)); echo "{\"score\": $i}"; done`, false, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			os.Remove(count)
			o := scorer.DefaultOptions()
			o.Command, o.Keep, o.BatchSize, o.Cache = []string{"sh", "-c", tc.script}, tc.keep, 2, 0
			r := build(t, o)
			for range 2 {
				got, err := r.Score(context.Background(), words5())
				if err != nil {
					t.Fatal(err)
				}
				want := []float64{1, 2, 3, 2, 4}
				if strings.Contains(tc.script, "wc") {
					want = []float64{1, 2, 1, 2, 2}
				}
				golden.Close(t, got, want, 0)
			}
			if b, err := os.ReadFile(count); err != nil || len(b)/2 != tc.started {
				t.Errorf("started %d times (%v), want %d", len(b)/2, err, tc.started)
			}
		})
	}
}

func TestCommandScorerErrors(t *testing.T) {
	for _, tc := range []struct{ name, script, want string }{
		{"fails", "echo out of memory >&2; exit 3", "2 attempts: the command ended after 0 of 4 scores; stderr: out of memory"},
		{"prints text", "echo hello", `line "hello": want a number or {"score": number} (messages belong on stderr)`},
		{"prints a line without an end", "while :; do printf %65536s x; done", `x": want a number or {"score": number}`},
		{"prints too much", "while read -r l; do echo 1; echo 2; done", "more scores than items"},
	} {
		for _, keep := range []bool{false, true} {
			t.Run(fmt.Sprint(tc.name, " keep ", keep), func(t *testing.T) {
				o := scorer.DefaultOptions()
				o.Command, o.Keep, o.Retries, o.Backoff = []string{"sh", "-c", tc.script}, keep, 1, 0
				r := build(t, o)
				_, err := r.Score(context.Background(), words5())
				for i := 0; err == nil && i < 100; i++ { // a kept program's surplus is seen once it is there
					_, err = r.Score(context.Background(), []Item{{Completion: strings.Repeat("x", i)}})
				}
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v, want %q", err, tc.want)
				}
			})
		}
	}
}

func TestScorersAreSafeForConcurrentUse(t *testing.T) {
	o := scorer.DefaultOptions()
	o.Command, o.Keep, o.BatchSize, o.Parallel, o.Cache = []string{"sh", "-c",
		`while read -r line; do a=${line##*\"answer\":\"}; a=${a%%\"*}; echo ${#a}; done`}, true, 2, 2, 4
	r := build(t, o)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			items := make([]Item, 20)
			want := make([]float64, len(items))
			for i := range items {
				items[i].Completion = strings.Repeat("x", 1+(g+i)%7)
				want[i] = float64(1 + (g+i)%7)
			}
			got, err := r.Score(context.Background(), items)
			if err != nil {
				t.Error(err)
				return
			}
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("item %d: got %v, want %v", i, got[i], want[i])
				}
			}
		})
	}
	wg.Wait()
}

func TestPointsGoToTheSegmenter(t *testing.T) {
	var seen []scorer.Item
	o := DefaultOptions().Points
	o.Weight = 1
	o.Segmenter = httpScorer(t, func(w http.ResponseWriter, items []scorer.Item) {
		seen = append(seen, items...)
		fmt.Fprint(w, "[0.25]")
	})
	r, err := o.build()
	if err != nil {
		t.Fatal(err)
	}
	answer := `{"negative_points": [[1, 2]], "positive_points": [[3, 4]], "bbox": [0, 0, 5, 5]}`
	got, err := r.Score(context.Background(), []Item{{Completion: "nothing"}, {Completion: answer, Images: []string{"/data/a.png"}}})
	if err != nil {
		t.Fatal(err)
	}
	golden.Close(t, got, []float64{0, 0.25}, 0)
	if len(seen) != 1 || fmt.Sprint(seen[0].Points, seen[0].Positive, seen[0].Boxes) != "[[1 2]] [[3 4]] [[0 0 5 5]]" ||
		seen[0].Images[0] != "/data/a.png" {
		t.Errorf("the segmenter saw %+v", seen)
	}
}

// A scorer may run in any folder: what it gets are absolute paths, of pictures and of the files that meta names.
func TestScorersGetPathsThatTheyCanOpen(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll("data/masks", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"data/a.png", "data/masks/m.png", "data/3"} {
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var got scorer.Item
	o := httpScorer(t, func(w http.ResponseWriter, items []scorer.Item) {
		got = items[0]
		json.NewEncoder(w).Encode(map[string]any{"scores": lengths(items)})
	})
	score1(t, build(t, o), Item{
		Completion: "x", Images: []string{"data/a.png", "data:image/png;base64,AA==", "/elsewhere/b.png"}, Root: "data",
		Meta: json.RawMessage(`{"mask": "masks/m.png", "more": [{"file": "a.png"}], "folder": "masks", "gone": "masks/no.png", "n": 1234567890123456789, "three": 3, "full": "/elsewhere/m.png"}`),
	})
	full := func(name string) string { return filepath.Join(here, name) }
	if want := []string{full("data/a.png"), "data:image/png;base64,AA==", "/elsewhere/b.png"}; !slices.Equal(got.Images, want) {
		t.Errorf("images %q, want %q", got.Images, want)
	}
	want := fmt.Sprintf(`{"folder":"masks","full":"/elsewhere/m.png","gone":"masks/no.png","mask":%q,"more":[{"file":%q}],"n":1234567890123456789,"three":3}`, full("data/masks/m.png"), full("data/a.png"))
	if string(got.Meta) != want {
		t.Errorf("meta %s\nwant %s", got.Meta, want)
	}
	if meta := json.RawMessage(`{"b": 1,  "a": "text"}`); string(metaWithFiles(meta, "data")) != string(meta) {
		t.Error("a meta without files changed")
	}
}

// The scorer of the examples with the public package sam2 and random weights. It wants a Python that has them:
// SAM2_PYTHON=venv/bin/python.
func TestSAM2Scorer(t *testing.T) {
	python := os.Getenv("SAM2_PYTHON")
	if python == "" {
		t.Skip("SAM2_PYTHON names no Python with the package sam2")
	}
	examples := filepath.Join(golden.RepoRoot(), "docs", "examples", "vl")
	o := DefaultOptions().Points
	o.Weight, o.Segmenter.Keep, o.Segmenter.Timeout = 1, true, 600
	o.Segmenter.Command = []string{python, filepath.Join(examples, "sam2_scorer.py"), "--random-weights", "--reward", "gain"}
	r, err := o.build()
	if err != nil {
		t.Fatal(err)
	}
	defer r.(io.Closer).Close()
	t.Chdir(examples) // as a run started there: what the scorer gets are absolute paths all the same
	item := func(answer string) Item {
		return Item{Completion: answer, Images: []string{"pictures/one.png"}, Root: ".",
			Meta: json.RawMessage(`{"ground_truth_mask": "masks/object.png", "confusion_mask": "masks/confusion.png", "width": 112, "height": 112}`)}
	}
	scores, err := r.Score(context.Background(), []Item{item("(82, 56)"), item("(20, 100) (100, 20)"), item("nothing"),
		item(`{"negative_points": [[82, 56]], "positive_points": [[30, 50]], "bbox": [10, 10, 50, 90]}`), item("(82, 56)")})
	if err != nil {
		t.Fatal(err)
	}
	if scores[0] == scores[1] || scores[0] == scores[3] || scores[2] != 0 || scores[0] != scores[4] || scores[0] == 0 {
		t.Errorf("scores %v: want other ones for other points and prompts, 0 for none", scores)
	}
	for _, s := range scores {
		if s < -1 || s > 1 {
			t.Errorf("score %v: want a difference of two IoUs", s)
		}
	}
}

// A redirect to another host is told and not followed: neither the key nor the items nor the address get there.
func TestHTTPScorerKeepsToItsHost(t *testing.T) {
	var foreign atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { foreign.Add(1) }))
	defer other.Close()
	referer, hops := "", 0
	to := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/take?k=KEYSECRET", http.StatusTemporaryRedirect)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hops++
		referer += r.Header.Get("Referer")
		to(w, r)
	}))
	defer server.Close()
	o := scorer.DefaultOptions()
	address := strings.Replace(server.URL, "://", "://me:PWSECRET@", 1) + "/score?api_key=KEYSECRET"
	o.URL, o.Backoff, o.Headers = &address, 0.001, map[string]string{"Authorization": "Bearer KEYSECRET"}
	_, err := build(t, o).Score(context.Background(), words5()[:1])
	if err == nil || !strings.Contains(err.Error(), "redirects to "+other.URL+"/take, which is not followed") ||
		strings.Contains(err.Error(), "SECRET") || foreign.Load() > 0 || hops > 1 {
		t.Errorf("%d requests reached another host, %d the scorer: %v", foreign.Load(), hops, err)
	}
	to = func(w http.ResponseWriter, r *http.Request) { // a slash that a framework adds
		if r.URL.Path == "/score" {
			http.Redirect(w, r, "/score/?api_key=KEYSECRET", http.StatusTemporaryRedirect)
			return
		}
		if body, _ := io.ReadAll(r.Body); !strings.Contains(string(body), `"items"`) || r.Header.Get("Authorization") == "" {
			http.Error(w, "no items", 400)
			return
		}
		fmt.Fprint(w, "[1]")
	}
	if v := score1(t, build(t, o), words5()[0]); v != 1 || referer != "" {
		t.Errorf("a redirect on the host: %v, referer %q", v, referer)
	}
}

// No message repeats a secret: not of the address, not of the headers, not of an answer that quotes them.
func TestHTTPScorerHidesSecrets(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		say := r.URL.Query().Get("say")
		if say == "" {
			panic(http.ErrAbortHandler) // a lost connection
		}
		if say != "answer" {
			w.WriteHeader(403)
		}
		user, pw, _ := r.BasicAuth()
		fmt.Fprint(w, "you are ", user, pw, r.Header, r.URL) // with "Basic bWU6…"
	}))
	defer server.Close()
	command := scorer.DefaultOptions()
	command.Command, command.Retries = []string{"sh", "-c", "exit 3", "--api-key", "KEYSECRET", "--token=KEYSECRET", "http://me:PWSECRET@h/"},
		0
	_, err := build(t, command).Score(context.Background(), words5()[:1])
	if err == nil || strings.Contains(err.Error(), "SECRET") || !strings.Contains(err.Error(), "--token=***") {
		t.Errorf("command: %v", err)
	}
	o := scorer.DefaultOptions()
	o.Retries, o.Headers = 0, map[string]string{"X-Api-Key": "KEYSECRET"}
	for _, say := range []string{"", "status", "answer"} {
		address := strings.Replace(server.URL, "://", "://me:PWSECRET@", 1) + "/score?api_key=KEYSECRET&say=" + say
		o.URL = &address
		_, err := build(t, o).Score(context.Background(), words5()[:1])
		if err == nil || strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), "bWU6") ||
			!strings.Contains(err.Error(), "scorer "+server.URL+"/score: ") {
			t.Errorf("%q: %v", say, err)
		}
	}
	for _, address := range []string{"http://me:PW/SECRET@host/", "ftp://me:PWSECRET@host", "http://[::1:PWSECRET"} {
		o.URL = &address
		if err := o.Validate(); err == nil || strings.Contains(err.Error(), "SECRET") && strings.Contains(address, "@") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
