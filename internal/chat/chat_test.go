package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

type chatCase struct {
	Name                string
	Messages            json.RawMessage
	AddGenerationPrompt bool `json:"add_generation_prompt"`
	AddVisionID         bool `json:"add_vision_id"`
	Text                string
	Error               string
}

// Both the template in Go and the published Jinja source give the text of the reference.
func TestQwenVLTemplate(t *testing.T) {
	var cases []chatCase
	golden.JSON(t, filepath.Join("testdata", "chat_cases.json"), &cases)
	if len(cases) != 20 {
		t.Fatalf("%d cases", len(cases))
	}
	jinja, err := parseJinja(qwenVLSource)
	if err != nil {
		t.Fatal(err)
	}
	known, err := Parse(qwenVLSource)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		msgs, err := ParseMessages(c.Messages)
		if err != nil {
			t.Fatal(err)
		}
		for name, template := range map[string]*Template{"go": QwenVL(), "known": known, "jinja": jinja} {
			got, err := template.Render(msgs, RenderOptions{AddGenerationPrompt: c.AddGenerationPrompt, AddVisionID: c.AddVisionID})
			if err != nil || got != c.Text {
				t.Errorf("%s: %s: got %q, %v\nwant %q", name, c.Messages, got, err, c.Text)
			}
		}
	}
}

// Templates of other styles, as Jinja2 renders them (testdata/make.py).
func TestOtherTemplates(t *testing.T) {
	var file struct {
		Templates map[string]string
		Cases     []chatCase
	}
	golden.JSON(t, filepath.Join("testdata", "templates.json"), &file)
	if len(file.Cases) != 132 {
		t.Fatalf("%d cases", len(file.Cases))
	}
	for _, c := range file.Cases {
		template, err := Parse(file.Templates[c.Name])
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		template.tokens = map[string]string{"bos_token": "<s>", "eos_token": "</s>"}
		msgs, err := ParseMessages(c.Messages)
		if err != nil {
			t.Fatal(err)
		}
		got, err := template.Render(msgs, RenderOptions{AddGenerationPrompt: c.AddGenerationPrompt})
		if strings.Contains(c.Text, "[{'type'") { // Jinja2 printed a list that the template cannot read
			c.Text, c.Error = "", "one text"
		}
		if got != c.Text || (err != nil) != (c.Error != "") {
			t.Errorf("%s: %s: got %q, %v\nwant %q, %s", c.Name, c.Messages, got, err, c.Text, c.Error)
		}
	}
}

// The built-in ChatML gives what its Jinja source gives, which is Qwen2.5-VL's text without the default
// system message.
func TestChatMLTemplate(t *testing.T) {
	var cases []chatCase
	golden.JSON(t, filepath.Join("testdata", "chat_cases.json"), &cases)
	jinja, err := parseJinja(chatMLSource)
	if err != nil {
		t.Fatal(err)
	}
	known, err := Parse(ChatML().Source())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if c.AddVisionID {
			continue
		}
		msgs, err := ParseMessages(c.Messages)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Replace(c.Text, "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n", "", 1)
		for name, template := range map[string]*Template{"go": ChatML(), "known": known, "jinja": jinja} {
			got, err := template.Render(msgs, RenderOptions{AddGenerationPrompt: c.AddGenerationPrompt})
			if err != nil || got != want {
				t.Errorf("%s: %s: got %q, %v\nwant %q", name, c.Messages, got, err, want)
			}
		}
	}
}

func TestQwenTextTemplate(t *testing.T) {
	jinja, err := parseJinja(qwenTextSource)
	if err != nil {
		t.Fatal(err)
	}
	for _, msgs := range [][]Message{
		{{Role: "user", Text: "Hi"}},
		{{Role: "system", Text: "Be brief."}, {Role: "user", Text: "Hi"}, {Role: "assistant", Text: "Yes"}, {Role: "user", Text: "Bye"}},
	} {
		for _, prompt := range []bool{false, true} {
			opt := RenderOptions{AddGenerationPrompt: prompt}
			got, err := QwenText().Render(msgs, opt)
			want, err2 := jinja.Render(msgs, opt)
			if err != nil || err2 != nil || got != want || !strings.Contains(got, msgs[0].Text) {
				t.Errorf("go %q, %v\njinja %q, %v", got, err, want, err2)
			}
		}
	}
	_, err = QwenText().Render([]Message{{Role: "user", Parts: []Part{{Type: Image}}}}, RenderOptions{})
	if err == nil || !strings.Contains(err.Error(), "message 1 has an image: this model reads text only") {
		t.Errorf("image: %v", err)
	}
}

