package lvlm

import (
	"fmt"
	"slices"
	"strings"

	"fulcrum/internal/chat"
	"fulcrum/internal/regular"
	"fulcrum/internal/tokenizer"
)

// plainTemplate is for models that have none: lines of questions and answers.
const plainTemplate = `{% for message in messages %}{% if message['role'] == 'user' %}Question: ` +
	`{{ message['content'] }}{{ '\n' }}` +
	`{% else %}Short answer: {{ message['content'] }}{{ '\n' }}{% endif %}{% endfor %}` +
	`{% if add_generation_prompt %}Short answer:{% endif %}` // line ends as expressions: one behind a block would go

// rendering is how prompts become text, and tokens where the model's tokenizer is here.
type rendering struct {
	template *chat.Template // nil: the server's own, unknown here
	given    bool           // by lvlm.template
	ending   string         // that the template writes behind an answer: "<|im_end|>"; "" = not known yet
	tokens   *tokenizer.Tokenizer
	image    int64 // id that stands for an image in a prompt; -1 = none
}

// fallback returns the template of a kind of server where the options name none; "": the server applies its own.
func fallback(kind string) string {
	switch kind {
	case "sglang":
		return chat.QwenVL().Source()
	case "completions":
		return plainTemplate
	}
	return ""
}

// openRendering reads the template and the tokenizer that the options name. fallback is the template's source where they name
// none, "" = none.
func openRendering(opt Options, fallback string) (*rendering, error) {
	r := &rendering{image: -1}
	var err error
	of := ""
	if opt.Path != nil {
		if r.tokens, err = tokenizer.Open(*opt.Path); err != nil {
			return nil, fmt.Errorf("lvlm.path=%s: %w", *opt.Path, err)
		}
		for _, name := range []string{"<|image_pad|>", "<image>"} {
			if id, ok := r.tokens.ID(name); ok {
				r.image = id
				break
			}
		}
	}
	switch {
	case opt.Template != nil:
		of = "lvlm.template=" + *opt.Template + ": "
		source, readErr := regular.ReadFile(*opt.Template)
		if readErr != nil {
			return nil, fmt.Errorf("lvlm.template: %w", readErr)
		}
		r.given = true
		if r.template, err = chat.Parse(string(source)); err != nil {
			return nil, fmt.Errorf("%s%w", of, err)
		}
	case opt.Path != nil:
		of = "lvlm.path=" + *opt.Path + ": "
		if r.template, err = chat.Open(*opt.Path, r.tokens.Knows); err != nil {
			return nil, fmt.Errorf("%s%w", of, err)
		}
	case fallback != "":
		if r.template, err = chat.Parse(fallback); err != nil {
			return nil, err
		}
	}
	if r.template != nil {
		if err = r.findEnding(); err != nil {
			err = fmt.Errorf("%s%w", of, err)
		}
	}
	return r, err
}

// findEnding renders an answer and takes what the template writes behind it: the text that ends a turn, or white space.
func (r *rendering) findEnding() error {
	const answer = "Xyzzy"
	whole, err := r.render(Prompt{Query: Example{Question: "?", Answer: answer}})
	if err != nil {
		return err
	}
	_, rest, found := strings.Cut(whole, answer)
	if r.ending = strings.TrimRight(rest, " \t\r\n"); r.ending == "" {
		r.ending = rest
	}
	if !found || r.ending == "" {
		return fmt.Errorf("chat template: nothing ends an answer (%q): its likelihood needs an end", whole)
	}
	return nil
}

// render writes a prompt with its answer, or, where it has none, up to where the model answers.
func (r *rendering) render(p Prompt) (string, error) {
	return r.template.Render(Messages(p), chat.RenderOptions{AddGenerationPrompt: p.Query.Answer == ""})
}

// whole returns a prompt with its answer up to the answer's end; one that has none, up to where the model answers.
func (r *rendering) whole(p Prompt) (text string, err error) {
	if p.Query.Answer == "" {
		return r.render(p)
	}
	text, _, err = r.texts(p)
	return text, err
}

// texts returns a prompt up to the end of its answer, and where the answer begins in it.
func (r *rendering) texts(p Prompt) (whole string, from int, err error) {
	if whole, err = r.render(p); err != nil {
		return "", 0, err
	}
	open := p
	open.Query.Answer = ""
	before, err := r.render(open)
	if err != nil {
		return "", 0, err
	}
	if !strings.HasPrefix(whole, before) {
		return "", 0, fmt.Errorf("chat template: an answer does not begin where the model answers: %q", whole[max(0, len(whole)-200):])
	}
	end := strings.LastIndex(whole, r.ending)
	if end < len(before) {
		return "", 0, fmt.Errorf("chat template: nothing ends the answer in %q", whole[len(before):])
	}
	return whole[:end+len(r.ending)], len(before), nil
}

// lacks counts the tokens that the tokenizer puts before a text, where ids do not begin with them.
func (r *rendering) lacks(ids []int64) int {
	before, _ := r.tokens.Special()
	if len(before) <= len(ids) && slices.Equal(before, ids[:len(before)]) {
		return 0
	}
	return len(before)
}

// expected returns the ids of a prompt up to the end of its answer, one for each image, and how many of them are the answer's.
func (r *rendering) expected(p Prompt) (ids []int64, answer int, err error) {
	whole, from, err := r.texts(p)
	if err != nil {
		return nil, 0, err
	}
	ids = r.tokens.Encode(whole)
	before := r.tokens.Encode(whole[:from])
	same := 0 // a token may reach across the border: it is the answer's
	for same < len(before) && same < len(ids) && ids[same] == before[same] {
		same++
	}
	return ids, len(ids) - same, nil
}
