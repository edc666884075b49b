package processor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"
	"os"
	"strings"

	"fulcrum/internal/chat"
	"fulcrum/internal/frames"
	"fulcrum/internal/list"
	"fulcrum/selector/vl/pixels"
)

// media reads the images and videos of msgs, in order.
func (p *Processor) media(msgs []chat.Message) (images, videos []pixels.Patches, err error) {
	for i, m := range msgs {
		for j, part := range m.Parts {
			if part.Type == chat.Text {
				continue
			}
			where := fmt.Sprintf("message %d, part %d (%s)", i+1, j+1, part.Type)
			if p.pixels == nil {
				return nil, nil, fmt.Errorf("%s: this model reads text only (its folder has no preprocessor_config.json)", where)
			}
			read, to := p.image, &images
			if part.Type == chat.Video {
				read, to = p.video, &videos
			}
			if err := p.reads(part); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", where, err)
			}
			patches, err := read(part)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", where, err)
			}
			*to = append(*to, patches)
		}
	}
	return images, videos, nil
}

// Check reads the headers of the messages' images and frames, so that a picture that Prompt would refuse
// shows early. Video files and pictures that are not in files are left to Prompt.
func (p *Processor) Check(msgs []chat.Message) error {
	for i, m := range msgs {
		for k, part := range m.Parts {
			if err := p.check(part); err != nil {
				return fmt.Errorf("message %d, part %d (%s): %w", i+1, k+1, part.Type, err)
			}
		}
	}
	return nil
}

// reads refuses videos whose frames the model wants apart.
func (p *Processor) reads(part chat.Part) error {
	if part.Type == chat.Video && p.timed != nil {
		return pixels.ErrTimed
	}
	return nil
}

func (p *Processor) check(part chat.Part) error {
	if err := p.reads(part); err != nil {
		return err
	}
	if p.pixels == nil || part.Type == chat.Text {
		return nil
	}
	c, err := p.bounds(part)
	switch {
	case err != nil || part.Picture != nil:
		return err
	case part.Type == chat.Image && part.Path != "" && inFile(part.Path):
		return c.Check(part.Path)
	case part.Type == chat.Video && len(part.Frames) > 0:
		for _, frame := range list.Filter(part.Frames[1:], inFile) { // they take the size of the first
			if _, _, err := pixels.Size(frame); err != nil {
				return err
			}
		}
		if inFile(part.Frames[0]) {
			return c.Check(part.Frames[0])
		}
	}
	return nil
}

func inFile(path string) bool { return !strings.HasPrefix(path, "data:") }

// bounds are the limits of a picture's size: its part's own, else the folder's.
func (p *Processor) bounds(part chat.Part) (pixels.Config, error) {
	c := p.pixels
	if part.Type == chat.Video {
		c = p.videos
	}
	return c.Within(part.MinPixels, part.MaxPixels)
}

// image reads one image: in memory, or a file.
func (p *Processor) image(part chat.Part) (pixels.Patches, error) {
	c, err := p.bounds(part)
	if err != nil {
		return pixels.Patches{}, err
	}
	read := func(open func() (image.Image, error)) func() (pixels.Patches, error) {
		return func() (pixels.Patches, error) {
			img, err := open()
			if err != nil {
				return pixels.Patches{}, err
			}
			return c.Image(img)
		}
	}
	switch {
	case part.Picture != nil:
		return p.cache.Get(part.Key, c, read(part.Picture))
	case part.Path == "":
		return pixels.Patches{}, errors.New("no image: want a path")
	}
	return p.cache.Files([]string{part.Path}, part.Type, c, read(func() (image.Image, error) { return pixels.Decode(part.Path) }))
}

// video reads one video: a list or a folder of frames, taken as they are, or a video file, which is
// sampled.
func (p *Processor) video(part chat.Part) (pixels.Patches, error) {
	c, err := p.bounds(part)
	if err != nil {
		return pixels.Patches{}, err
	}
	files := part.Frames
	if len(files) == 0 {
		if part.Path == "" {
			return pixels.Patches{}, errors.New("no video: want a path or a list of frames")
		}
		if strings.Contains(part.Path, "://") {
			return pixels.Patches{}, fmt.Errorf("%s: want a file, not an address: nothing is downloaded here", part.Path)
		}
		info, err := os.Stat(part.Path)
		if err != nil {
			return pixels.Patches{}, err
		}
		if !info.IsDir() {
			return p.videoFile(part, c)
		}
		if files, err = frames.Files(part.Path); err != nil {
			return pixels.Patches{}, err
		}
	}
	return p.cache.Files(files, part.FPS, c, func() (pixels.Patches, error) {
		return c.Video(len(files), func(i int) (image.Image, error) { return pixels.Decode(files[i]) }, part.FPS)
	})
}

// videoFile samples a file at the part's rate and within its bounds, else at those of qwen_vl_utils.
func (p *Processor) videoFile(part chat.Part, c pixels.Config) (pixels.Patches, error) {
	s := pixels.DefaultSampling()
	s.FPS, s.MaxFrames, s.MinPixels = cmp.Or(part.FPS, s.FPS), cmp.Or(part.MaxFrames, s.MaxFrames), cmp.Or(part.MinPixels, s.MinPixels)
	if part.MinFrames > 0 {
		s.MinFrames = part.MinFrames
		s.MaxFrames = max(s.MaxFrames, s.MinFrames)
	}
	s.MinFrames = min(s.MinFrames, s.MaxFrames)
	return p.cache.Files([]string{part.Path}, s, c, func() (pixels.Patches, error) {
		return c.VideoFile(context.Background(), part.Path, s)
	})
}
