package chat

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/jsonwords"
	"fulcrum/internal/registry"
	"fulcrum/internal/regular"
)

// Template renders messages as one text.
type Template struct {
	source string            // Jinja
	tokens map[string]string // bos_token and the like, for templates that write them
	render func([]Message, RenderOptions) (string, error)
}

// RenderOptions are the switches of the published templates.
type RenderOptions struct {
	AddGenerationPrompt bool // end with the head of the assistant's turn
	AddVisionID         bool // "Picture 1: " before the images, "Video 1: " before the videos
}

// Render returns the text of msgs.
func (t *Template) Render(msgs []Message, opt RenderOptions) (string, error) {
	if len(msgs) == 0 {
		return "", errors.New("chat template: no messages")
	}
	return t.render(msgs, opt)
}

// Source returns the Jinja source of the template.
func (t *Template) Source() string { return t.source }

// The default system messages of the two families.
const (
	vlSystem   = "You are a helpful assistant."
	textSystem = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
)

// QwenVL is the template of Qwen2.5-VL, written in Go.
func QwenVL() *Template {
	return &Template{source: qwenVLSource, render: func(msgs []Message, opt RenderOptions) (string, error) {
		return chatML(msgs, opt, vlSystem), nil
	}}
}

// ChatML is the template of Qwen2.5-VL without a default system message.
func ChatML() *Template {
	return &Template{source: chatMLSource, render: func(msgs []Message, opt RenderOptions) (string, error) {
		return chatML(msgs, RenderOptions{AddGenerationPrompt: opt.AddGenerationPrompt}, ""), nil
	}}
}

// QwenText is the template of the text-only Qwen2.5, tools aside.
func QwenText() *Template {
	return &Template{source: qwenTextSource, render: func(msgs []Message, opt RenderOptions) (string, error) {
		for i, m := range msgs {
			for _, p := range m.Parts {
				if p.Type != Text {
					return "", fmt.Errorf("chat template: message %d has %s: this model reads text only", i+1,
						map[string]string{Image: "an image", Video: "a video"}[p.Type])
				}
			}
		}
		return chatML(msgs, opt, textSystem), nil
	}}
}

// chatML writes <|im_start|>role\ncontent<|im_end|>\n for each message; the default system message comes
// first where the conversation has none, "" for no default.
func chatML(msgs []Message, opt RenderOptions, system string) string {
	var b strings.Builder
	if msgs[0].Role != "system" && system != "" {
		b.WriteString("<|im_start|>system\n" + system + "<|im_end|>\n")
	}
	seen := map[string]int{} // images and videos
	for _, m := range msgs {
		b.WriteString("<|im_start|>" + m.Role + "\n")
		if m.Parts == nil {
			b.WriteString(m.Text)
		}
		for _, p := range m.Parts {
			if p.Type != Image && p.Type != Video {
				b.WriteString(p.Text)
				continue
			}
			if seen[p.Type]++; opt.AddVisionID {
				fmt.Fprintf(&b, "%s %d: ", map[string]string{Image: "Picture", Video: "Video"}[p.Type], seen[p.Type])
			}
			b.WriteString("<|vision_start|><|" + p.Type + "_pad|><|vision_end|>")
		}
		b.WriteString("<|im_end|>\n")
	}
	if opt.AddGenerationPrompt {
		b.WriteString("<|im_start|>assistant\n")
	}
	return b.String()
}

// Open returns the chat template of a HuggingFace folder: chat_template.jinja, chat_template.json, or
// the chat_template of tokenizer_config.json (a text, or a list of named ones of which "default" is
// taken). A folder without one gets Qwen2.5-VL's, or QwenText's when it has no
// preprocessor_config.json, if its vocabulary has their token of a turn (knows).
func Open(folder string, knows func(token string) bool) (*Template, error) {
	source, path, err := find(folder)
	if err != nil {
		return nil, err
	}
	if path == "" {
		if !knows("<|im_start|>") {
			return nil, fmt.Errorf("%s: no chat_template, and the vocabulary has no <|im_start|> for Qwen's: want chat_template.jinja, as the "+
				"instruction-tuned models have it", folder)
		}
		if _, err := os.Stat(filepath.Join(folder, "preprocessor_config.json")); err == nil {
			return QwenVL(), nil
		}
		return QwenText(), nil
	}
	t, err := Parse(source)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	config := filepath.Join(folder, "tokenizer_config.json")
	data, err := regular.ReadOptional(config)
	if data != nil {
		t.tokens, err = specialTokens(data)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", config, err)
	}
	return t, nil
}

// find returns the source of the folder's template and its file, "" when it has none.
func find(folder string) (source, path string, err error) {
	path = filepath.Join(folder, "chat_template.jinja")
	if data, err := regular.ReadOptional(path); data != nil || err != nil {
		return string(data), path, err
	}
	for _, name := range []string{"chat_template.json", "tokenizer_config.json"} {
		path = filepath.Join(folder, name)
		data, err := regular.ReadOptional(path)
		if err != nil {
			return "", "", err
		}
		if data == nil {
			continue
		}
		var f struct {
			Template json.RawMessage `json:"chat_template"`
		}
		if err := jsonwords.Unmarshal(data, &f); err != nil {
			return "", "", fmt.Errorf("%s: %w", path, err)
		}
		if len(f.Template) == 0 || string(f.Template) == "null" {
			continue
		}
		source, err := named(f.Template)
		if err != nil {
			return "", "", fmt.Errorf("%s: %w", path, err)
		}
		return source, path, nil
	}
	return "", "", nil
}

// named reads a template: a text, [{"name", "template"}] or {"name": "template"}.
func named(raw json.RawMessage) (string, error) {
	var source string
	if json.Unmarshal(raw, &source) == nil {
		return source, nil
	}
	byName := map[string]string{}
	var list []struct{ Name, Template string }
	if json.Unmarshal(raw, &list) == nil {
		for _, t := range list {
			byName[t.Name] = t.Template
		}
	} else if json.Unmarshal(raw, &byName) != nil {
		return "", errors.New("chat_template: want a text or a list of {\"name\", \"template\"}")
	}
	if source, ok := byName["default"]; ok {
		return source, nil
	}
	return "", registry.Unknown("chat_template", "default", slices.Collect(maps.Keys(byName)))
}

// Parse returns the template of a Jinja source. Those of Qwen2.5-VL and Qwen2.5 and ChatML are known and
// run in Go (a microsecond); any other runs through a Jinja library (a hundred times that).
func Parse(source string) (*Template, error) {
	for _, known := range []*Template{QwenVL(), QwenText(), ChatML()} {
		if strings.TrimSpace(source) == strings.TrimSpace(known.source) {
			known.source = source
			return known, nil
		}
	}
	return parseJinja(source)
}

// qwenVLSource is the published template of Qwen2.5-VL; Parse knows it and takes the one in Go.
//
//go:embed qwen_vl.jinja
var qwenVLSource string

// qwenTextSource is that of Qwen2.5 without its part for tools.
//
//go:embed qwen_text.jinja
var qwenTextSource string

// chatMLSource is that of ChatML.
//
//go:embed chatml.jinja
var chatMLSource string
