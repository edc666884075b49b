// Command probe does on request what a peer of another language does too, and hands out the numbers: logits of a model
// folder, greedy completions, merged models and adapters, token ids, and optimizer steps with their gradients and
// weights. Lines of standard input are jobs in JSON, each answered with a line of JSON; tensors go to the safetensors
// file that the job names. scripts/peers/peers.py speaks to it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"fulcrum/experiments/lvlm"
	"fulcrum/internal/chat"
	"fulcrum/internal/hffolder"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/tokenizer"
	"fulcrum/internal/torchx"
	"fulcrum/selector/clip"
	"fulcrum/selector/seq2seq"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl"
	"fulcrum/selector/vl/pixels"
	"fulcrum/selector/vl/processor"
)

// Job is a line of standard input. Options are the fields of the Go structs by name, upon their defaults.
type Job struct {
	Do          string            // what run lists
	Policy      string            // vl or seq2seq
	Options     json.RawMessage   // vl.Options or seq2seq.Options
	Seed        int64             // of fresh adapters
	Perturb     float64           // added to every trained number times sin of its place: adapters that do something
	Prompts     [][]int64         // ids: of text alone
	Messages    []json.RawMessage // instead of them, conversations: pictures are read as the model's folder says
	Completions [][][]int64       // of each prompt, a list of ids
	Out         string            // safetensors file, or folder
	DType       string            // of a merged model
	Tokens      int               // most new tokens
	Samples     int               // completions of a prompt
	Texts       []string
	Folder      string
	Repeats     int
	Constraints json.RawMessage // generation_config.json, for generate
	Train       Training
	Asked       []lvlm.Prompt   // of likelihood and answer
	Server      json.RawMessage // lvlm.Options: what they ask instead of Options' model

	threads int
}

// Answer is a line of standard output.
type Answer struct {
	Error       string           `json:"error,omitempty"`
	LogP        [][][]float64    `json:"logp,omitempty"`
	IDs         [][]int64        `json:"ids,omitempty"`
	Texts       []string         `json:"texts,omitempty"`
	Special     []string         `json:"special,omitempty"`
	Completions [][][]int64      `json:"completions,omitempty"`
	Steps       []map[string]any `json:"steps,omitempty"`
	Advantages  []float64        `json:"advantages,omitempty"`
	Seconds     []float64        `json:"seconds,omitempty"`
	Pictures    []Picture        `json:"pictures,omitempty"`
	Keys        []hffolder.Keys  `json:"keys,omitempty"`
}

func main() {
	if err := torchx.Load(); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
	threads := 1
	if len(os.Args) > 1 {
		fmt.Sscan(os.Args[1], &threads)
	}
	torchx.Attach(threads)
	out := json.NewEncoder(os.Stdout)
	for in := bufio.NewReader(os.Stdin); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		answer := Answer{}
		var job Job
		job.threads = threads
		if err = json.Unmarshal(line, &job); err == nil {
			err = torchx.Try(func() error { return job.run(&answer) })
		}
		if err != nil {
			answer = Answer{Error: err.Error()}
		}
		if err := out.Encode(answer); err != nil {
			fmt.Fprintln(os.Stderr, "probe:", err)
			os.Exit(1)
		}
	}
}

func (j *Job) run(a *Answer) error {
	switch j.Do {
	case "tokenize":
		return j.tokenize(a)
	case "render":
		return j.render(a)
	case "pictures":
		return j.pictures(a)
	case "likelihood", "answer":
		return j.ask(a)
	case "keys":
		a.Keys = slices.Concat(vl.Keys(), seq2seq.Keys(), clip.Keys(), []hffolder.Keys{pixels.ImageKeys(), pixels.VideoKeys()})
		return nil
	}
	switch j.Policy {
	case "vl":
		opt := vl.DefaultOptions()
		opt.LoRA.Enabled = false
		if err := json.Unmarshal(j.Options, &opt); err != nil {
			return err
		}
		m, err := vl.Open(opt, "cpu", j.Seed, nil)
		if err != nil {
			return err
		}
		prompts := make([]*processor.Prompt, len(j.Prompts))
		for i, ids := range j.Prompts {
			prompts[i] = &processor.Prompt{IDs: ids}
		}
		if j.Messages != nil {
			if prompts, err = j.conversations(a); err != nil {
				return err
			}
		}
		return serve(j, a, m, vl.NewPolicy(m), prompts)
	case "seq2seq":
		opt := seq2seq.DefaultOptions()
		opt.LoRA.Enabled = false
		if err := json.Unmarshal(j.Options, &opt); err != nil {
			return err
		}
		m, err := seq2seq.Open(opt, "cpu", j.Seed, nil)
		if err != nil {
			return err
		}
		return serve(j, a, m, seq2seq.NewPolicy(m), j.Prompts)
	}
	return fmt.Errorf("no policy %q", j.Policy)
}

