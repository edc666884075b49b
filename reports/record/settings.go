package record

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Settings reads the configuration of a run folder as dotted keys; a folder without one has none.
func Settings(dir string) (map[string]string, error) { return NewSettingsReader().Settings(dir) }

// FlatFile reads a YAML file as dotted keys; one that is absent has none.
func FlatFile(path string) (map[string]string, error) { return NewSettingsReader().FlatFile(path) }

// SettingsReader reads the configurations of many runs: of a part that it has read before, in whichever run, it knows what it means.
// Runs of one sweep differ in a few.
type SettingsReader struct {
	parts map[string]map[string]string // by the text of a part
	bytes int
}

// mostParts is how many bytes of texts a reader keeps: far more than the configurations of a sweep have in all.
const mostParts = 16 << 20

// NewSettingsReader returns a reader that knows nothing yet.
func NewSettingsReader() *SettingsReader {
	return &SettingsReader{parts: map[string]map[string]string{}}
}

// Settings is the function of that name.
func (r *SettingsReader) Settings(dir string) (map[string]string, error) {
	return r.FlatFile(filepath.Join(dir, ".hydra", "config.yaml"))
}

// FlatFile is the function of that name.
func (r *SettingsReader) FlatFile(path string) (map[string]string, error) {
	data, err := readIfThere(path)
	if err != nil {
		return nil, err
	}
	if flat := r.byParts(string(data)); flat != nil {
		return flat, nil
	}
	flat, err := flatten(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return flat, nil
}

// byParts reads a file by its sections, each as a file of its own. It returns nil where that may be another thing than the whole: with
// anything at the left edge but plain keys and the items of their lists (a directive, a merge, a quoted key, a comment), a key that
// comes twice, or a part that is not whole (an anchor of another, a quotation that goes on).
func (r *SettingsReader) byParts(text string) map[string]string {
	flat := make(map[string]string, 512)
	seen := make(map[string]bool, 64)
	for text != "" {
		key := text[:keyLength(text)]
		if key == "" || seen[key] {
			return nil
		}
		end := 0
		for at := 0; end == 0; { // the next line that is neither indented nor empty nor an item
			line := strings.IndexByte(text[at:], '\n') + 1
			at += line
			switch {
			case line == 0 || at == len(text):
				end = len(text)
			case text[at] != ' ' && text[at] != '\n' && !strings.HasPrefix(text[at:], "- "):
				end = at
			}
		}
		known := r.part(text[:end])
		if known == nil {
			return nil
		}
		seen[key] = true
		maps.Copy(flat, known)
		text = text[end:]
	}
	if len(seen) == 0 {
		return nil
	}
	return flat
}

// keyLength returns the length of the key at the beginning of a line: a word and a colon that ends it; 0 where there is none.
func keyLength(line string) int {
	for i := range len(line) {
		c := line[i]
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if letter || i > 0 && '0' <= c && c <= '9' {
			continue
		}
		if i > 0 && c == ':' && i+1 < len(line) && (line[i+1] == ' ' || line[i+1] == '\n') {
			return i
		}
		return 0
	}
	return 0
}

// part reads a section. It returns nil for text that is not a section.
func (r *SettingsReader) part(text string) map[string]string {
	if known, ok := r.parts[text]; ok {
		return known
	}
	flat, err := flatten([]byte(text))
	if err != nil {
		return nil
	}
	if r.bytes += len(text); r.bytes > mostParts {
		r.parts, r.bytes = map[string]map[string]string{}, len(text)
	}
	r.parts[strings.Clone(text)] = flat
	return flat
}

// flatten returns the dotted keys of a YAML file.
func flatten(data []byte) (map[string]string, error) {
	flat := map[string]string{}
	var tree any
	if err := yaml.Unmarshal(data, &tree); err != nil {
		return nil, err
	}
	switch tree.(type) {
	case nil:
		return flat, nil
	case map[string]any:
	default:
		return nil, errors.New("want a YAML file of keys and values")
	}
	Flatten(flat, "", tree)
	return flat, nil
}

// Flatten writes a config tree as dotted keys; lists are one value.
func Flatten(into map[string]string, prefix string, node any) {
	if section, ok := node.(map[string]any); ok {
		for key, value := range section {
			Flatten(into, strings.TrimPrefix(prefix+"."+key, "."), value)
		}
		return
	}
	into[prefix] = inLine(node)
}

// inLine returns a value as YAML in a line: [sft, rce], not lines.
func inLine(node any) string {
	switch x := node.(type) { // as yaml writes them, without its work
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(x)
	case int:
		return strconv.Itoa(x)
	case float64:
		if !math.IsInf(x, 0) && !math.IsNaN(x) {
			return strconv.FormatFloat(x, 'g', -1, 64)
		}
	}
	var value yaml.Node
	text := fmt.Append(nil, node)
	if value.Encode(node) == nil {
		value.Style |= yaml.FlowStyle
		if flow, err := yaml.Marshal(&value); err == nil {
			text = flow
		}
	}
	return strings.Join(strings.Fields(string(text)), " ")
}
