package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/ncruces/go-strftime"
	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"

	"fulcrum/internal/jsonwords"
)

// today is what strftime_now tells a template. A prompt that changes with the clock would make a run another one tomorrow: it is the date
// that Llama 3.1 and 3.2 write where no other is known.
var today = time.Date(2024, time.July, 26, 0, 0, 0, 0, time.UTC)

// parseJinja compiles a template that this package does not know, with the settings of HuggingFace:
// trim_blocks, lstrip_blocks, raise_exception, strftime_now (of a fixed day) and generation. It cannot read files, and what it may use is
// limited (limits.go). The library knows most of Jinja2; what it does not (a conditional expression in
// parentheses) is an error here, when the folder is opened.
func parseJinja(source string) (t *Template, err error) {
	defer recovered(nil, &err)
	const root = "/template"
	settings := config.New()
	settings.TrimBlocks, settings.LeftStripBlocks = true, true
	if err := checkSource(source, settings); err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	spaced := respell(source, settings)
	loader, err := loaders.NewMemoryLoader(map[string]string{root: spaced})
	if err != nil {
		return nil, err
	}
	environment := &exec.Environment{
		Context: exec.NewContext(limitedGlobals()).Update(builtins.GlobalVariables).Update(exec.NewContext(map[string]any{
			"raise_exception": func(message string) (string, error) { return "", errors.New(message) },
			"strftime_now":    func(format string) string { return strftime.Format(format, today) },
		})),
		Filters: limitedFilters(), Tests: pythonTests(), ControlStructures: limitedStatements(), Methods: limitedMethods(),
	}
	compiled, err := exec.NewTemplate(root, settings, loader, environment)
	if err != nil { // whose text quotes all of the template
		return nil, fmt.Errorf("chat template: %s", plain(errors.New(strings.ReplaceAll(err.Error(), " '"+spaced+"'", ""))))
	}
	watch(reflect.ValueOf(compiled.Root()), map[any]bool{})
	t = &Template{source: source}
	t.render = func(msgs []Message, opt RenderOptions) (text string, err error) {
		used := &budget{end: time.Now().Add(maxTime)}
		defer recovered(used, &err)
		data := map[string]any{
			"messages": dicts(msgs), "add_generation_prompt": opt.AddGenerationPrompt, "add_vision_id": opt.AddVisionID,
			"tools": (*none)(nil), "documents": (*none)(nil), budgetName: used,
		}
		for name, token := range t.tokens {
			data[name] = token
		}
		var out strings.Builder
		if err := compiled.Execute(&limitedWriter{&out, used}, exec.NewContext(data)); err != nil {
			return "", fmt.Errorf("chat template: %s", plain(err))
		}
		text = out.String()
		if listPrinted(text, msgs) {
			return "", errors.New("chat template: it takes messages whose content is one text, no list of parts")
		}
		return text, nil
	}
	return t, nil
}

// recovered turns a panic into an error. One of the template library tells of its own insides, not of the template: the error says
// where the template stood, of which used knows; nil while it is parsed.
func recovered(used *budget, err *error) {
	switch r := recover().(type) {
	case nil:
	case refused:
		*err = fmt.Errorf("chat template: %s", plain(errors.New(string(r))))
	default:
		where := "cannot be parsed"
		if used != nil {
			where = fmt.Sprintf("line %d: a value of a kind that the filter, operator or function here does not take", used.line)
		}
		*err = fmt.Errorf("chat template: %s", where)
	}
}

// listPrinted reports whether the template wrote a list of parts as Python would print it: Jinja2
// refuses "text" + list, the library here does not.
func listPrinted(text string, msgs []Message) bool {
	const printed = "'type': '"
	said := 0
	for _, m := range msgs {
		said += strings.Count(m.Text, printed)
		for _, p := range m.Parts {
			said += strings.Count(p.Text, printed)
		}
	}
	return strings.Count(text, printed) > said
}

// dicts returns msgs as the template reads them.
func dicts(msgs []Message) []any {
	out := make([]any, len(msgs))
	for i, m := range msgs {
		var content any = m.Text
		if m.Parts != nil {
			parts := make([]any, len(m.Parts))
			for j, p := range m.Parts {
				part := map[string]any{"type": p.Type}
				switch {
				case p.Type == Text:
					part["text"] = p.Text
				case p.Path != "":
					part[p.Type] = p.Path
				}
				parts[j] = part
			}
			content = parts
		}
		out[i] = map[string]any{"role": m.Role, "content": content}
	}
	return out
}

// specialTokens reads the tokens that templates write by name (bos_token, …) from
// tokenizer_config.json; each is a text or an object with its content.
func specialTokens(data []byte) (map[string]string, error) {
	var config map[string]json.RawMessage
	if err := jsonwords.Unmarshal(data, &config); err != nil {
		return nil, err
	}
	tokens := map[string]string{}
	for _, name := range []string{"bos_token", "eos_token", "pad_token", "unk_token"} {
		var text string
		var object struct{ Content string }
		if json.Unmarshal(config[name], &text) == nil && text != "" {
			tokens[name] = text
		} else if json.Unmarshal(config[name], &object) == nil && object.Content != "" {
			tokens[name] = object.Content
		}
	}
	return tokens, nil
}

// generation is {% generation %}…{% endgeneration %} of transformers, which tells the assistant's own tokens apart (SmolLM3): the text
// inside, with a scope of its own.
type generation struct {
	at   *tokens.Token
	body *nodes.Wrapper
}

func parseGeneration(p, args *parser.Parser) (nodes.ControlStructure, error) {
	g := &generation{at: p.Current()}
	if !args.End() {
		return nil, args.Error("generation takes no arguments", nil)
	}
	var end *parser.Parser
	var err error
	if g.body, end, err = p.WrapUntil("endgeneration"); err == nil && !end.End() {
		err = end.Error("endgeneration takes no arguments", nil)
	}
	return g, err
}

// Position and String describe the statement for the library's errors.
func (g *generation) Position() *tokens.Token { return g.at }
func (g *generation) String() string          { return "generation" }

// Execute writes the body.
func (g *generation) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	return r.Inherit().ExecuteWrapper(g.body)
}
