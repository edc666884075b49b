package lvlm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"fulcrum/internal/digest"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/option"
	"fulcrum/internal/webapi"
)

// server is a model behind an address. It is safe for concurrent use.
type server struct {
	opt       Options
	client    *webapi.Client
	protocol  protocol
	rendering *rendering
	pictures  pictures
	throttle  *throttle
	retries   int // none until the server has answered
	backoff   time.Duration

	model  string
	served []string // names of models
	id     Identity
	first  *told      // token of every prompt; nil: not known
	known  Likelihood // of the probe

	teacher bool     // only the answer's places are scored
	penalty int      // that completions is told: 1 = none; 0: it may be told nothing
	begun   bool     // completions: the template begins a prompt as the server would
	notes   []string // of the probe, for the log
}

// dial finds out what serves at the address, and refuses what cannot score (probe).
func dial(ctx context.Context, opt Options) (*server, error) {
	headers := map[string]string{}
	if opt.KeyEnv != nil {
		key := os.Getenv(*opt.KeyEnv)
		if key == "" {
			return nil, fmt.Errorf("lvlm.key_env=%s: this variable is not set here: want the server's key", *opt.KeyEnv)
		}
		headers["Authorization"] = "Bearer " + key
	}
	address := strings.TrimSuffix(strings.TrimSuffix(*opt.URL, "/"), "/v1")
	client, err := webapi.New(address, headers, opt.Concurrency)
	if err != nil {
		return nil, fmt.Errorf("lvlm.%w", err)
	}
	s := &server{opt: opt, client: client, pictures: pictures{size: opt.ImageSize}, backoff: time.Second, penalty: 1,
		throttle: &throttle{most: float64(opt.Concurrency), bound: float64(opt.Concurrency)}}
	s.protocol = map[string]protocol{"vllm": vllm{s}, "sglang": sglang{s}, "completions": completions{s}}[opt.Backend]
	if s.rendering, err = openRendering(opt, fallback(opt.Backend)); err != nil {
		return nil, err
	}
	if err := s.introduce(ctx); err != nil {
		return nil, s.named(err)
	}
	s.retries = min(opt.Retries, 1) // it is there, and may be busy
	if err := s.probe(ctx); err != nil {
		return nil, s.named(fmt.Errorf("refused: %w", err))
	}
	s.retries = opt.Retries
	return s, nil
}

func (s *server) named(err error) error {
	return fmt.Errorf("lvlm.backend=%s at %s: %w", s.opt.Backend, s.client.Address(), err)
}

