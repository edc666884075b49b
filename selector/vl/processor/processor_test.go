package processor

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	"fulcrum/internal/chat"
	"fulcrum/internal/golden"
)

func TestPromptsAreThoseOfTheReference(t *testing.T) {
	folder := golden.Shared(t, "qwen2_5_vl")
	var want struct {
		Preprocess struct {
			Images map[string]struct{ File string }
			Videos map[string]struct {
				Frames []string
				FPS    float64
			}
		}
		Prompts map[string]struct {
			Messages       json.RawMessage
			Images, Videos []string
			Text           string
			IDs            []int64  `json:"input_ids"`
			ImageGrid      [][3]int `json:"image_grid_thw"`
			VideoGrid      [][3]int `json:"video_grid_thw"`
		}
	}
	golden.JSON(t, filepath.Join(folder, "expected.json"), &want)
	p, err := Open(filepath.Join(folder, "tiny_tied"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range want.Prompts {
		msgs, err := chat.ParseMessages(c.Messages)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range msgs {
			for i := range m.Parts {
				part := &m.Parts[i]
				switch part.Type {
				case chat.Image:
					part.Path = filepath.Join(folder, want.Preprocess.Images[c.Images[0]].File)
					c.Images = c.Images[1:]
				case chat.Video:
					v := want.Preprocess.Videos[c.Videos[0]]
					c.Videos = c.Videos[1:]
					part.FPS = v.FPS
					for _, f := range v.Frames {
						part.Frames = append(part.Frames, filepath.Join(folder, f))
					}
				}
			}
		}
		got, err := p.Prompt(msgs)
		if err != nil {
			t.Fatal(name, err)
		}
		if got.Text != c.Text || !slices.Equal(got.IDs, c.IDs) {
			t.Errorf("%s:\n got %q %v\nwant %q %v", name, got.Text, got.IDs, c.Text, c.IDs)
		}
		for i, g := range c.ImageGrid {
			if got.Images[i].Grid != g {
				t.Errorf("%s: image %d: grid %v, want %v", name, i, got.Images[i].Grid, g)
			}
		}
		for i, g := range c.VideoGrid {
			if got.Videos[i].Grid != g {
				t.Errorf("%s: video %d: grid %v, want %v", name, i, got.Videos[i].Grid, g)
			}
		}
	}
}
