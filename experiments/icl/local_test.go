package icl

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/experiments/lvlm"
	"fulcrum/internal/testkit/golden"
	"fulcrum/selector/vl"
	"fulcrum/selector/vl/processor"
)

// openLocal opens the fixtures' model of random weights.
func openLocal(t *testing.T, o LocalOptions) (*Local, error) {
	t.Helper()
	return openIn(t, "auto", o)
}

// TestIdentityHasTheType: what one type computes is not answered with another's numbers.
func TestIdentityHasTheType(t *testing.T) {
	var seen []lvlm.Identity
	for _, dtype := range []string{"auto", "float32", "bfloat16"} {
		local, err := openIn(t, dtype, LocalOptions{MaxNewTokens: 5, Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, local.Identity())
	}
	if seen[0] != seen[1] || seen[1] == seen[2] {
		t.Errorf("identities %v", seen)
	}
}

func openIn(t *testing.T, dtype string, o LocalOptions) (*Local, error) {
	t.Helper()
	folder := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "tiny_tied", "config.json"))
	opt := vl.DefaultOptions()
	opt.Path, opt.LoRA.Enabled, opt.DType = &folder, false, dtype
	model, err := vl.Open(opt, "cpu", 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	proc, err := processor.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	local, err := NewLocal(model, proc, "tiny", o)
	if err != nil {
		model.Free()
		return nil, err
	}
	t.Cleanup(func() { local.Close() })
	return local, nil
}

// asked is a line of testdata/likelihoods.json, which scripts/peers/icl.py writes with transformers.
type asked struct {
	Prompt   lvlm.Prompt
	LogProbs []float64 `json:"logprobs"`
	Answer   string
}

func askedOf(t *testing.T) (lines []asked, prompts []lvlm.Prompt) {
	t.Helper()
	golden.JSON(t, "testdata/likelihoods.json", &lines)
	at := func(e *lvlm.Example) { e.Image = golden.Shared(t, "qwen2_5_vl", e.Image) }
	for i := range lines {
		for k := range lines[i].Prompt.Shots {
			at(&lines[i].Prompt.Shots[k])
		}
		at(&lines[i].Prompt.Query)
		prompts = append(prompts, lines[i].Prompt)
	}
	return lines, prompts
}

// TestLikelihoods: a call's prompts, computed with shared demonstrations, have the log-probabilities and greedy answers that a
// plain program on transformers finds one by one, and InfoScores within 1e-4.
func TestLikelihoods(t *testing.T) {
	local, err := openLocal(t, LocalOptions{MaxNewTokens: 5, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	lines, prompts := askedOf(t)
	got, err := local.Score(context.Background(), prompts)
	if err != nil {
		t.Fatal(err)
	}
	answers, err := local.Answer(context.Background(), prompts)
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != 8 {
		t.Fatalf("%d prompts, want 8", len(lines))
	}
	for i, l := range lines {
		golden.Close(t, got[i].LogProbs, l.LogProbs, 5e-5)
		n, err := local.Tokens(prompts[i])
		if answers[i] != (lvlm.Reply{Text: l.Answer, Tokens: n}) || err != nil {
			t.Errorf("prompt %d: answer %v, want %q after %d tokens, %v", i, answers[i], l.Answer, n, err)
		}
	}
}

// TestTemplatesOfLanguageModels: a template that adds a message's content to a string, as SmolLM2's, reads prompts without pictures, and
// they have the numbers that they have by a template that takes lists.
func TestTemplatesOfLanguageModels(t *testing.T) {
	template := filepath.Join(t.TempDir(), "t.jinja")
	if err := os.WriteFile(template, []byte(`{% for message in messages %}{% if loop.first %}{{ '<|im_start|>system\n`+
		`You are a helpful assistant.<|im_end|>\n' }}{% endif %}{{ '<|im_start|>' + message['role'] + '\n' + `+
		`message['content'] + '<|im_end|>' + '\n' }}`+
		`{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`), 0o644); err != nil {
		t.Fatal(err)
	}
	_, prompts := askedOf(t)
	for i := range prompts {
		prompts[i] = prompts[i].WithoutImages()
	}
	var scores [2][]lvlm.Likelihood
	for i, o := range []LocalOptions{{MaxNewTokens: 5, Threads: 1}, {MaxNewTokens: 5, Threads: 1, Template: &template}} {
		local, err := openLocal(t, o)
		if err != nil {
			t.Fatal(err)
		}
		if scores[i], err = local.Score(context.Background(), prompts); err != nil {
			t.Fatal(err)
		}
	}
	for i := range prompts {
		golden.Close(t, scores[1][i].LogProbs, scores[0][i].LogProbs, 0)
	}
}

// TestLocalRefuses: what cannot be asked is one line with its reason.
func TestLocalRefuses(t *testing.T) {
	template := filepath.Join(t.TempDir(), "t.jinja")
	if err := os.WriteFile(template, []byte("{% for m in messages %}{{ m['content'] }}\n{% endfor %}answer: "), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]LocalOptions{
		"lvlm.template=" + template + ".no: ": {Template: ptr(template + ".no")},
		"does not begin with the open one":    {Template: &template},
	} {
		if _, err := openLocal(t, o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
	local, err := openLocal(t, LocalOptions{MaxNewTokens: 5, ImageSize: 224})
	if err != nil {
		t.Fatal(err)
	}
	_, prompts := askedOf(t)
	for name, change := range map[string]func(p *lvlm.Prompt){
		"query 7: message 1, part 1 (image): open /no/picture.png: ": func(p *lvlm.Prompt) { p.Query.Image = "/no/picture.png"; p.Shots = nil },
		"query 7: the prompt has ":                                   func(p *lvlm.Prompt) { p.Query.Answer = strings.Repeat("long ", 90000) },
		"query 7: no answer to score":                                func(p *lvlm.Prompt) { p.Query.Answer = "" },
	} {
		p := prompts[0]
		p.Query.ID = 7
		change(&p)
		if _, err := local.Score(context.Background(), []lvlm.Prompt{prompts[1], p}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
	stopped, stop := context.WithCancel(context.Background())
	stop()
	if _, err := local.Score(stopped, prompts); err == nil {
		t.Error("a call that was stopped went on")
	}
}

func ptr[T any](v T) *T { return &v }
