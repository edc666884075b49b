package workload

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"fulcrum/experiments/job"
	"fulcrum/internal/chat"
	"fulcrum/internal/hffolder"
	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/stat"
	"fulcrum/internal/usage"
	"fulcrum/selector/tokens"
)

// GenerateOptions configures task=generate. What is null comes from the model's generation_config.json,
// else from HuggingFace's defaults.
type GenerateOptions struct {
	// prompts: JSON lines {"id", "messages", "images", "videos"}; for policy=seq2seq {"id", "source"}, or "source_ids"
	In *string `koanf:"in"`
	// file to write; null = generations.jsonl in the run folder
	Out *string `koanf:"out"`
	// longest completion, in tokens
	MaxNewTokens int `koanf:"max_new_tokens" range:"[1,inf)" also:"max_tokens,max_length"`
	// sample; false = greedy; null = as the model's generation_config.json says
	DoSample *bool `koanf:"do_sample"`
	// go on after the end-of-sequence token, up to max_new_tokens, and force no first or last token
	IgnoreEOS bool `koanf:"ignore_eos"`
	// of sampling
	Temperature *float64 `koanf:"temperature" range:"(0,inf)" when:"!do_sample=false"`
	// sample from the most likely tokens that hold this much probability
	TopP *float64 `koanf:"top_p" range:"(0,1]" when:"!do_sample=false"`
	// sample from the k most likely tokens; 0 = all
	TopK *int `koanf:"top_k" range:"[0,inf)" when:"!do_sample=false"`
	// divides positive and multiplies negative logits of tokens seen before
	RepetitionPenalty *float64 `koanf:"repetition_penalty" range:"(0,inf)"`
	// keys of the model's generation_config.json that do not count here, num_beams say
	Without []string `koanf:"without"`
	// completions for each prompt
	NumReturn int `koanf:"num_return_sequences" range:"[1,inf)"`
	// lines worked on at once
	BatchSize int `koanf:"batch_size" range:"[1,inf)"`
}

// DefaultGenerateOptions returns one completion of at most 128 tokens for each prompt.
func DefaultGenerateOptions() GenerateOptions {
	return GenerateOptions{MaxNewTokens: 128, NumReturn: 1, BatchSize: 8}
}

func (o GenerateOptions) Validate() error {
	return option.Want(o.In != nil, "in", "task=generate needs prompts: generate.in=FILE.jsonl")
}

// PromptLine is one line of generate.in or score.in.
type PromptLine struct {
	ID            json.RawMessage `json:"id"`
	Messages      json.RawMessage `json:"messages"`
	Source        *string         `json:"source"`     // of an encoder-decoder
	SourceIDs     tokenIDs        `json:"source_ids"` // or its token ids
	Images        []string        `json:"images"`
	Videos        []videoEntry    `json:"videos"`
	Completion    *string         `json:"completion"`
	CompletionIDs tokenIDs        `json:"completion_ids"`
}

// videoEntry is a list of frames at a rate, or a video file.
type videoEntry struct {
	Frames []string `json:"frames"`
	FPS    float64  `json:"fps"`
	Path   string   `json:"path"`
}

// UnmarshalJSON accepts a path in place of the object.
func (v *videoEntry) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &v.Path); err == nil {
		return nil
	}
	type plain videoEntry
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode((*plain)(v))
}

// TextModel is a token policy as the tasks generate and score see it. prompt is whatever Prompt returned.
type TextModel interface {
	// Prompt renders a line. Paths in it are relative to dir.
	Prompt(line PromptLine, dir string) (prompt any, tokens int, err error)
	Encode(text string) []int64
	Decode(ids []int64) string
	VocabSize() int
	// Generate answers each prompt n times; cut says that a completion ended at the length limit.
	Generate(prompts []any, o GenerateOptions, seed int64, first int) ([][]completion, error)
	// CheckCompletion refuses what the model cannot score.
	CheckCompletion(ids []int64) error
	// LogProbs returns log π of every token of one completion a prompt, nats at temperature 1.
	LogProbs(prompts []any, completions [][]int64) ([][]float64, error)
	Free()
}

