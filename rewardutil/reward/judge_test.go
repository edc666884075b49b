package reward

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// chat is a stand-in of OpenAI's chat API.
type chat struct {
	mu     sync.Mutex
	asked  []map[string]any
	answer func(prompt string) string
	status func(n int) int // of the nth request; 0 = 200
	key    string
}

func (c *chat) serve(t *testing.T) *string {
	t.Helper()
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	return &server.URL
}

func (c *chat) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != "/v1/chat/completions" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if c.key != "" && r.Header.Get("Authorization") != "Bearer "+c.key {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"error": {"message": "Incorrect API key provided: %s"}}`, r.Header.Get("Authorization"))
		return
	}
	c.mu.Lock()
	c.asked = append(c.asked, body)
	n := len(c.asked)
	c.mu.Unlock()
	if c.status != nil && c.status(n) != 0 {
		w.WriteHeader(c.status(n))
		return
	}
	message, _ := body["messages"].([]any)[0].(map[string]any)
	prompt, _ := message["content"].(string)
	json.NewEncoder(w).Encode(map[string]any{
		"choices": []any{map[string]any{"message": map[string]any{"role": "assistant", "content": c.answer(prompt)}}},
		"usage":   map[string]any{"prompt_tokens": 90, "completion_tokens": 10},
	})
}

// judged returns the options of a judge that is on.
func judged(url *string) JudgeOptions {
	o := DefaultOptions().Judge
	o.Weight, o.URL, o.backoff, o.Prompt = 1, url, 0, "{answer}"
	return o
}

func TestJudgeReadsScores(t *testing.T) {
	half := 0.5
	for _, tc := range []struct {
		name, said string
		change     func(o *JudgeOptions)
		want       float64 // -1: an error
	}{
		{"a number alone", "7", nil, 0.7},
		{"a number in a sentence", "I give it 2.5 out of 10.", nil, 0.25},
		{"more than the most", "12", nil, 1},
		{"less than the least", "-3", nil, 0},
		{"between other limits", "3", func(o *JudgeOptions) { o.Min, o.Max = 1, 5 }, 0.5},
		{"a group of the expression", "7 of 9, score: 4", func(o *JudgeOptions) { o.Pattern = `score: (\d+)` }, 0.4},
		{"a key of an object", `{"why": "9 lives", "score": 6}`, func(o *JudgeOptions) { o.Pattern = `"score": *(\d+)` }, 0.6},
		{"an object without the key", `{"grade": 6}`, func(o *JudgeOptions) { o.Pattern = `"score": *(\d+)` }, -1},
		{"a thought before the answer", "<think>of 10, or 9?</think> 6", nil, 0.6},
		{"a thought that the prompt has begun", "of 10, or 9?</think> 6", nil, 0.6},
		{"a thought before a score in front", "<think>of 10?</think>6 of 10", func(o *JudgeOptions) { o.Pattern = `^(\d+)` }, 0.6},
		{"a thought without an end", "<think>It is 9 out of", nil, -1},
		{"no number", "very good", nil, -1},
		{"no number, and a score for that", "very good", func(o *JudgeOptions) { o.Unreadable = &half }, 0.5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := judged((&chat{answer: func(string) string { return tc.said }}).serve(t))
			if tc.change != nil {
				tc.change(&o)
			}
			r, err := o.build()
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.Score(t.Context(), []Item{{Completion: "x"}})
			switch {
			case tc.want < 0:
				if err == nil || !strings.Contains(err.Error(), "no score in the judge's answer") || strings.Contains(err.Error(), "\n") {
					t.Errorf("got %v, %v", got, err)
				}
			case err != nil || got[0] != tc.want:
				t.Errorf("got %v, %v, want %v", got, err, tc.want)
			}
		})
	}
}

// What the judge is asked, what it costs, and that nothing is asked twice.
func TestJudgeAsks(t *testing.T) {
	c := &chat{answer: func(p string) string { return fmt.Sprint(len(p) % 10) }, status: func(n int) int {
		if n == 2 {
			return http.StatusTooManyRequests
		}
		return 0
	}}
	o := judged(c.serve(t))
	model := "grader"
	o.Prompt, o.Model, o.MaxNewTokens = "{prompt}|{answer}|{reference}|{answers}|{completion}", &model, 3
	o.Parallel = 1
	r, err := o.build()
	if err != nil {
		t.Fatal(err)
	}
	items := []Item{
		{Prompt: "why?", Completion: "<answer>{reference}</answer>", Reference: "so", Answers: []string{"a", "b"}}, {Completion: "y"},
		{Completion: "y"}, {Completion: "z"},
	}
	_, measures, err := scoreMeasured(t.Context(), r, items)
	if err != nil || len(c.asked) != 4 { // three questions, one of them asked again
		t.Fatalf("asked %d times, %v", len(c.asked), err)
	}
	var prompts []any
	for _, body := range c.asked {
		message, _ := body["messages"].([]any)[0].(map[string]any)
		prompts = append(prompts, message["content"])
	}
	if want := any("why?|{reference}|so|a, b|<answer>{reference}</answer>"); !slices.Contains(prompts, want) {
		t.Errorf("asked %q, want %q", prompts, want)
	}
	if c.asked[0]["model"] != "grader" || c.asked[0]["max_tokens"] != 3.0 || c.asked[0]["temperature"] != 0.0 {
		t.Errorf("asked %v", c.asked[0])
	}
	if got := measures["judge_tokens"]; !slices.Equal(got, []float64{75, 75, 75, 75}) { // 3 × 100 over 4 completions
		t.Errorf("tokens %v", got)
	}
	if _, measures, err = scoreMeasured(t.Context(), r, items); err != nil || len(c.asked) != 4 || measures["judge_tokens"][0] != 0 {
		t.Errorf("the second time: asked %d times, %v, %v", len(c.asked), measures, err)
	}
}

func TestJudgeRefuses(t *testing.T) {
	t.Setenv("JUDGE_TEST_KEY", "sesame-4711")
	right, wrong, none := "JUDGE_TEST_KEY", "JUDGE_TEST_WRONG", "JUDGE_TEST_NONE"
	t.Setenv(wrong, "hunter-22-77")
	url := (&chat{answer: func(string) string { return "5" }, key: "sesame-4711"}).serve(t)
	folder := "model"
	for _, tc := range []struct {
		name   string
		change func(o *JudgeOptions)
		want   string // "" = none
	}{
		{"the key", func(o *JudgeOptions) { o.KeyEnv = &right }, ""},
		{"no key where one is wanted", func(*JudgeOptions) {}, "it wants a key: rewards.judge.key_env=NAME"},
		{"a wrong key", func(o *JudgeOptions) { o.KeyEnv = &wrong }, "does not take the key in " + wrong + " (rewards.judge.key_env)"},
		{"a key that is not set", func(o *JudgeOptions) { o.KeyEnv = &none }, "key_env: the variable JUDGE_TEST_NONE is not set"},
		{"no judge", func(o *JudgeOptions) { o.URL = nil }, "url: want the address of a judge"},
		{"two judges", func(o *JudgeOptions) { o.Path = &folder }, "url: want the address of a judge"},
		{"a bad expression", func(o *JudgeOptions) { o.Pattern = "(" }, "pattern: error parsing regexp"},
		{"limits that leave nothing", func(o *JudgeOptions) { o.Min = 10 }, "max: want more than min 10, got 10"},
		{"a prompt without the completion", func(o *JudgeOptions) { o.Prompt = "{prompt}" }, "prompt: want {answer} or {completion}"},
	} {
		o := judged(url)
		tc.change(&o)
		r, err := o.build()
		if err == nil {
			_, err = r.Score(t.Context(), []Item{{Completion: "x"}})
		}
		if (err == nil) != (tc.want == "") || err != nil && (!strings.Contains(err.Error(), tc.want) ||
			strings.Contains(err.Error(), "hunter") || strings.Contains(err.Error(), "sesame")) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
}

// echoModel answers with the length of the prompt.
type echoModel struct{ calls, closed int }

func (m *echoModel) Answer(_ context.Context, prompts []string) ([]string, error) {
	m.calls++
	said := make([]string, len(prompts))
	for i, p := range prompts {
		said[i] = fmt.Sprint(len(p))
	}
	return said, nil
}

func (m *echoModel) Close() error { m.closed++; return nil }

func TestJudgeInThisProcess(t *testing.T) {
	o := DefaultOptions()
	folder := "model"
	o.Judge = judged(nil)
	o.Judge.Path = &folder
	model := &echoModel{}
	r, err := o.Build(func(JudgeOptions) (TextModel, error) { return model, nil })
	if err != nil {
		t.Fatal(err)
	}
	total, terms, err := r.Score(t.Context(), []Item{{Completion: "1234567"}, {Completion: "12"}})
	if err != nil || !slices.Equal(total, []float64{0.7, 0.2}) || !slices.Equal(terms["judge"], total) || model.calls != 1 {
		t.Errorf("got %v, %v, %v in %d calls", total, terms, err, model.calls)
	}
	if err := r.Close(); err != nil || model.closed != 1 {
		t.Errorf("closed %d times, %v", model.closed, err)
	}
}
