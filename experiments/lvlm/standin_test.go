package lvlm

// This file and its neighbours are stand-ins of vLLM, SGLang and /v1/completions around a small model of this process, honest ones and
// liars. The tests of whatever asks such servers stand in this folder too: those of other packages are of package lvlm_test.
//
//	server := Start(t, &Server{Kind: "vllm", Model: Toy{}})
//	options.URL = &server.URL

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fulcrum/internal/chat"
	"fulcrum/internal/jsonwords"
)

// Server is a stand-in. Requests are answered as the kind's documentation has them, unless Lie is set.
type Server struct {
	Kind    string // vllm, sglang or completions
	Model   Model
	Name    string        // of the model; "" = toy
	Key     string        // that requests must bring; "" = none
	Context int           // tokens of the longest prompt; 0 = any
	Teacher bool          // chosen tokens can be scored (vllm)
	Folded  bool          // prompt_token_ids has images unexpanded (vllm)
	Begins  string        // puts a token before a prompt: always, unless told (completions); "" = never
	Strict  []string      // fields that it refuses, one at a time (completions)
	Loading int           // lists of models for which it is too early: it counts down
	Wait    time.Duration // that each answer takes
	Lie     string        // one of Faults or Occasional, or the next three
	// a truncated body: each seventh answer is cut; endless models, no models: its list of models never ends, or never begins
	Drift    float64 // nats of cache-order effects; 0 = 0.5
	Refuse   func(n int) (status int, header http.Header)
	Template *chat.Template // vllm's; nil = Qwen2.5-VL's

	URL       string
	Penalised int // answers asked for without repetition_penalty: the model's generation_config.json may have one

	mu     sync.Mutex
	asked  map[string]int // scored prompts
	tokens map[string]int // scored tokens of prompts, for lies that remember
	n      int            // requests for scores and answers
	said   int            // scores and answers under a lie
	before []entry        // of the last scored prompt
	other  []int          // last greedy answer
	rows   [][]float64    // of it
	active int
	most   int // requests at one time
}

// Start serves until the test ends.
func Start(t testing.TB, s *Server) *Server {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// Asked returns how often each prompt was scored.
func (s *Server) Asked() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for k, v := range s.asked {
		out[k] = v
	}
	return out
}

// Most returns how many requests were under way at one time.
func (s *Server) Most() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// Forget empties what Asked and Most tell.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.most, s.n = nil, 0, 0
}

// refusal is an answer without success.
type refusal struct {
	status  int
	message string
}

func (r refusal) Error() string { return r.message }

func (s *Server) name() string {
	if s.Name == "" {
		return "toy"
	}
	return s.Name
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	reply, err := s.serve(r)
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		status := http.StatusInternalServerError
		if refused, ok := err.(refusal); ok {
			status = refused.status
		}
		if limited, ok := err.(limit); ok {
			status = limited.status
			for k, v := range limited.header {
				w.Header()[k] = v
			}
		}
		w.WriteHeader(status)
		reply = map[string]any{"error": map[string]any{"message": err.Error(), "code": status}}
	}
	data, err := json.Marshal(reply)
	if err != nil {
		panic(err)
	}
	switch {
	case r.Method == http.MethodPost && (s.Lie == "truncated JSON" || s.Lie == "a truncated body" && s.every(7)):
		data = data[:len(data)*2/3]
	case r.Method == http.MethodPost && s.Lie == "an endless answer", r.URL.Path == "/v1/models" && s.Lie == "endless models":
		flush, _ := w.(http.Flusher)
		for r.Context().Err() == nil {
			fmt.Fprint(w, " ")
			flush.Flush()
			time.Sleep(20 * time.Millisecond)
		}
		return
	case r.URL.Path == "/v1/models" && s.Lie == "no models":
		<-r.Context().Done()
		return
	}
	w.Write(data)
}

// limit is what Refuse answers.
type limit struct {
	status int
	header http.Header
}

func (l limit) Error() string { return "try again later" }