// introduce asks for the names of models and of the program. A server that is up tells them at once, or that it is busy: one that never
// comes to the end of its answer does not keep a job waiting.
func (s *server) introduce(ctx context.Context) error {
	var said []byte
	err := webapi.Retry(ctx, s.patience(), func(ctx context.Context) (err error) {
		const patience = 10 * time.Second
		ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("refused: no whole list of models (/v1/models) in %v", patience))
		defer cancel()
		if said, err = s.client.Do(ctx, http.MethodGet, "/v1/models", nil); err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return err
	})
	var list struct {
		Data []struct {
			ID   string `json:"id"`
			Root string `json:"root"`
		} `json:"data"`
	}
	var status *webapi.StatusError
	switch {
	case errors.As(err, &status) && status.Code == http.StatusNotFound: // it tells no names
	case err != nil:
		return s.explain(err)
	default:
		if err := jsonwords.Unmarshal(said, &list); err != nil {
			return fmt.Errorf("/v1/models: %w", err)
		}
	}
	for _, m := range list.Data {
		s.served = append(s.served, m.ID)
	}
	s.model = option.Or(s.opt.Model, "")
	switch {
	case s.model == "" && len(s.served) != 1:
		return fmt.Errorf("it serves %d models (%s): give lvlm.model=NAME", len(s.served), strings.Join(s.served, ", "))
	case s.model == "":
		s.model = s.served[0]
	case len(s.served) > 0 && !slices.Contains(s.served, s.model):
		return fmt.Errorf("it has no model %q: it serves %s", s.model, strings.Join(s.served, ", "))
	}
	s.id = Identity{Backend: s.opt.Backend, Model: s.model, Engine: s.opt.Backend, ImageSize: s.opt.ImageSize}
	if t := s.rendering.template; t != nil { // otherwise the server's own
		s.id.Template = digest.Of([]byte(t.Source()))
	}
	for _, m := range list.Data {
		if m.ID == s.model {
			s.id.Revision = m.Root
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	for _, path := range []string{"/version", "/server_info", "/get_server_info"} {
		var info struct {
			Version string `json:"version"`
		}
		if said, err := s.client.Do(ctx, http.MethodGet, path, nil); err == nil && json.Unmarshal(said, &info) == nil && info.Version != "" {
			s.id.Engine += " " + info.Version
			break
		}
	}
	return nil
}

func (s *server) Identity() Identity { return s.id }
func (s *server) Close() error       { return s.client.Close() }

// Score asks for one prompt after the other: Stored calls it for many at a time.
func (s *server) Score(ctx context.Context, prompts []Prompt) ([]Likelihood, error) {
	out := make([]Likelihood, len(prompts))
	for i, p := range prompts {
		e, err := s.score(ctx, p)
		if err == nil {
			out[i], err = s.likelihood(p, e)
		}
		if err == nil {
			err = out[i].check()
		}
		if err == nil {
			err = s.certain(ctx, p, out[i], e)
		}
		if err != nil {
			return nil, s.named(fmt.Errorf("query %d: %w", p.Query.ID, err))
		}
	}
	return out, nil
}

// Answer asks for one prompt after the other. White space around an answer is none of it, as in this process.
func (s *server) Answer(ctx context.Context, prompts []Prompt) ([]Reply, error) {
	out := make([]Reply, len(prompts))
	for i, p := range prompts {
		g, err := s.answer(ctx, p, 0)
		if err != nil {
			return nil, s.named(fmt.Errorf("query %d: %w", p.Query.ID, err))
		}
		out[i] = Reply{strings.TrimSpace(g.text), g.prompt}
	}
	return out, nil
}

// score returns the tokens of a prompt, and what is wrong with them whatever the prompt.
func (s *server) score(ctx context.Context, p Prompt) (echo, error) {
	if s.teacher {
		return s.teach(ctx, p)
	}
	path, body, err := s.protocol.scoring(p)
	if err != nil {
		return echo{}, err
	}
	return s.read(ctx, path, body, len(p.Query.Answer)+len(s.rendering.ending)+1)
}

// read posts a request for scores and reads the last tokens of its answer: a token spells a byte at least.
func (s *server) read(ctx context.Context, path string, body any, last int) (echo, error) {
	reply, err := s.post(ctx, path, body)
	if err != nil {
		return echo{}, err
	}
	e, err := s.protocol.scored(reply, last)
	if err != nil {
		return echo{}, err
	}
	if e.model != "" && e.model != s.model && !slices.Contains(s.served, e.model) {
		return echo{}, fmt.Errorf("model %q answers, %q was asked", e.model, s.model)
	}
	return e, nil
}

func (s *server) answer(ctx context.Context, p Prompt, top int) (greedy, error) {
	p.Query.Answer = ""
	path, body, err := s.protocol.answering(p, top)
	if err != nil {
		return greedy{}, err
	}
	reply, err := s.post(ctx, path, body)
	if err != nil {
		return greedy{}, err
	}
	g, err := s.protocol.answered(reply)
	const letter = 32 // tokens: llama.cpp's server goes on while the bytes of its tokens spell no whole letter
	if err == nil && len(g.tokens) > s.opt.MaxNewTokens+letter {
		err = fmt.Errorf("its answer has %d tokens, and %d were allowed", len(g.tokens), s.opt.MaxNewTokens)
	}
	g.text, _, _ = strings.Cut(g.raw, s.rendering.ending) // some leave what stopped them, or do not know how our template ends a turn
	return g, err
}

// post sends a request when its turn has come, as often as it takes.
func (s *server) post(ctx context.Context, path string, body any) (said []byte, err error) {
	data, ok := body.([]byte)
	if !ok {
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	patience := s.patience()
	patience.Turn = s.throttle.enter
	err = webapi.Retry(ctx, patience, func(ctx context.Context) error {
		said, err = s.client.Do(ctx, http.MethodPost, path, data)
		if err == nil {
			err = s.client.Whole(said)
		}
		status, ok := errors.AsType[*webapi.StatusError](err)
		s.throttle.exit(ok && status.Busy())
		return err
	})
	return said, s.explain(err)
}

func (s *server) patience() webapi.Patience {
	return webapi.Patience{Timeout: time.Duration(s.opt.Timeout * float64(time.Second)), Retries: s.retries,
		Busy: s.opt.Retries, Backoff: s.backoff, What: "no answer"}
}

// explain adds what to do to a refusal.
func (s *server) explain(err error) error {
	status, ok := errors.AsType[*webapi.StatusError](err)
	if !ok {
		return err
	}
	if status.Code == http.StatusNotFound {
		return fmt.Errorf("%w: it does not know the address or the model %q: look at lvlm.url and lvlm.backend", err, s.model)
	}
	return webapi.ExplainKey(err, "lvlm.key_env", s.opt.KeyEnv)
}
