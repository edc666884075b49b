package record

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// settingsTexts are configurations, plain and odd ones.
func settingsTexts() []string {
	const first = "task: train\nseed: 3\ngrpo:\n  lr: 0.001\n  clip: {epsilon: 0.2}\nschedule:\n- rce\n- grpo\nempty: {}\nnothing: null\n"
	return []string{
		"", "\n", "a", "- a\n", first, strings.TrimSuffix(first, "\n"), strings.Replace(first, "seed: 3", "seed: 4", 1),
		first + "task: twice\n", first + "base: &b {x: 1}\nother: *b\n", first + "base: &b {x: 1}\n<<: *b\n",
		"base: &b {x: 1}\nother: {<<: *b}\n", "a: \"x\nb: y\"\n", "a: 'x\nb: y'\n", "a: [1,\nb: 2]\n", "a: {\nb: 2}\n",
		"a: |\n  text\n\n  b: 1\n\nb: >-\n  folded\n  text\n", "a: |+\n  kept\n\n\nb: 1\n", "a: plain\n  goes on\nb: 1\n",
		"# comment\na: 1\n", "a: 1\n# comment\nb: 2\n", "a: 1 # comment\nb: 2\n", "---\na: 1\n", "a: 1\n---\nb: 2\n",
		"a: 1\n...\n", "true: 1\nb: 2\n", "null: 1\n", "1: 2\n", "a: {1: 2, b: 3}\n", "a: {true: 2}\n", "\"q\": 1\n",
		"a.b: 1\nc: 2\n", "a:1\n", "a: b: c\n", "a:\n  b: 1\n b: 2\n", "a:\n\tb: 1\n", "a: 1\r\nb: 2\r\n", "a: \xff\n",
		"\ufeffa: 1\n", "a: ? b\n", "? a\n: 1\n", "a: !!str 1\nb: !x 2\n",
		"a: 2001-01-01\nb: 1e3\nc: 0x10\nd: 1_000\ne: .inf\nf: -.inf\ng: .nan\nh: ~\ni: yes\nj: 1:30\n",
		"a: 18446744073709551615\nb: 1e400\nc: -0.0\nd: 1e21\ne: 0.1\nf: 0o17\ng: 1e-7\n",
		"a: '123'\nb: \"true\"\nc: 'no'\nd: \"a b\\n c\"\n", "a: *b\n", "a: &x 1\nb: &x 2\nc: [*x]\n",
		"a:\n- b: 1\n  c: 2\n-\n  d\n", "a:\n  b:\n  - 1\n", "a: \"\"\nb:\nc: ''\n", "- a\nb: 1\n", "%YAML 1.1\n---\na: 1\n",
	}
}

// wantFlat is what the whole file means, leaf by leaf as the YAML library writes them.
func wantFlat(text string) (map[string]string, error) {
	var tree any
	if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
		return nil, err
	}
	section, ok := tree.(map[string]any)
	if !ok && tree != nil {
		return nil, fmt.Errorf("want a YAML file of keys and values")
	}
	flat := map[string]string{}
	var walk func(prefix string, node any)
	walk = func(prefix string, node any) {
		if section, ok := node.(map[string]any); ok {
			for key, value := range section {
				walk(strings.TrimPrefix(prefix+"."+key, "."), value)
			}
			return
		}
		var value yaml.Node
		text := fmt.Append(nil, node)
		if value.Encode(node) == nil {
			value.Style |= yaml.FlowStyle
			if flow, err := yaml.Marshal(&value); err == nil {
				text = flow
			}
		}
		flat[prefix] = strings.Join(strings.Fields(string(text)), " ")
	}
	if ok {
		walk("", section)
	}
	return flat, nil
}

// checkSettings holds what a file is read to against what the library makes of it.
func checkSettings(t *testing.T, dir, text string) {
	t.Helper()
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	want, wantErr := wantFlat(text)
	again, _ := wantFlat(text)
	if !maps.Equal(want, again) { // two keys of one dotted name: which one counts is not said
		return
	}
	got, err := FlatFile(path)
	if (err == nil) != (wantErr == nil) || err != nil && err.Error() != path+": "+wantErr.Error() || !maps.Equal(got, want) {
		t.Errorf("%q: got %v, %v\nwant %v, %v", text, got, err, want, wantErr)
	}
}

func TestSettings(t *testing.T) {
	dir := t.TempDir()
	for _, text := range settingsTexts() {
		checkSettings(t, dir, text)
	}
}

// Numbers are written as the library writes them.
func TestInLine(t *testing.T) {
	for _, x := range []any{nil, true, false, 0, -1, math.MaxInt, 0.0, math.Copysign(0, -1), 1.0, 0.1, 1e-7, 1e21, 123456789.125,
		math.MaxFloat64, math.SmallestNonzeroFloat64, math.Inf(1), math.Inf(-1), math.NaN(), "x", uint64(math.MaxUint64)} {
		text, err := yaml.Marshal([]any{x})
		if want := strings.TrimPrefix(strings.TrimSpace(string(text)), "- "); err != nil || inLine(x) != want {
			t.Errorf("%v: %q, want %q (%v)", x, inLine(x), want, err)
		}
	}
}

func FuzzSettings(f *testing.F) {
	for _, text := range settingsTexts() {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { checkSettings(t, t.TempDir(), text) })
}
