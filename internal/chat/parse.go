package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fulcrum/internal/jsonwords"
	"fulcrum/internal/registry"
)

// ParseMessages reads HuggingFace chat JSON: a list of {"role", "content"}, the content a string or a
// list of parts. A part is a string, or an object with a "type" or with one of the keys that imply it:
//
//	{"type": "text", "text": "…"}
//	{"type": "image", "image": "a.png"}          also "path" or "url"; without one it waits for a list
//	{"type": "image_url", "image_url": "a.png"}  or {"url": "a.png"}
//	{"type": "video", "video": "v.mp4", "fps": 2}  or a list of frame files
//
// Errors name the message and the part, counted from 1.
func ParseMessages(raw json.RawMessage) ([]Message, error) {
	var list []json.RawMessage
	if err := jsonwords.Unmarshal(raw, &list); err != nil {
		return nil, errors.New("messages: want a list of {\"role\", \"content\"}")
	}
	if len(list) == 0 {
		return nil, errors.New("messages: the list is empty")
	}
	msgs := make([]Message, len(list))
	for i, raw := range list {
		var err error
		if msgs[i], err = parseMessage(raw); err != nil {
			return nil, fmt.Errorf("message %d: %w", i+1, err)
		}
	}
	return msgs, nil
}

func parseMessage(raw json.RawMessage) (Message, error) {
	m, err := object(raw)
	if err != nil {
		return Message{}, errors.New("want {\"role\", \"content\"}")
	}
	if err := known("key", m, "role", "content", "name"); err != nil {
		return Message{}, err
	}
	var out Message
	if json.Unmarshal(m["role"], &out.Role) != nil || out.Role == "" {
		return Message{}, errors.New("\"role\" is missing: want system, user or assistant")
	}
	content := bytes.TrimSpace(m["content"])
	switch {
	case len(content) > 0 && content[0] == '"':
		return out, jsonwords.Unmarshal(content, &out.Text)
	case len(content) > 0 && content[0] == '[':
		var parts []json.RawMessage
		if err := jsonwords.Unmarshal(content, &parts); err != nil {
			return Message{}, err
		}
		out.Parts = make([]Part, len(parts))
		for i, raw := range parts {
			var err error
			if out.Parts[i], err = parsePart(raw); err != nil {
				return Message{}, fmt.Errorf("part %d: %w", i+1, err)
			}
		}
		return out, nil
	}
	return Message{}, errors.New("\"content\" is missing: want a string or a list of parts")
}

func parsePart(raw json.RawMessage) (Part, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return Part{Type: Text, Text: text}, nil
	}
	m, err := object(raw)
	if err != nil {
		return Part{}, fmt.Errorf("want a string or an object: %w", err)
	}
	kind, err := kindOf(m)
	if err != nil {
		return Part{}, err
	}
	p := Part{Type: kind}
	switch kind {
	case Text:
		if err := known("key", m, "type", "text"); err != nil {
			return Part{}, err
		}
		if m["text"] == nil || json.Unmarshal(m["text"], &p.Text) != nil {
			return Part{}, errors.New("a text part wants \"text\": a string")
		}
		return p, nil
	case Image:
		if err := known("key", m, "type", "image", "image_url", "path", "url", "min_pixels", "max_pixels"); err != nil {
			return Part{}, err
		}
		p.Path, _, err = source(m, "image", "image_url", "path", "url")
	case Video:
		if err := known("key", m, "type", "video", "video_url", "path", "url", "frames", "fps",
			"min_frames", "max_frames", "min_pixels", "max_pixels"); err != nil {
			return Part{}, err
		}
		p.Path, p.Frames, err = source(m, "video", "frames", "video_url", "path", "url")
	}
	if err != nil {
		return Part{}, err
	}
	for key, to := range map[string]any{"fps": &p.FPS, "min_frames": &p.MinFrames, "max_frames": &p.MaxFrames,
		"min_pixels": &p.MinPixels, "max_pixels": &p.MaxPixels} {
		if raw, ok := m[key]; ok && json.Unmarshal(raw, to) != nil {
			return Part{}, fmt.Errorf("%s: %s, want a number", key, raw)
		}
	}
	if p.FPS < 0 || p.MinFrames < 0 || p.MaxFrames < 0 || p.MinPixels < 0 || p.MaxPixels < 0 {
		return Part{}, errors.New("fps, min_frames, max_frames, min_pixels and max_pixels want positive numbers")
	}
	if p.MaxFrames == 1 || p.MaxFrames > 0 && p.MinFrames > p.MaxFrames {
		return Part{}, fmt.Errorf("min_frames %d, max_frames %d: want min ≤ max, and at least two frames", p.MinFrames, p.MaxFrames)
	}
	return p, nil
}

// object reads a message or a part. A key that is null is none: tables of messages write every key of any of them.
func object(raw json.RawMessage) (m map[string]json.RawMessage, err error) {
	err = jsonwords.Unmarshal(raw, &m)
	maps.DeleteFunc(m, func(_ string, value json.RawMessage) bool { return string(value) == "null" })
	return m, err
}

// kindOf follows the template's order: a part with an image is an image, whatever else it has.
func kindOf(m map[string]json.RawMessage) (string, error) {
	var kind string
	if raw, ok := m["type"]; ok && json.Unmarshal(raw, &kind) != nil {
		return "", fmt.Errorf("type: %s, want a string", raw)
	}
	switch {
	case kind == Image || kind == "image_url" || m["image"] != nil || m["image_url"] != nil:
		return Image, nil
	case kind == Video || kind == "video_url" || m["video"] != nil:
		return Video, nil
	case kind == Text || kind == "" && m["text"] != nil:
		return Text, nil
	case kind == "":
		return "", errors.New("want a \"type\": text, image or video")
	}
	return "", registry.Unknown("part type", kind, []string{Text, Image, "image_url", Video})
}

// source returns the path or the list of frames under the first of keys that is there.
func source(m map[string]json.RawMessage, keys ...string) (path string, frames []string, err error) {
	for _, key := range keys {
		raw, ok := m[key]
		if !ok {
			continue
		}
		var object struct {
			URL string `json:"url"`
		}
		switch {
		case json.Unmarshal(raw, &path) == nil:
			return strings.TrimPrefix(path, "file://"), nil, nil
		case key == "video" || key == "frames":
			if json.Unmarshal(raw, &frames) == nil && len(frames) > 0 {
				for i := range frames {
					frames[i] = strings.TrimPrefix(frames[i], "file://")
				}
				return "", frames, nil
			}
			return "", nil, fmt.Errorf("%s: want a path or a list of paths", key)
		case strings.HasSuffix(key, "_url") && json.Unmarshal(raw, &object) == nil && object.URL != "":
			return strings.TrimPrefix(object.URL, "file://"), nil, nil
		}
		return "", nil, fmt.Errorf("%s: want a path", key)
	}
	return "", nil, nil
}

// known refuses keys outside names.
func known(kind string, m map[string]json.RawMessage, names ...string) error {
	for key := range m {
		if !slices.Contains(names, key) {
			return registry.Unknown(kind, key, names)
		}
	}
	return nil
}
