package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"

	"fulcrum/internal/jsonwords"
)

// template holds the special tokens around one text.
type template struct{ before, after []int64 }

// readTemplate reads the post_processor of tokenizer.json.
func readTemplate(raw json.RawMessage) (template, error) {
	parts, err := sequence(raw, "processors")
	if err != nil {
		return template{}, fmt.Errorf("post_processor: %w", err)
	}
	var t template
	for _, raw := range parts {
		var inner template // of this step; those before it stand inside
		switch kind := typeOf(raw); kind {
		case "ByteLevel": // moves offsets only
		case "TemplateProcessing":
			inner, err = readTemplateProcessing(raw)
		case "RobertaProcessing", "BertProcessing":
			inner, err = readClassAndSeparator(raw)
		default:
			return t, unsupported("post_processor", kind, "TemplateProcessing", "RobertaProcessing", "BertProcessing", "ByteLevel", "none")
		}
		if err != nil {
			return t, fmt.Errorf("post_processor: %w", err)
		}
		t.before, t.after = append(inner.before, t.before...), append(t.after, inner.after...)
	}
	for _, ids := range [][]int64{t.before, t.after} {
		for _, id := range ids {
			if id < 0 || id >= maxID {
				return t, fmt.Errorf("post_processor: id %d, want 0 to %d", id, maxID-1)
			}
		}
	}
	return t, nil
}

// readTemplateProcessing reads the pattern of a single text: special tokens around one sequence.
func readTemplateProcessing(raw json.RawMessage) (t template, err error) {
	var p struct {
		Single []struct {
			Special  *struct{ ID string } `json:"SpecialToken"`
			Sequence *struct{ ID string } `json:"Sequence"`
		}
		Special map[string]struct{ IDs []int64 } `json:"special_tokens"`
	}
	if err := jsonwords.Unmarshal(raw, &p); err != nil {
		return t, fmt.Errorf("TemplateProcessing: %w", err)
	}
	seen := false
	for i, part := range p.Single {
		switch {
		case part.Sequence != nil && !seen:
			seen = true
		case part.Special != nil:
			token, ok := p.Special[part.Special.ID]
			if !ok || len(token.IDs) == 0 {
				return t, fmt.Errorf("TemplateProcessing: special_tokens lacks the ids of %q", part.Special.ID)
			}
			if seen {
				t.after = append(t.after, token.IDs...)
			} else {
				t.before = append(t.before, token.IDs...)
			}
		default:
			return t, fmt.Errorf("TemplateProcessing: single[%d]: want a SpecialToken, or one Sequence", i)
		}
	}
	if !seen {
		return t, errors.New("TemplateProcessing: single has no Sequence")
	}
	return t, nil
}

// readClassAndSeparator reads cls and sep, each a token and its id: cls … sep.
func readClassAndSeparator(raw json.RawMessage) (t template, err error) {
	var p struct{ Cls, Sep []any }
	if err := jsonwords.Unmarshal(raw, &p); err != nil {
		return t, fmt.Errorf("%s: %w", typeOf(raw), err)
	}
	id := func(key string, pair []any) []int64 {
		if len(pair) == 2 {
			if n, ok := pair[1].(float64); ok && n == float64(int64(n)) {
				return []int64{int64(n)}
			}
		}
		err = fmt.Errorf("%s: %s: want [token, id]", typeOf(raw), key)
		return nil
	}
	return template{id("cls", p.Cls), id("sep", p.Sep)}, err
}

// templateJSON returns the template as tokenizer.json writes it.
func (t *Tokenizer) templateJSON() any {
	if len(t.wrap.before)+len(t.wrap.after) == 0 {
		return byteLevel(false, false)
	}
	special := map[string]any{}
	pieces := func(ids []int64) (out []any) {
		for _, id := range ids {
			token := t.Token(id)
			special[token] = map[string]any{"id": token, "ids": []int64{id}, "tokens": []string{token}}
			out = append(out, map[string]any{"SpecialToken": map[string]any{"id": token, "type_id": 0}})
		}
		return out
	}
	text := func(name string) any {
		return map[string]any{"Sequence": map[string]any{"id": name, "type_id": 0}}
	}
	single := append(append(pieces(t.wrap.before), text("A")), pieces(t.wrap.after)...)
	pair := append(append(single, text("B")), pieces(t.wrap.after)...)
	return map[string]any{"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}
}
