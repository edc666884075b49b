package reward

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/webapi"
	"fulcrum/rewardutil/scorer"
)

// JudgeOptions configures a language model that judges completions: one behind OpenAI's chat API (url), or a text policy in
// this process (path). It answers a prompt of the user's, and a number in its answer is the score.
type JudgeOptions struct {
	// weight in the total; 0 = off
	Weight float64 `koanf:"weight" range:"[0,inf)"`
	// address of a server with /v1/chat/completions, such as http://localhost:8000
	URL *string `koanf:"url"`
	// the server's name of the model; null = its own choice
	Model *string `koanf:"model"`
	// name of the environment variable that holds the server's key; null = no key
	KeyEnv *string `koanf:"key_env"`
	// instead of url: a model folder, run or checkpoint, read into this process
	Path *string `koanf:"path"`
	// what is read from path: qwen2_5_vl (text models of vl.path too) or seq2seq
	Policy string `koanf:"policy" enum:"qwen2_5_vl,seq2seq"`
	// what the judge is asked; {prompt}, {completion}, {answer} (its judged part), {reference}, {answers}
	// (annotators') stand for texts of completion and record
	Prompt string `koanf:"prompt"`
	// regular expression of the score in the judge's answer: its first group, or all of it, is a number
	Pattern string `koanf:"pattern"`
	// score that becomes 0; lower ones too
	Min float64 `koanf:"min"`
	// score that becomes 1; higher ones too
	Max float64 `koanf:"max"`
	// reward of a completion that the judge gives no number; null = an error that ends the run
	Unreadable *float64 `koanf:"unreadable"`
	// longest answer of the model, in tokens
	MaxNewTokens int `koanf:"max_new_tokens" range:"[1,inf)"`
	// requests under way at a time; of a command: processes
	Parallel int `koanf:"parallel" range:"[1,inf)"`
	// for one request, start of the command included
	Timeout float64 `koanf:"timeout_seconds" range:"(0,inf)"`

	backoff float64 // seconds; a test waits less
}

// TextModel answers prompts in this process, greedily.
type TextModel interface {
	Answer(ctx context.Context, prompts []string) ([]string, error)
	Close() error
}

// OpenTextModel opens the model of a judge's path.
type OpenTextModel = func(JudgeOptions) (TextModel, error)

func (o *JudgeOptions) setDefaults() {
	s := scorer.DefaultOptions()
	*o = JudgeOptions{Policy: "qwen2_5_vl", Pattern: `-?\d+(?:\.\d+)?`, Max: 10, MaxNewTokens: 16, Parallel: 8, Timeout: s.Timeout, backoff: s.Backoff,
		Prompt: "Question:\n{prompt}\n\nReference answer:\n{reference}\n\nAnswer to judge:\n{answer}\n\nHow good is this answer, from 0 " +
			"(wrong) to 10 (as good as the reference)? Reply with the number alone."}
}

// scorer are the options of the scorer that asks a server.
func (o JudgeOptions) scorer() scorer.Options {
	s := scorer.DefaultOptions()
	s.BatchSize, s.Parallel, s.Timeout, s.Backoff = 1, o.Parallel, o.Timeout, o.backoff
	return s
}

// Validate reports options with which a judge that is on cannot work.
func (o JudgeOptions) Validate() error {
	if o.Weight == 0 {
		return nil
	}
	_, bad := regexp.Compile(o.Pattern)
	return errors.Join(
		option.Tags(o),
		option.Want((o.URL == nil) != (o.Path == nil), "url", "want the address of a judge (url), or a model in this process (path)"),
		option.Want(bad == nil, "pattern", "%v", bad),
		option.Want(o.Max > o.Min, "max", "want more than min %v, got %v", o.Min, o.Max),
		option.Want(strings.Contains(o.Prompt, "{completion}") || strings.Contains(o.Prompt, "{answer}"), "prompt",
			"want {answer} or {completion} in it: else every completion gets the same score"),
		o.scorer().Validate(),
	)
}

func (JudgeOptions) most() float64 { return 1 }

func (o JudgeOptions) build() (Reward, error) { return o.buildWith(nil) }

// buildWith opens the judge; open serves path.
func (o JudgeOptions) buildWith(open OpenTextModel) (Reward, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	j := &judge{opt: o, pattern: regexp.MustCompile(o.Pattern)}
	var err error
	if o.Path != nil {
		if open == nil {
			return nil, option.Errorf("path", "no model can be opened here: give the address of a judge (url)")
		}
		j.local, err = open(o)
	} else {
		j.client, err = o.client()
	}
	if err != nil {
		return nil, err
	}
	opt := o.scorer()
	if j.local != nil {
		opt.BatchSize, opt.Parallel, opt.Retries, opt.Timeout = 8, 1, 0, 1e6 // one model; it ends with the run
	}
	j.scorer = scorer.Via(opt, j)
	return j, nil
}

func (o JudgeOptions) client() (*webapi.Client, error) {
	headers := map[string]string{}
	if o.KeyEnv != nil {
		key := os.Getenv(*o.KeyEnv)
		if key == "" {
			return nil, option.Errorf("key_env", "the variable %s is not set here: want the judge's key", *o.KeyEnv)
		}
		headers["Authorization"] = "Bearer " + key
	}
	client, err := webapi.New(strings.TrimSuffix(strings.TrimSuffix(*o.URL, "/"), "/v1"), headers, o.Parallel)
	if err != nil {
		return nil, option.Errorf("url", "%s", strings.TrimPrefix(err.Error(), "url: "))
	}
	return client, nil
}