func (s *Server) serve(r *http.Request) (any, error) {
	if s.Key != "" && r.Header.Get("Authorization") != "Bearer "+s.Key {
		return nil, refusal{http.StatusUnauthorized, "Unauthorized: " + r.Header.Get("Authorization")}
	}
	if r.Method == http.MethodGet {
		switch r.URL.Path {
		case "/v1/models":
			if s.Loading > 0 {
				s.Loading--
				return nil, refusal{http.StatusServiceUnavailable, "Loading model"}
			}
			return map[string]any{"object": "list", "data": []any{map[string]any{"id": s.name(), "object": "model", "root": "/models/toy"}}}, nil
		case map[string]string{"vllm": "/version", "sglang": "/get_server_info"}[s.Kind]:
			return map[string]any{"version": "9.8.7"}, nil
		}
		return nil, refusal{http.StatusNotFound, "Not Found"}
	}
	s.mu.Lock()
	s.n++
	n := s.n
	s.active++
	s.most = max(s.most, s.active)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.active--
		s.mu.Unlock()
	}()
	if s.Refuse != nil {
		if status, header := s.Refuse(n); status != 0 {
			return nil, limit{status, header}
		}
	}
	time.Sleep(s.Wait)
	var body request
	if err := jsonwords.Decode(json.NewDecoder(r.Body), &body); err != nil {
		return nil, refusal{http.StatusBadRequest, err.Error()}
	}
	if s.Kind != "sglang" && body.Model != s.name() {
		return nil, refusal{http.StatusNotFound, fmt.Sprintf("The model `%s` does not exist.", body.Model)}
	}
	switch s.Kind + r.URL.Path {
	case "vllm/v1/chat/completions":
		return s.vllm(body)
	case "vllm/v1/chat/completions/render", "vllm/inference/v1/generate":
		if s.Teacher {
			return s.teacher(r.URL.Path, body)
		}
		return nil, refusal{http.StatusForbidden, "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them."}
	case "sglang/generate":
		return s.sglang(body)
	case "completions/v1/completions":
		return s.completions(body)
	}
	return nil, refusal{http.StatusNotFound, "Not Found"}
}

// request has the fields of all three kinds.
type request struct {
	Model          string `json:"model"`
	Messages       json.RawMessage
	Generation     *bool    `json:"add_generation_prompt"`
	Continue       bool     `json:"continue_final_message"`
	ChatTemplate   *string  `json:"chat_template"`
	MaxTokens      *int     `json:"max_tokens"`
	PromptLogProbs *int     `json:"prompt_logprobs"`
	ReturnIDs      bool     `json:"return_token_ids"`
	TokensAsIDs    bool     `json:"return_tokens_as_token_ids"`
	LogProbs       any      `json:"logprobs"`
	TopLogProbs    int      `json:"top_logprobs"`
	Repetition     int      `json:"repetition_penalty"`
	Repeat         int      `json:"repeat_penalty"`
	Special        *bool    `json:"add_special_tokens"`
	Text           string   `json:"text"`
	Images         []string `json:"image_data"`
	Sampling       struct {
		MaxNewTokens int     `json:"max_new_tokens"`
		Repetition   int     `json:"repetition_penalty"`
		IDs          [][]int `json:"prompt_logprob_token_ids"`
		Start        int     `json:"prompt_logprob_start"`
	} `json:"sampling_params"`
	TokenIDs []int `json:"token_ids"`
	Features struct {
		Images [][]byte `json:"kwargs_data"`
	} `json:"features"`
	ReturnLogProb bool `json:"return_logprob"`
	Start         *int `json:"logprob_start_len"`
	TopNum        int  `json:"top_logprobs_num"`
	ReturnText    bool `json:"return_text_in_logprobs"`
	Prompt        string
	Echo          bool
	Stop          []string
}

// asking is a prompt as the model reads it.
type asking struct {
	ids    []int // images expanded
	told   []int // as the server tells them
	images [][]byte
}

// read expands the images of a prompt, cuts it where that is the lie, and refuses one that is too long.
func (s *Server) read(text string, urls []string, score bool) (asking, error) {
	var a asking
	pad, _ := s.Model.ImageToken(nil)
	for _, url := range urls {
		_, data, ok := strings.Cut(url, ";base64,")
		image, err := base64.StdEncoding.DecodeString(data)
		if !ok || err != nil {
			return a, refusal{http.StatusBadRequest, fmt.Sprintf("cannot identify image: %v", err)}
		}
		a.images = append(a.images, image)
	}
	n := 0
	for _, id := range s.Model.Encode(text) {
		a.told = append(a.told, id)
		if id != pad {
			a.ids = append(a.ids, id)
			continue
		}
		if n == len(a.images) {
			return a, refusal{http.StatusBadRequest, "more image tokens than images"}
		}
		_, many := s.Model.ImageToken(a.images[n])
		for range many {
			a.ids = append(a.ids, pad)
		}
		n++
	}
	if n < len(a.images) {
		return a, refusal{http.StatusBadRequest, fmt.Sprintf("%d images and %d image tokens", len(a.images), n)}
	}
	if s.Lie == "cut prompts" && len(a.ids) > 250 {
		a.ids = a.ids[len(a.ids)-250:]
	}
	if s.Lie == "dropped images" {
		a.images = nil
	}
	if s.Context > 0 && len(a.ids) > s.Context {
		return a, refusal{http.StatusBadRequest, fmt.Sprintf("This model's maximum context length is %d tokens. However, your prompt "+
			"contains %d input tokens. Please reduce the length of the input prompt.", s.Context, len(a.ids))}
	}
	if !s.Folded {
		a.told = a.ids
	}
	if score {
		s.mu.Lock()
		if s.asked == nil {
			s.asked = map[string]int{}
		}
		s.asked[text+fmt.Sprint(len(urls))+strings.Join(urls, "")]++
		s.mu.Unlock()
	}
	return a, nil
}

