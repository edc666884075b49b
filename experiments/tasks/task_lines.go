package tasks

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"fulcrum/experiments/job"
	"fulcrum/experiments/workload"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/nearpath"
	"fulcrum/internal/program"
	"fulcrum/internal/regular"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/reports/record"
)

// This file is what task=generate and task=score share: JSONL in, JSONL out, in the same order.

// request is a line that was read: its prompt, or what is wrong with it.
type request struct {
	number int // of the line, from 1
	line   workload.PromptLine
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
	job      *job.Job
	name     string // generate or score
	in       string
	out      string
	batch    int
	model    workload.TextModel
	generate *workload.GenerateOptions // nil: nothing is generated
	parse    func(*request) error
	answer   func(ctx context.Context, requests []request, first int) ([]any, error)
}

// do opens the model and answers the lines.
func (t *textTask) do(ctx context.Context) (err error) {
	file, err := regular.Open(t.in)
	if err != nil {
		return usage.Errorf("%s.in=%s: %v%s", t.name, t.in, usage.Reason(err), nearpath.Hint(t.in))
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 1<<20)
	if head, _ := in.Peek(4096); bytes.HasPrefix(bytes.TrimLeft(head, "\ufeff \n\r\t"), []byte("[")) { // every line would be a bad one
		return usage.Errorf("%s.in=%s: found a JSON list, want JSON lines, one object a line: `jq -c '.[]' %s > FILE.jsonl`", t.name,
			t.in, program.Quoted(t.in))
	}
	if err := PrepareOut(t.name+".out", t.out, map[string]*string{t.name + ".in": &t.in}, t.job.Config.DryRun); err != nil {
		return err
	}
	if t.model, err = workload.OpenTextModel(t.job, t.generate); err != nil {
		return err
	}
	defer t.model.Free()
	if t.job.Config.DryRun {
		t.job.Logf("dry_run: the model loads; nothing was %sd", t.name)
		return nil
	}
	return t.lines(ctx, in)
}

// lines answers the lines of in.
func (t *textTask) lines(ctx context.Context, in io.Reader) error {
	t.job.Begun = true
	t.job.Holder.Heed()
	var bad []badLine
	done, written, told := 0, 0, time.Now()
	err := stream(t.out, func(encode func(any) error) error {
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
				if err := encode(line); err != nil {
					return err
				}
			}
			if time.Since(told) > 5*time.Second {
				told = time.Now()
				t.job.Logf("%s: %d lines answered", t.name, done)
			}
			return nil
		}
		var batch []request
		err := eachLine(t.in, in, func(number int, text []byte, fault error) error {
			req, err := t.request(number, text, fault)
			if err != nil {
				bad = append(bad, badLine{number, err})
				if len(bad) <= shown {
					t.job.Log.Warnf("%s:%d: %v", t.in, number, err)
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
		return flush(batch)
	})
	if err != nil {
		return err
	}
	return t.report(bad, done, written)
}

// report says what was answered. Bad lines are an error.
func (t *textTask) report(bad []badLine, done, written int) error {
	stdout.Printf("%s: %d prompts → %d lines in %s\n", t.name, done, written, t.out)
	t.job.Data = record.DataSummary{Name: t.in, Counts: map[string]int{"prompts": done}, Skipped: map[string]int{}}
	if len(bad) > 0 {
		t.job.Data.Skipped["bad_lines"] = len(bad)
		return fmt.Errorf("%s:%d: %w (%s; the %d good lines are in %s)", t.in, bad[0].number, bad[0].err, badLines(bad), done, t.out)
	}
	return nil
}

// badLines names the lines that were left out.
func badLines(bad []badLine) string {
	if len(bad) == 1 {
		return "1 bad line"
	}
	numbers := list.Map(bad, func(b badLine) string { return fmt.Sprint(b.number) })
	return fmt.Sprintf("%d bad lines: %s", len(bad), some(numbers, shown))
}

// request reads one line, which fault says is unreadable.
func (t *textTask) request(number int, text []byte, fault error) (request, error) {
	req := request{number: number}
	if fault != nil {
		return req, fault
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if err := jsonwords.Decode(d, &req.line); err != nil {
		return req, fmt.Errorf("want one JSON object a line: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return req, errors.New("want one JSON object a line: got more")
	}
	var err error
	req.prompt, req.tokens, err = t.model.Prompt(req.line, filepath.Dir(t.in))
	switch {
	case len(req.line.ID) == 0 && err != nil: // both, so that the file is mended once
		return req, fmt.Errorf(`want an "id"; %w`, err)
	case len(req.line.ID) == 0:
		return req, errors.New(`want an "id"`)
	case err != nil:
		return req, err
	}
	if t.parse != nil {
		err = t.parse(&req)
	}
	return req, err
}
