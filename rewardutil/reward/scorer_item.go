package reward

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/rewardutil/scorer"
	"fulcrum/rewardutil/text"
)

func newScorerItem(it Item) scorer.Item {
	return scorer.Item{
		Prompt: it.Prompt, Completion: it.Completion, Answer: text.Answer(it.Completion), Reference: it.Reference,
		Answers: it.Answers, Images: list.Map(it.Images, absolute), Meta: metaWithFiles(it.Meta, it.Root),
	}
}

// absolute returns a path that a program in any folder can open. Pictures inside of data: URIs stay.
func absolute(path string) string {
	if path == "" || strings.HasPrefix(path, "data:") {
		return path
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	return full
}

// metaWithFiles returns meta with the absolute path in place of every text, at any depth, that names a regular file under
// root. Other values stay as they are; so does all of meta where it names no file.
func metaWithFiles(meta json.RawMessage, root string) json.RawMessage {
	if len(meta) == 0 || root == "" {
		return meta
	}
	in := json.NewDecoder(bytes.NewReader(meta))
	in.UseNumber()
	var value any
	if in.Decode(&value) != nil {
		return meta
	}
	found := false
	var walk func(v any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case string:
			if file, ok := fileUnder(root, v); ok {
				found = true
				return file
			}
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		case map[string]any:
			for k := range v {
				v[k] = walk(v[k])
			}
		}
		return v
	}
	value = walk(value)
	if !found {
		return meta
	}
	out, err := jsonwords.Marshal(value)
	if err != nil {
		return meta
	}
	return out
}

// fileUnder returns the absolute path of the regular file that a relative path names from root.
func fileUnder(root, path string) (string, bool) {
	const longest = 4096 // of a path, on Linux
	if path == "" || len(path) > longest || filepath.IsAbs(path) || strings.ContainsAny(path, "\n\x00") {
		return "", false
	}
	path = filepath.Join(root, filepath.FromSlash(path))
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return "", false
	}
	return absolute(path), true
}
