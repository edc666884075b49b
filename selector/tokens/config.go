package tokens

import (
	"encoding/json"
	"fmt"
	"strings"

	"fulcrum/internal/jsonwords"
)

// Positive returns an error for the first number that is below 1; it names prefix and key.
func Positive(prefix string, keys []string, values ...int) error {
	for i, v := range values {
		if v < 1 {
			return fmt.Errorf("%s%s = %d, want at least 1", prefix, keys[i], v)
		}
	}
	return nil
}

// ParseIDs reads a token id, a list of them, or null.
func ParseIDs(raw json.RawMessage) ([]int64, error) {
	if len(raw) == 0 || strings.TrimSpace(string(raw)) == "null" {
		return nil, nil
	}
	var one int64
	if json.Unmarshal(raw, &one) == nil {
		return []int64{one}, nil
	}
	var many []int64
	if err := jsonwords.Unmarshal(raw, &many); err != nil {
		return nil, fmt.Errorf("want an id or a list of ids, got %s", raw)
	}
	return many, nil
}

// Within refuses ids outside the vocabulary, by the keys that name them.
func Within(vocab int, keys map[string][]int64) error {
	for key, ids := range keys {
		for _, id := range ids {
			if id < 0 || id >= int64(vocab) {
				return fmt.Errorf("%s = %d, want an id below vocab_size = %d", key, id, vocab)
			}
		}
	}
	return nil
}