// completion is a generated sequence of token ids, with the EOS that ended it.
type completion struct {
	IDs []int64
	Cut bool
}

// sampling resolves what a key leaves null: what the model's folder says, else Hugging Face's defaults.
func sampling(o GenerateOptions, folder tokens.FolderSampling) tokens.SamplingOptions {
	s := tokens.SamplingOptions{MaxNewTokens: o.MaxNewTokens, TopP: 1,
		RepetitionPenalty: option.Or(cmp.Or(o.RepetitionPenalty, folder.RepetitionPenalty), 1)}
	if !option.Or(cmp.Or(o.DoSample, folder.DoSample), false) {
		return s
	}
	s.Temperature = option.Or(cmp.Or(o.Temperature, folder.Temperature), 1)
	s.TopP = option.Or(cmp.Or(o.TopP, folder.TopP), 1)
	s.TopK = option.Or(cmp.Or(o.TopK, folder.TopK), 50)
	return s
}

// checkGeneration refuses to generate as o says with a model whose folder asks for what is not done here. A judge answers without.
func checkGeneration(j *job.Job, folder tokens.FolderSampling, o *GenerateOptions) error {
	var without []string
	if o != nil {
		without = o.Without
	}
	said, err := folder.Without(without)
	if err != nil {
		return usage.Errorf("generate.without: %v", err)
	}
	asks := strings.Join(list.Map(said.Refused, hffolder.Refusal.String), ", ")
	switch {
	case asks == "":
	case o != nil:
		keys := slices.Concat(without, list.Map(said.Refused, func(r hffolder.Refusal) string { return r.Key }))
		return usage.Errorf("the model's generation_config.json asks for %s, which is not done here: generate.without=[%s] generates without, "+
			"greedily or by sampling (generate.do_sample)", asks, strings.Join(keys, ","))
	case j.Config.Does().Trains:
		j.Log.Warnf("rewards.judge.path: its generation_config.json asks for %s: it answers greedily, without", asks)
	}
	return nil
}

// warnOfUndone says what a model's folder asks of generation that training does not do.
func warnOfUndone(j *job.Job, folder tokens.FolderSampling) {
	if asked := folder.Asked(); len(asked) > 0 {
		section := j.Config.Section()
		j.Log.Warnf("%s.path: its generation_config.json asks for %s: rollouts and validation answers are drawn without, as %s.generation says",
			section, strings.Join(asked, ", "), section)
	}
}

// textModel is the TextModel of a policy whose prompts are of type P.
type textModel[P any] struct {
	encode    func(text string) []int64
	decode    func(ids []int64) string
	vocab     int
	positions int                   // tokens of the longest completion; 0 = any
	folder    tokens.FolderSampling // what the model's folder says of generation
	prompt    func(line PromptLine, dir string) (prompt P, tokens int, err error)
	generate  func(prompts []P, n int, how tokens.GenerateOptions) ([][]tokens.Completion, error)
	// adapt sets what only this policy generates by.
	adapt func(o GenerateOptions, how *tokens.GenerateOptions)
	score func(groups []tokens.Group[P]) ([][][]float64, error)
	fits  func(completion []int64) error // nil: every completion does
	free  func()
}

// openText opens a TextModel that generates as o says.
func openText[P any](j *job.Job, o *GenerateOptions, open func() (*textModel[P], error)) (TextModel, error) {
	if err := j.MapTorch(func() error { return nil }); err != nil {
		return nil, err
	}
	t, err := open()
	if err != nil {
		return nil, err
	}
	err = checkGeneration(j, t.folder, o)
	if err == nil && o != nil && t.positions > 0 && o.MaxNewTokens > t.positions {
		err = usage.Errorf("generate.max_new_tokens=%d: the model has %d positions", o.MaxNewTokens, t.positions)
	}
	if err != nil {
		t.free()
		return nil, err
	}
	return t, nil
}

func (t *textModel[P]) Free()                      { t.free() }
func (t *textModel[P]) Encode(text string) []int64 { return t.encode(text) }
func (t *textModel[P]) Decode(ids []int64) string  { return t.decode(ids) }
func (t *textModel[P]) VocabSize() int             { return t.vocab }

