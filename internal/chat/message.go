// Package chat holds the messages of a conversation and turns them into the text that a model reads.
package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"image"
)

// Part is one piece of a message: text, an image or a video.
type Part struct {
	Type string // text, image or video
	Text string

	Path   string   // of an image, a video file or a folder of frames
	Frames []string // of a video: image files in order
	FPS    float64  // frames per second of Frames or of the sampled video; 0 = the default

	Picture func() (image.Image, error) // an image made in memory instead of a file; or nil
	Key     string                      // identity of Picture for caches
}

// Message is one turn of a conversation.
type Message struct {
	Role  string
	Text  string
	Parts []Part // nil: Text is the whole content
}

// ParseMessages reads messages in the HuggingFace form: a list of {"role", "content"}, where content is a text
// or a list of parts {"type": "text"|"image"|"video", …}. Parts may lack a path: the caller knows the files.
func ParseMessages(raw json.RawMessage) ([]Message, error) {
	var list []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, errors.New(`want a list of {"role", "content"}`)
	}
	out := make([]Message, len(list))
	for i, m := range list {
		out[i].Role = m.Role
		if m.Role == "" {
			return nil, fmt.Errorf("[%d]: no role", i)
		}
		if json.Unmarshal(m.Content, &out[i].Text) == nil {
			continue
		}
		var parts []part
		if err := json.Unmarshal(m.Content, &parts); err != nil {
			return nil, fmt.Errorf("[%d].content: want a text or a list of parts", i)
		}
		out[i].Parts = []Part{}
		for k, p := range parts {
			q, err := p.read()
			if err != nil {
				return nil, fmt.Errorf("[%d].content[%d]: %w", i, k, err)
			}
			out[i].Parts = append(out[i].Parts, q)
		}
	}
	return out, nil
}

type part struct {
	Type     string          `json:"type"`
	Text     *string         `json:"text"`
	Image    json.RawMessage `json:"image"`
	ImageURL json.RawMessage `json:"image_url"`
	Video    json.RawMessage `json:"video"`
	FPS      float64         `json:"fps"`
}

func (p part) read() (Part, error) {
	switch {
	case p.Type == "image" || p.Type == "image_url" || p.Image != nil || p.ImageURL != nil:
		out := Part{Type: "image"}
		var object struct {
			URL string `json:"url"`
		}
		switch {
		case p.Image != nil && json.Unmarshal(p.Image, &out.Path) != nil:
			return out, errors.New("image: want a path")
		case p.ImageURL != nil && json.Unmarshal(p.ImageURL, &out.Path) != nil:
			if json.Unmarshal(p.ImageURL, &object) != nil {
				return out, errors.New(`image_url: want a path or {"url": path}`)
			}
			out.Path = object.URL
		}
		return out, nil
	case p.Type == "video" || p.Video != nil:
		out := Part{Type: "video", FPS: p.FPS}
		if p.Video != nil && json.Unmarshal(p.Video, &out.Path) != nil && json.Unmarshal(p.Video, &out.Frames) != nil {
			return out, errors.New("video: want a path or a list of frame files")
		}
		return out, nil
	case p.Text != nil:
		return Part{Type: "text", Text: *p.Text}, nil
	}
	return Part{}, fmt.Errorf("type %q: want text, image or video", p.Type)
}
