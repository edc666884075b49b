package experiments

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/chat"
	"fulcrum/internal/nearpath"
	"fulcrum/internal/regular"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/reports/record"
	"fulcrum/selector/tokens"
)

// This file is what task=generate and task=score share: JSONL in, JSONL out, in the same order.

// promptLine is one line of generate.in or score.in.
type promptLine struct {
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

// textModel is a token policy as the tasks generate and score see it. prompt is whatever Prompt returned.
type textModel interface {
	// Prompt renders a line. Paths in it are relative to dir.
	Prompt(line promptLine, dir string) (prompt any, tokens int, err error)
	Encode(text string) []int64
	Decode(ids []int64) string
	VocabSize() int
	// Generate answers each prompt n times; cut says that a completion ended at the length limit.
	Generate(ctx context.Context, prompts []any, o GenerateOptions, seed int64, first int) ([][]completion, error)
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
func (o GenerateOptions) sampling(folder tokens.FolderSampling) tokens.SamplingOptions {
	s := tokens.SamplingOptions{MaxNewTokens: o.MaxNewTokens, TopP: 1, RepetitionPenalty: first(1, o.RepetitionPenalty, folder.RepetitionPenalty)}
	if !first(false, o.DoSample, folder.DoSample) {
		return s
	}
	s.Temperature, s.TopP, s.TopK = first(1, o.Temperature, folder.Temperature), first(1, o.TopP, folder.TopP), first(50, o.TopK, folder.TopK)
	return s
}

// streams names the random streams of n prompts, of which the first is number from of its file.
func streams(from, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = from + i
	}
	return out
}

// answered is what Generate of a policy's package returned, as textModel's Generate has it.
func answered(answers [][]tokens.Completion, err error) ([][]completion, error) {
	if err != nil {
		return nil, err
	}
	out := make([][]completion, len(answers))
	for i, group := range answers {
		for _, c := range group {
			out[i] = append(out[i], completion{c.IDs, !c.Finished})
		}
	}
	return out, nil
}

// logProbs scores one completion a prompt; score takes groups.
func logProbs[P any](ps []any, completions [][]int64, score func([]tokens.Group[P]) ([][][]float64, error)) ([][]float64, error) {
	groups := make([]tokens.Group[P], len(ps))
	for i, p := range typed[P](ps) {
		groups[i] = tokens.Group[P]{Prompt: p, Completions: [][]int64{completions[i]}}
	}
	logp, err := score(groups)
	if err != nil {
		return nil, err
	}
	out := make([][]float64, len(logp))
	for i := range logp {
		out[i] = logp[i][0]
	}
	return out, nil
}

// typed are the prompts that textModel's Prompt returned, as the policy's package takes them.
func typed[P any](ps []any) []P {
	out := make([]P, len(ps))
	for i, p := range ps {
		out[i] = p.(P)
	}
	return out
}

// request is a line that was read: its prompt, or what is wrong with it.
type request struct {
	number int // of the line, from 1
	line   promptLine
	prompt any
	tokens int
	ids    []int64 // completion to score
}

// shown is how many bad lines are named one by one.
const shown = 10

// badLine is a line that cannot be used.
type badLine struct {
	number int
	err    error
}

// textTask streams the lines of in through answer, batch at a time, into out. Bad lines are named and left
// out; they end the task with an error once the good ones are written.
type textTask struct {
	job    *job
	name   string // generate or score
	in     string
	out    string
	batch  int
	model  textModel
	parse  func(*request) error
	answer func(ctx context.Context, requests []request, first int) ([]any, error)
}

// do runs the task.
func (t *textTask) do(ctx context.Context) error {
	file, err := regular.Open(t.in)
	if err != nil {
		return usage.Errorf("%s.in=%s: %v%s", t.name, t.in, reason(err), nearpath.Hint(t.in))
	}
	defer file.Close()
	if err := prepareOut(t.name+".out", t.out, map[string]string{t.name + ".in": t.in}); err != nil {
		return err
	}
	t.job.begun = true
	out, err := atomicfile.Create(t.out)
	if err != nil {
		return err
	}
	defer out.Abort()
	w := bufio.NewWriterSize(out, 1<<20)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	var bad []badLine
	done, written, told := 0, 0, time.Now()
	flush := func(requests []request) error {
		if len(requests) == 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		lines, err := t.answer(ctx, requests, done)
		if err != nil {
			return fmt.Errorf("%s: lines %d to %d: %w", t.in, requests[0].number, requests[len(requests)-1].number, err)
		}
		done += len(requests)
		written += len(lines)
		for _, line := range lines {
			if err := encoder.Encode(line); err != nil {
				return fmt.Errorf("cannot write %s: %w", t.out, err)
			}
		}
		if time.Since(told) > 5*time.Second {
			told = time.Now()
			t.job.logf("%s: %d lines answered", t.name, done)
		}
		return nil
	}
	var batch []request
	err = eachLine(t.in, file, func(number int, text []byte, fault error) error {
		req, err := t.request(number, text, fault)
		if err != nil {
			bad = append(bad, badLine{number, err})
			if len(bad) <= shown {
				t.job.log.Warnf("%s:%d: %v", t.in, number, err)
			}
			return nil
		}
		if batch = append(batch, req); len(batch) < t.batch {
			return nil
		}
		full := batch
		batch = nil
		return flush(full)
	})
	if err != nil {
		return err
	}
	if err := flush(batch); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("cannot write %s: %w", t.out, err)
	}
	if err := out.Commit(); err != nil {
		return err
	}
	stdout.Printf("%s: %d prompts → %d lines in %s\n", t.name, done, written, t.out)
	t.job.data = record.DataSummary{Name: t.in, Counts: map[string]int{"prompts": done}, Skipped: map[string]int{}}
	if len(bad) > 0 {
		t.job.data.Skipped["bad_lines"] = len(bad)
		return fmt.Errorf("%s:%d: %w (%s; the %d good lines are in %s)", t.in, bad[0].number, bad[0].err, badLines(bad), done, t.out)
	}
	return nil
}

