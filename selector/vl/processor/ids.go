package processor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"

	"fulcrum/internal/jsonwords"
	"fulcrum/internal/option"
	"fulcrum/internal/regular"
	"fulcrum/internal/tokenizer"
)

// openIDs reads the special ids of a folder: the end of a completion from generation_config.json, else
// config.json, else the eos_token of tokenizer_config.json; the placeholders from config.json, else by
// the names of their tokens.
func openIDs(folder string, tok *tokenizer.Tokenizer) (IDs, error) {
	type config struct {
		VisionPad   *int64 `json:"vision_token_id"`
		EOS         idList `json:"eos_token_id"`
		Pad         *int64 `json:"pad_token_id"`
		Image       *int64 `json:"image_token_id"`
		Video       *int64 `json:"video_token_id"`
		VisionStart *int64 `json:"vision_start_token_id"`
		VisionEnd   *int64 `json:"vision_end_token_id"`
	}
	var generation, model config
	var text struct {
		Config config `json:"text_config"`
	}
	var tokens struct {
		EOS tokenName `json:"eos_token"`
		Pad tokenName `json:"pad_token"`
	}
	for _, f := range []struct {
		name string
		to   any
	}{{"generation_config.json", &generation}, {"config.json", &model}, {"config.json", &text}, {"tokenizer_config.json", &tokens}} {
		if err := readJSON(filepath.Join(folder, f.name), f.to); err != nil {
			return IDs{}, err
		}
	}
	byName := func(name string) *int64 {
		if id, ok := tok.ID(name); ok && name != "" {
			return &id
		}
		return nil
	}
	ids := IDs{
		Pad:         first(generation.Pad, model.Pad, text.Config.Pad, byName(string(tokens.Pad)), byName("<|endoftext|>")),
		ImagePad:    first(model.Image, text.Config.Image, byName("<|image_pad|>")),
		VideoPad:    first(model.Video, text.Config.Video, byName("<|video_pad|>")),
		VisionPad:   first(model.VisionPad, text.Config.VisionPad, byName("<|vision_pad|>")),
		VisionStart: first(model.VisionStart, text.Config.VisionStart, byName("<|vision_start|>")),
		VisionEnd:   first(model.VisionEnd, text.Config.VisionEnd, byName("<|vision_end|>")),
	}
	for _, eos := range []idList{generation.EOS, model.EOS, text.Config.EOS} {
		if ids.EOS == nil {
			ids.EOS = eos
		}
	}
	if id := byName(string(tokens.EOS)); ids.EOS == nil && id != nil {
		ids.EOS = []int64{*id}
	}
	return ids, nil
}

func first(ids ...*int64) int64 { return option.Or(cmp.Or(ids...), -1) }

// readJSON leaves v as it is when the file does not exist.
func readJSON(path string, v any) error {
	data, err := regular.ReadOptional(path)
	if data == nil || err != nil {
		return err
	}
	if err := jsonwords.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// idList is one id or a list of them.
type idList []int64

func (l *idList) UnmarshalJSON(raw []byte) error {
	var one *int64
	if json.Unmarshal(raw, &one) == nil {
		if one != nil {
			*l = idList{*one}
		}
		return nil
	}
	return json.Unmarshal(raw, (*[]int64)(l))
}

// tokenName is a token as text, or as an object with its content.
type tokenName string

func (t *tokenName) UnmarshalJSON(raw []byte) error {
	var object struct{ Content string }
	if json.Unmarshal(raw, &object) == nil {
		*t = tokenName(object.Content)
		return nil
	}
	return json.Unmarshal(raw, (*string)(t))
}
