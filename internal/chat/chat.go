// Package chat holds conversations as HuggingFace writes them and renders them as the text that a model
// was trained on.
//
// err := chat.ParseMessages([]byte(`[{"role": "user", "content": [{"type": "image", "image": "a.png"}, {"type": "text",
// "text": "What is it?"}]}]`))
//
//	template, err := chat.Open("Qwen2.5-VL-3B-Instruct", tokenizer.Knows)
//	text, err := template.Render(msgs, chat.RenderOptions{AddGenerationPrompt: true})
//
// It knows nothing of tokens or pixels: an image is one placeholder in the text.
package chat

import (
	"image"
	"path/filepath"
	"strings"
)

// The types of a Part.
const (
	Text  = "text"
	Image = "image"
	Video = "video"
)

// Part is one piece of a message: a text, an image or a video.
type Part struct {
	Type string // Text, Image or Video
	Text string

	// An image is a file (Path; also a data: URI) or, in memory, what Picture returns. A video is a
	// video file or a folder of frames (Path), or a list of frame files (Frames).
	Path    string
	Frames  []string
	FPS     float64                     // frames a second: of Frames as given, of a video file as sampled; 0 = the default
	Picture func() (image.Image, error) // nil for a file
	Key     string                      // names the content of Picture for caches; "" = not cached

	MinFrames, MaxFrames int // bounds of the frames taken of a video file; 0 = the defaults
	MinPixels, MaxPixels int // bounds of the resized image or frame; 0 = those of the model's folder
}

// Message is one turn. Parts nil: Text is the whole content.
type Message struct {
	Role  string
	Text  string
	Parts []Part
}

// Resolve returns the messages with relative paths taken from folder, the folder of the file that the
// messages were read from.
func Resolve(msgs []Message, folder string) []Message {
	return edit(msgs, func(p *Part) {
		p.Path = resolve(folder, p.Path)
		for i := range p.Frames {
			p.Frames[i] = resolve(folder, p.Frames[i])
		}
	})
}

// resolve joins a relative path to folder. URLs stay: those that hold their data are read, others refused by name.
func resolve(folder, path string) string {
	path = strings.TrimPrefix(path, "file://")
	if path == "" || filepath.IsAbs(path) || strings.HasPrefix(path, "data:") || strings.Contains(path, "://") {
		return path
	}
	return filepath.Join(folder, path)
}

// edit returns a copy of msgs whose parts went through f.
func edit(msgs []Message, f func(*Part)) []Message {
	out := make([]Message, len(msgs))
	for i, m := range msgs {
		out[i] = m
		if m.Parts == nil {
			continue
		}
		out[i].Parts = make([]Part, len(m.Parts))
		for j, p := range m.Parts {
			p.Frames = append([]string(nil), p.Frames...)
			f(&p)
			out[i].Parts[j] = p
		}
	}
	return out
}