func TestParseMessages(t *testing.T) {
	for _, c := range []struct{ name, json, want string }{
		{"text", `[{"role":"user","content":"hi"}]`, `text hi`},
		{"parts", `[{"role":"user","content":["a",{"type":"text","text":"b"}]}]`, `text a|text b`},
		{"image keys", `[{"role":"user","content":[{"type":"image","image":"a.png"},{"image":"file:///b.png"},{"type":"image_url","image_url":{"url":"c.png"}},{"type":"image","path":"d.png"},{"type":"image"}]}]`,
			`image a.png|image /b.png|image c.png|image d.png|image `},
		{"video", `[{"role":"user","content":[{"type":"video","video":["1.png","2.png"],"fps":3},{"video":"v.mp4"}]}]`,
			`video [1.png 2.png] 3|video v.mp4`},
		{"null is none", `[{"role":"user","name":null,"tool_calls":null,"content":[{"type":"image","image":"a.png","text":null,"fps":null},` +
			`{"type":"text","image":null,"text":"b"}]}]`, `image a.png|text b`},
		{"unknown type", `[{"role":"user","content":[{"type":"audio"}]}]`,
			`message 1: part 1: unknown part type "audio": want one of text, image, image_url, video`},
		{"a slip", `[{"role":"user","content":"a"},{"role":"user","content":[{"type":"imgae"}]}]`,
			`message 2: part 1: unknown part type "imgae" (did you mean image?)`},
		{"unknown key", `[{"role":"user","content":[{"type":"image","max_pixel":3}]}]`,
			`unknown key "max_pixel" (did you mean max_pixels?)`},
		{"no role", `[{"content":"x"}]`, `message 1: "role" is missing`},
		{"no content", `[{"role":"user"}]`, `message 1: "content" is missing`},
		{"not a list", `{"role":"user"}`, `messages: want a list`},
		{"empty", `[]`, `messages: the list is empty`},
		{"text without text", `[{"role":"user","content":[{"type":"text"}]}]`, `a text part wants "text"`},
		{"negative fps", `[{"role":"user","content":[{"type":"video","fps":-1}]}]`, `want positive numbers`},
	} {
		t.Run(c.name, func(t *testing.T) {
			msgs, err := ParseMessages([]byte(c.json))
			got := describe(msgs)
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}

func describe(msgs []Message) string {
	var out []string
	for _, m := range msgs {
		if m.Parts == nil {
			out = append(out, "text "+m.Text)
		}
		for _, p := range m.Parts {
			s := p.Type + " " + p.Text + p.Path
			if p.Frames != nil {
				fps, _ := json.Marshal(p.FPS)
				s += "[" + strings.Join(p.Frames, " ") + "] " + string(fps)
			}
			out = append(out, s)
		}
	}
	return strings.Join(out, "|")
}

func TestOpen(t *testing.T) {
	const foreign = "a vocabulary without Qwen's turns"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"text-only folder without a template", nil, "You are Qwen"},
		{"folder with images and without a template", map[string]string{"preprocessor_config.json": "{}"}, "You are a helpful assistant"},
		{foreign, nil, "no chat_template, and the vocabulary has no <|im_start|>"},
		{"jinja file first", map[string]string{"chat_template.jinja": "jinja", "chat_template.json": `{"chat_template":"json"}`}, "jinja"},
		{"json before the config", map[string]string{"chat_template.json": `{"chat_template":"json"}`,
			"tokenizer_config.json": `{"chat_template":"config"}`}, "json"},
		{"config with a token", map[string]string{"tokenizer_config.json": `{"bos_token":{"content":"<s>"},"chat_template":"{{ bos_token }}x"}`},
			"<s>x"},
		{"named", map[string]string{"tokenizer_config.json": `{"chat_template":[{"name":"tool_use","template":"a"},{"name":"default","template":"b"}]}`}, "b"},
		{"no default", map[string]string{"tokenizer_config.json": `{"chat_template":[{"name":"tool_use","template":"a"}]}`},
			`unknown chat_template "default": want one of tool_use`},
		{"beyond the library", map[string]string{"chat_template.jinja": "{{ ('a' if messages else 'b') + 'c' }}"},
			"chat_template.jinja: chat template: failed to parse template: Unbalanced parenthesis (Line: 1 Col: 4"},
		{"broken", map[string]string{"chat_template.jinja": "{% if %}"}, "chat_template.jinja: chat template: "},
		{"reads no files", map[string]string{"chat_template.jinja": "{% include '/etc/hostname' %}"}, "'include' not found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			for name, text := range c.files {
				if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			template, err := Open(folder, func(token string) bool { return token == "<|im_start|>" && c.name != foreign })
			got := ""
			if err == nil {
				got, err = template.Render([]Message{{Role: "user", Text: "Hi"}}, RenderOptions{})
			}
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	msgs := []Message{{Role: "user", Parts: []Part{{Type: Image, Path: "a.png"}, {Type: Image, Path: "/b.png"},
		{Type: Image, Path: "data:image/png;base64,AA"}, {Type: Video, Frames: []string{"1.png"}}}}}
	got := Resolve(msgs, "/data")
	if s := describe(got); s != "image /data/a.png|image /b.png|image data:image/png;base64,AA|video [/data/1.png] 0" {
		t.Error(s)
	}
	if msgs[0].Parts[3].Frames[0] != "1.png" {
		t.Error("Resolve changed its argument")
	}
}

func FuzzParseMessages(f *testing.F) {
	f.Add([]byte(`[{"role":"user","content":[{"type":"image","image":"a"},{"type":"video","video":["b"],"fps":1},"c"]}]`))
	f.Add([]byte(`[{"role":"system","content":"x"},{"role":"user","content":[{"image_url":{"url":"u"}},{"text":"t"}]}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		msgs, err := ParseMessages(data)
		if err != nil {
			return
		}
		text, err := QwenVL().Render(Resolve(msgs, "d"), RenderOptions{AddGenerationPrompt: true, AddVisionID: true})
		if err != nil || !strings.HasSuffix(text, "<|im_start|>assistant\n") {
			t.Errorf("%s: %q, %v", data, text, err)
		}
	})
}