func (t *textModel[P]) Prompt(line PromptLine, dir string) (any, int, error) {
	return t.prompt(line, dir)
}

func (t *textModel[P]) CheckCompletion(ids []int64) error {
	if t.fits == nil {
		return nil
	}
	return t.fits(ids)
}

func (t *textModel[P]) Generate(ps []any, o GenerateOptions, seed int64, first int) ([][]completion, error) {
	said, err := t.folder.Without(o.Without)
	if err != nil {
		return nil, err
	}
	streams := list.Map(stat.Indices(len(ps)), func(i int) int { return first + i }) // a prompt's is its number in the file
	how := tokens.GenerateOptions{SamplingOptions: sampling(o, said), Constraints: said.Constraints, IgnoreEOS: o.IgnoreEOS,
		Seed: uint64(seed), Streams: streams}
	t.adapt(o, &how)
	answers, err := t.generate(list.Map(ps, func(p any) P { return p.(P) }), o.NumReturn, how)
	return list.Map(answers, func(group []tokens.Completion) []completion {
		return list.Map(group, func(c tokens.Completion) completion { return completion{c.IDs, !c.Finished} })
	}), err
}

func (t *textModel[P]) LogProbs(ps []any, completions [][]int64) ([][]float64, error) {
	logp, err := t.score(list.Make(len(ps), func(i int) tokens.Group[P] {
		return tokens.Group[P]{Prompt: ps[i].(P), Completions: [][]int64{completions[i]}}
	}))
	return list.Map(logp, func(of [][]float64) []float64 { return of[0] }), err
}

// conversationOf reads the messages of a line; parts without a path take the lists' entries in order.
func conversationOf(line PromptLine, dir string) ([]chat.Message, error) {
	if len(line.Messages) == 0 {
		return nil, errors.New(`want "messages": a list of chat messages`)
	}
	msgs, err := chat.ParseMessages(line.Messages)
	if err != nil {
		return nil, err
	}
	images, videos := line.Images, line.Videos
	for _, m := range msgs {
		for k := range m.Parts {
			part := &m.Parts[k]
			switch {
			case part.Type == "image" && part.Path == "" && part.Picture == nil:
				if len(images) == 0 {
					return nil, fmt.Errorf("the messages have more image parts than \"images\" has entries (%d)", len(line.Images))
				}
				part.Path, images = images[0], images[1:]
			case part.Type == "video" && part.Path == "" && len(part.Frames) == 0:
				if len(videos) == 0 {
					return nil, fmt.Errorf("the messages have more video parts than \"videos\" has entries (%d)", len(line.Videos))
				}
				part.Path, part.Frames, part.FPS, videos = videos[0].Path, videos[0].Frames, videos[0].FPS, videos[1:]
			}
		}
	}
	if len(images) > 0 || len(videos) > 0 {
		return nil, fmt.Errorf("%d images and %d videos have no part in the messages", len(images), len(videos))
	}
	return chat.Resolve(msgs, dir), nil
}

// OpenTextModel opens the token policy that the configuration names. o says what is generated; nil: nothing, or a judge's answers.
func OpenTextModel(j *job.Job, o *GenerateOptions) (TextModel, error) {
	p, err := textPolicies().Get(j.Config.Policy)
	if err != nil {
		return nil, usage.Errorf("policy=%s: task=%s needs a token policy: want one of %s", j.Config.Policy, j.Config.Task,
			strings.Join(textPolicies().Names(), ", "))
	}
	if err := checkModelPath(j); err != nil {
		return nil, err
	}
	return p.OpenText(j, o)
}

// tokenIDs is a JSON list of token ids. A null in it, which Go would read as 0, is an error.
type tokenIDs []int64

// UnmarshalJSON reads the list; null is nil.
func (t *tokenIDs) UnmarshalJSON(text []byte) error {
	var ids []*int64
	if err := json.Unmarshal(text, &ids); err != nil {
		return err
	}
	if *t = nil; ids != nil {
		*t = make(tokenIDs, len(ids))
	}
	for k, id := range ids {
		if id == nil {
			return fmt.Errorf("entry %d of a list of token ids is null", k)
		}
		(*t)[k] = *id
	}
	return nil
}