// entry is a token with its log-probability, and the likeliest at its place.
type entry struct {
	id      int
	logProb float64
	best    int
	bestLog float64
	rank    int
	row     []float64
}

// scores returns the entries of the prompt's tokens from place 1 on.
func (s *Server) scores(a asking) []entry {
	rows := s.Model.LogProbs(a.ids, a.images, 0)
	var out []entry
	for i := 1; i < len(a.ids); i++ {
		row := rows[i-1]
		if s.Lie == "off by one" && i+1 < len(a.ids) {
			row = rows[i]
		}
		e := entry{id: a.ids[i], logProb: row[a.ids[i]], row: row, rank: 1}
		for j, v := range row {
			if v > row[e.best] {
				e.best = j
			}
			if v > e.logProb {
				e.rank++
			}
		}
		e.bestLog = row[e.best]
		out = append(out, s.lie(e, a))
	}
	return s.occasional(out)
}

// every reports whether this is the n-th of the scores or answers under a lie.
func (s *Server) every(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said++
	return s.said%n == 0
}

// occasional tells a lie about the tokens of a prompt every so often.
func (s *Server) occasional(out []entry) []entry {
	switch s.Lie {
	case "another request's numbers": // in every tenth answer
		lies := s.every(10)
		s.mu.Lock()
		own := slices.Clone(out)
		for n := 1; lies && n <= min(len(out), len(s.before)); n++ {
			e, of := &out[len(out)-n], s.before[len(s.before)-n]
			e.logProb, e.best, e.bestLog = of.logProb, of.best, of.bestLog
		}
		s.before = own
		s.mu.Unlock()
	case "-1e30 now and then", "0.0 now and then":
		if s.every(20) {
			for i := range out {
				out[i].logProb = map[bool]float64{true: -1e30}[s.Lie[0] == '-']
			}
		}
	case "a tenth of a nat of noise":
		s.every(1)
		s.mu.Lock()
		for i := range out {
			u := float64(mix(uint64(s.said)<<32|uint64(i))>>11) / (1 << 53)
			out[i].logProb = min(0, out[i].logProb+0.2*u-0.1)
		}
		s.mu.Unlock()
	}
	return out
}

// mixed answers with what the request before it was answered, every tenth time, where that is the lie.
func (s *Server) mixed(ids []int, rows [][]float64) ([]int, [][]float64) {
	if s.Lie != "another request's answers" || len(ids) < 2 { // one token is asked for with scores
		return ids, rows
	}
	lies := s.every(10)
	s.mu.Lock()
	defer s.mu.Unlock()
	other, of := s.other, s.rows
	s.other, s.rows = ids, rows
	if lies && other != nil {
		return other, of
	}
	return ids, rows
}

// lie changes the log-probability of a token of the prompt.
func (s *Server) lie(e entry, a asking) entry {
	switch s.Lie {
	case "all zeros":
		e.logProb = 0
	case "the likeliest token's":
		e.logProb = e.bestLog
	case "base 10":
		e.logProb /= math.Ln10
	case "base 2 of scores":
		e.logProb /= math.Ln2
	case "noise", "cache-order effects":
		key := fmt.Sprint("tokens of ", a.ids)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.tokens == nil {
			s.tokens = map[string]int{}
		}
		s.tokens[key]++
		if s.Lie == "noise" {
			e.logProb -= 0.3 * float64(s.tokens[key]%7)
		} else if s.tokens[key] >= len(a.ids) { // a prompt that was seen before gives other numbers
			e.logProb -= cmp.Or(s.Drift, 0.5)
		}
	}
	return e
}

// generate answers greedily: the tokens before the end of the turn, and its rows.
func (s *Server) generate(a asking, most int) (ids []int, rows [][]float64) {
	end := s.Model.Encode("<|im_end|>")[0]
	if s.Lie == "endless generation" {
		most += 40
	}
	for len(ids) < most {
		row := s.Model.LogProbs(append(a.ids[:len(a.ids):len(a.ids)], ids...), a.images, len(a.ids)+len(ids)-1)[0]
		best := 0
		for j, v := range row {
			if v > row[best] {
				best = j
			}
		}
		ids, rows = append(ids, best), append(rows, row)
		if best == end && s.Lie != "endless generation" {
			break
		}
	}
	if s.Lie == "base 10" {
		for _, row := range rows {
			for j := range row {
				row[j] /= math.Ln10
			}
		}
	}
	return ids, rows
}
