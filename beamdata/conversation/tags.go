package conversation

import (
	"fmt"
	"strings"

	"fulcrum/internal/chat"
)

// user returns a user turn with its files in place of the tags. The text around a tag is kept as it stands.
func (f *files) user(value string) (chat.Message, error) {
	m := chat.Message{Role: "user"}
	rest := value
	for {
		at, tag := nextTag(rest)
		if at < 0 {
			break
		}
		if at > 0 {
			m.Parts = append(m.Parts, chat.Part{Type: "text", Text: rest[:at]})
		}
		part, err := f.next(strings.Trim(tag, "<>"))
		if err != nil {
			return m, err
		}
		m.Parts = append(m.Parts, part)
		rest = rest[at+len(tag):]
	}
	if m.Parts == nil {
		m.Text = value
	} else if rest != "" {
		m.Parts = append(m.Parts, chat.Part{Type: "text", Text: rest})
	}
	return m, nil
}

func nextTag(s string) (at int, tag string) {
	image, video := strings.Index(s, "<image>"), strings.Index(s, "<video>")
	if image >= 0 && (video < 0 || image < video) {
		return image, "<image>"
	}
	return video, "<video>"
}

func (f *files) next(kind string) (chat.Part, error) {
	list, n := f.images, &f.nextImage
	if kind == "video" {
		list, n = f.videos, &f.nextVideo
	}
	if *n >= len(list) {
		return chat.Part{}, fmt.Errorf("the %s <%s> tag has no file: the record names %d in %s or %ss", ordinal(*n+1), kind, len(list),
			kind, kind)
	}
	*n++
	return list[*n-1], nil
}

// fill gives the parts of a message without a path the record's files, and makes their own paths absolute.
func (f *files) fill(m *chat.Message, root string) error {
	if m.Parts == nil {
		if m.Role != "user" {
			return nil
		}
		filled, err := f.user(m.Text)
		*m = filled
		return err
	}
	for i := range m.Parts {
		p := &m.Parts[i]
		if p.Type == "text" || p.Picture != nil {
			continue
		}
		if p.Path == "" && len(p.Frames) == 0 {
			own := *p
			part, err := f.next(p.Type)
			if err != nil {
				return err
			}
			if *p = part; own.FPS != 0 {
				p.FPS = own.FPS
			}
			if own.MinFrames != 0 || own.MaxFrames != 0 {
				p.MinFrames, p.MaxFrames = own.MinFrames, own.MaxFrames
			}
			p.MinPixels, p.MaxPixels = own.MinPixels, own.MaxPixels
			continue
		}
		v := video{Path: p.Path, Frames: p.Frames, FPS: p.FPS}
		resolved, err := v.part(root)
		if err != nil {
			return err
		}
		p.Path, p.Frames = resolved.Path, resolved.Frames
	}
	return nil
}

// used reports files that no tag stands for.
func (f *files) used() error {
	if f.nextImage < len(f.images) {
		return fmt.Errorf("%d images for %d <image> tags: every image wants a tag in a user turn", len(f.images), f.nextImage)
	}
	if f.nextVideo < len(f.videos) {
		return fmt.Errorf("%d videos for %d <video> tags: every video wants a tag in a user turn", len(f.videos), f.nextVideo)
	}
	return nil
}

func ordinal(n int) string {
	switch {
	case n%10 == 1 && n%100 != 11:
		return fmt.Sprintf("%dst", n)
	case n%10 == 2 && n%100 != 12:
		return fmt.Sprintf("%dnd", n)
	case n%10 == 3 && n%100 != 13:
		return fmt.Sprintf("%drd", n)
	}
	return fmt.Sprintf("%dth", n)
}
