package seq2seq

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"fulcrum/internal/jsonwords"
	"fulcrum/selector/tokens"
)

// GenerationConfig holds a folder's settings of generation, from generation_config.json or else from config.json.
// Pointers are nil where it says nothing.
type GenerationConfig struct {
	Start     int64   // the decoder's first input
	Pad       int64   //
	BOS       *int64  //
	ForcedBOS []int64 // the first token is one of these, none = free

	tokens.Ending
}

// generationFile are the keys, in either file.
type generationFile struct {
	Start     *int64          `json:"decoder_start_token_id"`
	Pad       *int64          `json:"pad_token_id"`
	BOS       *int64          `json:"bos_token_id"`
	ForcedBOS json.RawMessage `json:"forced_bos_token_id"`
	OldForced bool            `json:"force_bos_token_to_be_generated"` // BART before transformers 4.6

	tokens.EndingKeys
}

// generationKeys reads what config.json says of generation, over the defaults of its kind.
func (c *Config) generationKeys(raw []byte, defaults string) error {
	var f generationFile
	if err := jsonwords.Unmarshal([]byte(defaults), &f); err != nil {
		return err
	}
	if err := jsonwords.Unmarshal(raw, &f); err != nil {
		return err
	}
	if f.Pad == nil { // transformers does not train such a model
		return errors.New("pad_token_id is null: want a token's id (of T5 0, of BART 1)")
	}
	f.Start = cmp.Or(f.Start, f.Pad)
	if f.OldForced && f.BOS != nil { // whatever forced_bos_token_id says, as transformers 5
		f.ForcedBOS = json.RawMessage(fmt.Sprint(*f.BOS))
	}
	var err error
	c.generation, err = f.read(raw)
	return err
}

// parseGeneration reads generation_config.json, which has the last word; without one (nil) config.json has it. Start,
// pad and end tokens that it does not name are those of config.json.
func (c *Config) parseGeneration(raw []byte) (GenerationConfig, error) {
	if raw == nil {
		return c.generation, nil
	}
	var f generationFile
	if err := jsonwords.Unmarshal(raw, &f); err != nil {
		return GenerationConfig{}, err
	}
	f.Pad, f.Start = cmp.Or(f.Pad, &c.generation.Pad), cmp.Or(f.Start, &c.generation.Start)
	f.BOS = cmp.Or(f.BOS, c.generation.BOS)
	g, err := f.read(raw)
	if err != nil {
		return g, err
	}
	if g.EOS == nil {
		g.EOS = c.generation.EOS
	}
	return g, g.within(c.Vocab)
}

// within refuses ids outside the vocabulary.
func (g GenerationConfig) within(vocab int) error {
	return tokens.Within(vocab, map[string][]int64{"decoder_start_token_id": {g.Start}, "pad_token_id": {g.Pad}, "eos_token_id": g.EOS,
		"forced_bos_token_id": g.ForcedBOS, "forced_eos_token_id": g.ForcedEOS})
}

// read takes over what was read from raw.
func (f *generationFile) read(raw []byte) (g GenerationConfig, err error) {
	g.Start, g.Pad, g.BOS = *f.Start, *f.Pad, f.BOS
	if g.ForcedBOS, err = tokens.ParseIDs(f.ForcedBOS); err != nil {
		return g, fmt.Errorf("forced_bos_token_id: %w", err)
	}
	g.Ending, err = f.EndingKeys.Parse(raw)
	return g, err
}

// Generation returns what the model's folder says of generation.
func (m *Model) Generation() GenerationConfig { return m.generation }

func (m *Model) EOS() []int64 { return m.generation.EOS }