// linesOnly refuses a file whose objects stand in a JSON list: every line of it would be a bad one.
func linesOnly(key, path string) error {
	f, err := regular.Open(path)
	if err != nil {
		return usage.Errorf("%s=%s: %v%s", key, path, reason(err), nearpath.Hint(path))
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil // what reads it says so
	}
	r := bufio.NewReader(f)
	for {
		c, err := r.ReadByte()
		switch {
		case err != nil:
			return nil
		case c == '[':
			return usage.Errorf("%s=%s: found a JSON list, want JSON lines, one object a line: jq -c '.[]' %s > FILE.jsonl", key, path, path)
		case c != ' ' && c != '\n' && c != '\r' && c != '\t' && c != 0xef && c != 0xbb && c != 0xbf:
			return nil
		}
	}
}

// badLines names the lines that were left out.
func badLines(bad []badLine) string {
	if len(bad) == 1 {
		return "1 bad line"
	}
	var numbers []string
	for _, b := range bad[:min(len(bad), shown)] {
		numbers = append(numbers, fmt.Sprint(b.number))
	}
	if len(bad) > shown {
		numbers = append(numbers, "…")
	}
	return fmt.Sprintf("%d bad lines: %s", len(bad), strings.Join(numbers, ", "))
}

// request reads one line, which fault says is unreadable.
func (t *textTask) request(number int, text []byte, fault error) (request, error) {
	req := request{number: number}
	if fault != nil {
		return req, fault
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&req.line); err != nil {
		return req, jsonFault(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return req, errors.New("want one JSON object a line, got more")
	}
	if len(req.line.ID) == 0 {
		return req, errors.New(`want an "id"`)
	}
	var err error
	if req.prompt, req.tokens, err = t.model.Prompt(req.line, filepath.Dir(t.in)); err != nil {
		return req, err
	}
	if t.parse != nil {
		err = t.parse(&req)
	}
	return req, err
}

// reason is an error without the path that the message names already.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// conversationOf reads the messages of a line; parts without a path take the lists' entries in order.
func conversationOf(line promptLine, dir string) ([]chat.Message, error) {
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

// textModel opens the token policy that the configuration names.
func openTextModel(j *job) (textModel, error) {
	if err := checkModelPath(j); err != nil {
		return nil, err
	}
	make, err := textModels().Get(j.cfg.Policy)
	if err != nil {
		return nil, usage.Errorf("policy=%s: task=%s needs a token policy: want one of %s", j.cfg.Policy, j.cfg.Task, strings.Join(textModels().Names(), ", "))
	}
	return make(j)
}

// first returns the first value that is given.
func first[T any](otherwise T, values ...*T) T {
	for _, v := range values {
		if v != nil {
			return *v
		}
	}
	return otherwise
}