// judge is a Reward, and the transport of its scorer.
type judge struct {
	opt     JudgeOptions
	pattern *regexp.Regexp
	scorer  *scorer.Scorer
	client  *webapi.Client // or
	local   TextModel
	used    atomic.Int64 // tokens of prompts and answers since the last scores
}

func (j *judge) Score(ctx context.Context, items []Item) ([]float64, error) {
	scores, _, err := j.ScoreMeasured(ctx, items)
	return scores, err
}

// ScoreMeasured returns the scores between 0 and 1, and the mean cost of a completion: tokens of the judge's prompts and
// answers. A remembered score costs nothing.
func (j *judge) ScoreMeasured(ctx context.Context, items []Item) ([]float64, map[string][]float64, error) {
	scores, err := j.scorer.Score(ctx, list.Map(items, textsOf))
	if err != nil || j.local != nil {
		return scores, nil, err
	}
	each := float64(j.used.Swap(0)) / float64(len(items))
	return scores, map[string][]float64{"judge_tokens": slices.Repeat([]float64{each}, len(items))}, nil
}

// textsOf is what the judge sees of an item.
func textsOf(it Item) scorer.Item {
	seen := newScorerItem(it)
	seen.Images, seen.Meta = nil, nil
	return seen
}

// foresee asks a server; the local model would compute beside the policy.
func (j *judge) foresee() func(context.Context, Item) {
	if j.local != nil {
		return nil
	}
	return func(ctx context.Context, it Item) { j.scorer.Foresee(ctx, textsOf(it)) }
}

// Ask scores items in JSON, as a scorer's transport does.
func (j *judge) Ask(ctx context.Context, items [][]byte) ([]float64, error) {
	prompts := make([]string, len(items))
	for i, raw := range items {
		var it scorer.Item
		if err := jsonwords.Unmarshal(raw, &it); err != nil {
			return nil, err
		}
		prompts[i] = strings.NewReplacer("{prompt}", it.Prompt, "{completion}", it.Completion, "{answer}", it.Answer, "{reference}", it.Reference,
			"{answers}", strings.Join(it.Answers, ", ")).Replace(j.opt.Prompt)
	}
	said, err := j.answers(ctx, prompts)
	if err != nil {
		return nil, err
	}
	scores := make([]float64, len(said))
	for i, text := range said {
		v, ok := j.read(text)
		switch {
		case ok:
			scores[i] = max(0, min(1, (v-j.opt.Min)/(j.opt.Max-j.opt.Min)))
		case j.opt.Unreadable != nil:
			scores[i] = *j.opt.Unreadable
		default:
			return nil, webapi.Permanent{Err: fmt.Errorf("no score in the judge's answer %q: look at prompt, pattern and max_new_tokens, or give "+
				"unreadable=NUMBER", webapi.Clip(text))}
		}
	}
	return scores, nil
}

// answers asks the local model all at once, or the server one after the other.
func (j *judge) answers(ctx context.Context, prompts []string) ([]string, error) {
	if j.local != nil {
		return j.local.Answer(ctx, prompts)
	}
	said := make([]string, len(prompts))
	for i, prompt := range prompts {
		body := map[string]any{"messages": []any{map[string]any{"role": "user", "content": prompt}}, "temperature": 0,
			"max_tokens": j.opt.MaxNewTokens}
		if j.opt.Model != nil {
			body["model"] = *j.opt.Model
		}
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		reply, err := j.client.Do(ctx, http.MethodPost, "/v1/chat/completions", data)
		if err != nil {
			return nil, webapi.ExplainKey(err, "rewards.judge.key_env", j.opt.KeyEnv)
		}
		var r struct {
			Choices []struct {
				Message struct {
					Content string `json:"content"`
				} `json:"message"`
			} `json:"choices"`
			Usage struct {
				In  int64 `json:"prompt_tokens"`
				Out int64 `json:"completion_tokens"`
			} `json:"usage"`
		}
		if err := jsonwords.Unmarshal(reply, &r); err != nil || len(r.Choices) == 0 {
			return nil, fmt.Errorf("the answer is not a chat completion (%w): %s", cmp.Or(err, errors.New("no choices")), j.client.Quote(reply))
		}
		j.used.Add(r.Usage.In + r.Usage.Out)
		said[i] = r.Choices[0].Message.Content
	}
	return said, nil
}

// read reads the score of an answer. What the model thinks before it answers is none: it is full of numbers.
func (j *judge) read(text string) (float64, bool) {
	if _, rest, opened := strings.Cut(text, "<think>"); opened && !strings.Contains(rest, "</think>") {
		return 0, false
	}
	m := j.pattern.FindStringSubmatch(text[strings.LastIndex("</think>"+text, "</think>"):])
	if m == nil {
		return 0, false
	}
	v, err := strconv.ParseFloat(m[min(1, len(m)-1)], 64)
	return v, err == nil
}

// Name is the judge's address, or its folder.
func (j *judge) Name() string {
	if j.client != nil {
		return j.client.Address()
	}
	return *j.opt.Path
}

func (j *judge) Close() error {
	if j.client != nil {
		return j.client.Close()
	}
	return j.local.Close()
}