// conversations are the prompts that the folder's template and processor make of messages.
func (j *Job) conversations(a *Answer) ([]*processor.Prompt, error) {
	proc, err := processor.Open(j.Folder)
	if err != nil {
		return nil, err
	}
	var prompts []*processor.Prompt
	for _, raw := range j.Messages {
		messages, err := chat.ParseMessages(raw)
		if err != nil {
			return nil, err
		}
		prompt, err := proc.Prompt(messages)
		if err != nil {
			return nil, err
		}
		prompts, a.IDs = append(prompts, prompt), append(a.IDs, prompt.IDs)
	}
	return prompts, nil
}

// network is a model of either policy.
type network[P any] interface {
	tokens.Model[P]
	SaveMerged(path, dtype string) error
	SaveAdapter(path, baseName string) error
	Free()
}

func serve[P any](j *Job, a *Answer, m network[P], p *tokens.Policy[P], prompts []P) error {
	defer m.Free()
	params := m.Tensors().Params()
	if j.Perturb != 0 {
		values := params.Values()
		for _, name := range params.Names() {
			from, to := params.Range(name)
			for i := from; i < to; i++ {
				values[i] += float32(j.Perturb * sine(i-from))
			}
		}
		params.SetValues(values)
	}
	groups := make([]tokens.Group[P], len(prompts))
	for i := range prompts {
		groups[i].Prompt = prompts[i]
		if i < len(j.Completions) {
			groups[i].Completions = j.Completions[i]
		}
	}
	switch j.Do {
	case "logits":
		defer torchx.Scope()()
		defer torchx.NoGrad()()
		hidden, targets, err := m.Hidden(groups, nopass())
		if err != nil {
			return err
		}
		if a.LogP, err = tokens.LogProbs[P](m, groups); err != nil {
			return err
		}
		z := torchx.Data[float32](m.Tensors().Logits(hidden))
		return tensorfile.WriteSafetensors(j.Out, []tensorfile.Tensor{tensorfile.FromFloat32s("logits", []int{len(targets), len(z) / len(targets)}, z)}, nil)
	case "score":
		return j.timed(a, func() (err error) { a.LogP, err = tokens.LogProbs[P](m, groups); return err })
	case "generate":
		return j.timed(a, func() error {
			how := tokens.GenerateOptions{SamplingOptions: tokens.DefaultSampling(j.Tokens), IgnoreEOS: j.Repeats > 0}
			how.Temperature = 0
			if j.Policy == "vl" {
				how.Suppressed = []int64{}
			}
			if j.Constraints != nil { // as task=generate reads them of a folder
				said, err := tokens.ParseSampling(j.Constraints)
				if err == nil && len(said.Refused) > 0 {
					err = fmt.Errorf("refused: %v", said.Refused)
				}
				if err != nil {
					return err
				}
				how.Constraints = said.Constraints
			}
			answers, err := tokens.Generate[P](m, prompts, max(1, j.Samples), how)
			a.Completions = nil
			for _, group := range answers {
				var all [][]int64
				for _, c := range group {
					all = append(all, c.IDs)
				}
				a.Completions = append(a.Completions, all)
			}
			return err
		})
	case "merge":
		return m.SaveMerged(j.Out, j.DType)
	case "adapter":
		return m.SaveAdapter(j.Out, j.Folder)
	case "train":
		return train(j, a, p, prompts)
	}
	return fmt.Errorf("no job %q", j.Do)
}

// timed does the work once, and where the job asks for repeats as often again, with the seconds of each.
func (j *Job) timed(a *Answer, work func() error) error {
	if err := work(); err != nil {
		return err
	}
	for range j.Repeats {
		start := time.Now()
		if err := work(); err != nil {
			return err
		}
		a.Seconds = append(a.Seconds, time.Since(start).Seconds())
	}
	return nil
}

// tokenize encodes texts with the folder's tokenizer, without and with the special tokens that it adds, and decodes them.
func (j *Job) tokenize(a *Answer) error {
	t, err := tokenizer.Open(j.Folder)
	if err != nil {
		return err
	}
	for _, text := range j.Texts {
		ids := t.Encode(text)
		a.IDs = append(a.IDs, ids, t.EncodeSpecial(text))
		a.Texts = append(a.Texts, t.Decode(ids, false), t.Decode(ids, true))
	}
	if j.Out != "" {
		return t.Save(j.Out)
	}
	return nil
}

// render applies the folder's chat template to messages.
func (j *Job) render(a *Answer) error {
	known, err := tokenizer.Open(j.Folder)
	if err != nil {
		return err
	}
	t, err := chat.Open(j.Folder, known.Knows)
	if err != nil {
		return err
	}
	messages, err := chat.ParseMessages(j.Messages[0])
	if err != nil {
		return err
	}
	for _, prompt := range []bool{true, false} {
		text, err := t.Render(messages, chat.RenderOptions{AddGenerationPrompt: prompt})
		if err != nil {
			return err
		}
		a.Texts = append(a.Texts, text)
	}
	return nil
}
