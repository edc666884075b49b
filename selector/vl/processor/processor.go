// Package processor turns conversations into what Qwen2.5-VL reads: token ids with the placeholders of
// images and videos expanded, and their patches. It is HuggingFace's Qwen2_5_VLProcessor.
//
//	p, err := processor.Open("Qwen2.5-VL-3B-Instruct")
//	prompt, err := p.Prompt(msgs) // prompt.IDs, prompt.Images, prompt.Videos
//
// A folder of a text-only Qwen2.5 (without preprocessor_config.json) opens too; its prompts take no
// images.
package processor

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/chat"
	"fulcrum/internal/option"
	"fulcrum/internal/tokenizer"
	"fulcrum/selector/vl/pixels"
)

// Processor is a tokenizer, a chat template and a preprocessing of images. It is safe for concurrent
// use.
type Processor struct {
	tokenizer *tokenizer.Tokenizer
	template  *chat.Template
	pixels    *pixels.Config // nil: text only
	videos    *pixels.Config // of videos, which may have bounds of their own
	class     string         // processor_class of the folder, for export
	timed     []byte         // settings of videos that are not read (pixels.ErrTimed), for export
	ids       IDs
	cache     *pixels.Cache
}

// IDs are the special tokens of a model; -1 where it has none.
type IDs struct {
	EOS                    []int64 // each ends a completion
	Pad                    int64
	ImagePad, VideoPad     int64 // the placeholders that image and video features replace
	VisionStart, VisionEnd int64
	VisionPad              int64 // config.json calls it vision_token_id
}

// Prompt is a conversation as the model reads it.
type Prompt struct {
	Text   string // as rendered, one placeholder for each image and video
	IDs    []int64
	Images []pixels.Patches // in the order of their placeholders
	Videos []pixels.Patches
}

// Open reads the tokenizer, the chat template, preprocessor_config.json and the special ids of a
// HuggingFace folder.
func Open(folder string) (*Processor, error) {
	tok, err := tokenizer.Open(folder)
	if err != nil {
		return nil, err
	}
	template, err := chat.Open(folder, tok.Knows)
	if err != nil {
		return nil, err
	}
	var config *pixels.Config
	switch c, err := pixels.OpenConfig(folder); {
	case err == nil:
		config = &c
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	ids, err := openIDs(folder, tok)
	if err != nil {
		return nil, err
	}
	p, err := New(tok, template, config, ids)
	if err != nil || config == nil {
		return p, err
	}
	if p.class, err = classOf(folder); err != nil {
		return nil, err
	}
	c, err := pixels.OpenVideoConfig(folder)
	if errors.Is(err, pixels.ErrTimed) {
		p.timed, err = pixels.VideoSettings(folder)
		return p, err
	}
	if err != nil {
		return nil, err
	}
	shape := func(c *pixels.Config) [3]int { return [3]int{c.PatchSize, c.TemporalPatchSize, c.MergeSize} }
	if a, b := shape(config), shape(&c); a != b {
		return nil, fmt.Errorf("%s: patch_size, temporal_patch_size and merge_size are %v for images and %v for videos, want the same",
			folder, a, b)
	}
	p.videos = &c
	return p, nil
}

// classOf returns the processor_class of a folder, which decides what AutoProcessor makes of it; "" where no file has one.
func classOf(folder string) (string, error) {
	for _, name := range []string{"processor_config.json", "preprocessor_config.json"} {
		var f struct {
			Class string `json:"processor_class"`
		}
		if err := readJSON(filepath.Join(folder, name), &f); err != nil || f.Class != "" {
			return f.Class, err
		}
	}
	return "", nil
}

// New returns a processor of the given parts; config nil: text only.
func New(tok *tokenizer.Tokenizer, template *chat.Template, config *pixels.Config, ids IDs) (*Processor, error) {
	if len(ids.EOS) == 0 {
		return nil, errors.New("processor: no end-of-sequence token: want eos_token_id in generation_config.json or config.json, or " +
			"eos_token in tokenizer_config.json")
	}
	for _, id := range ids.EOS {
		if tok.Token(id) == "" {
			return nil, fmt.Errorf("processor: eos_token_id %d is no token (the vocabulary has %d)", id, tok.Size())
		}
	}
	if config != nil && (tok.Token(ids.ImagePad) == "" || tok.Token(ids.VideoPad) == "") {
		return nil, fmt.Errorf("processor: image_token_id %d and video_token_id %d want to be tokens (the vocabulary has %d)",
			ids.ImagePad, ids.VideoPad, tok.Size())
	}
	return &Processor{tokenizer: tok, template: template, pixels: config, videos: config, ids: ids,
		cache: pixels.NewCache(DefaultCacheBytes)}, nil
}

// DefaultCacheBytes bounds the resized images that a processor keeps: 890 of 448 × 448 pixels.
const DefaultCacheBytes = 512 << 20

func (p *Processor) Tokenizer() *tokenizer.Tokenizer { return p.tokenizer }
func (p *Processor) Template() *chat.Template        { return p.template }
func (p *Processor) IDs() IDs                        { return p.ids }
func (p *Processor) EOS() []int64                    { return p.ids.EOS }

// Pixels returns the preprocessing of images; false for a text-only model.
func (p *Processor) Pixels() (pixels.Config, bool) {
	if p.pixels == nil {
		return pixels.Config{}, false
	}
	return *p.pixels, true
}

// Prompt renders msgs with the head of the assistant's turn, encodes the text, reads the images and
// videos, and puts as many copies of a placeholder as its image or video has tokens.
func (p *Processor) Prompt(msgs []chat.Message) (*Prompt, error) {
	return p.Render(msgs, chat.RenderOptions{AddGenerationPrompt: true})
}

// Render is Prompt with the options of the template.
func (p *Processor) Render(msgs []chat.Message, opt chat.RenderOptions) (*Prompt, error) {
	images, videos, err := p.media(msgs)
	if err != nil {
		return nil, err
	}
	text, err := p.template.Render(msgs, opt)
	if err != nil {
		return nil, err
	}
	ids, err := p.expand(p.tokenizer.Encode(text), images, videos)
	if err != nil {
		return nil, err
	}
	return &Prompt{Text: text, IDs: ids, Images: images, Videos: videos}, nil
}

// expand replaces the n-th image (video) placeholder by as many as the n-th image (video) has tokens.
func (p *Processor) expand(ids []int64, images, videos []pixels.Patches) ([]int64, error) {
	if p.pixels == nil {
		return ids, nil
	}
	kinds := []struct {
		name  string
		pad   int64
		given []pixels.Patches
		next  int
	}{{"image", p.ids.ImagePad, images, 0}, {"video", p.ids.VideoPad, videos, 0}}
	out := make([]int64, 0, len(ids))
	for _, id := range ids {
		n := 1
		for k := range kinds {
			kind := &kinds[k]
			if id != kind.pad {
				continue
			}
			if kind.next < len(kind.given) {
				n = kind.given[kind.next].Tokens(*p.pixels)
			}
			kind.next++
		}
		out = append(out, slices.Repeat([]int64{id}, n)...)
	}
	for _, kind := range kinds {
		if kind.next != len(kind.given) {
			return nil, fmt.Errorf("the prompt has %s for %s: each wants exactly one",
				count(kind.next, "placeholder "+p.tokenizer.Token(kind.pad)), count(len(kind.given), kind.name))
		}
	}
	return out, nil
}

func count(n int, thing string) string {
	noun, rest, _ := strings.Cut(thing, " ")
	if n != 1 {
		noun += "s"
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s %s", n, noun, rest))
}

// Save writes the tokenizer, the chat template and preprocessor_config.json into folder, which exists,
// so that HuggingFace's AutoProcessor and Open read them.
func (p *Processor) Save(folder string) error {
	if err := p.tokenizer.Save(folder); err != nil {
		return err
	}
	// not chat_template.json, which AutoTokenizer does not read: a text model's template would be lost
	files := map[string][]byte{"chat_template.jinja": []byte(p.template.Source())}
	if p.pixels != nil {
		files["preprocessor_config.json"] = p.pixels.JSON(p.class)
		if *p.videos != *p.pixels {
			files["video_preprocessor_config.json"] = p.videos.JSON(p.class)
		}
	}
	if p.timed != nil {
		files["video_preprocessor_config.json"] = p.timed
	}
	for name, text := range files {
		if err := atomicfile.Write(filepath.Join(folder, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Limit bounds the pixels of an image in place of the folder's preprocessor_config.json; nil keeps a bound.
func (p *Processor) Limit(minPixels, maxPixels *int) error {
	if p.pixels == nil || minPixels == nil && maxPixels == nil {
		return nil
	}
	for _, of := range []**pixels.Config{&p.pixels, &p.videos} {
		c, err := (*of).Within(option.Or(minPixels, 0), option.Or(maxPixels, 0))
		if err != nil {
			return err
		}
		*of = &c
	}
	return nil
}
