package digest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"fulcrum/internal/regular"
)

// Sums are digests by the name of their file, as `sha256sum` lists them: names may lead out of the folder of the list.
type Sums map[string]string

var sumLine = regexp.MustCompile(`^([0-9a-f]{64})  (.+)$`)

// Text is what `sha256sum -c` reads: a line a file, in the order of their names.
func (s Sums) Text() []byte {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&text, "%s  %s\n", s[name], name)
	}
	return []byte(text.String())
}

// ReadSums reads a list of at least so many files.
func ReadSums(path string, least int) (Sums, error) {
	text, err := regular.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := Sums{}
	for line := range strings.Lines(string(text)) {
		parts := sumLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if parts == nil {
			return nil, fmt.Errorf("%s: damaged line %.90q", path, line)
		}
		s[parts[2]] = parts[1]
	}
	if len(s) < least {
		return nil, fmt.Errorf("%s: damaged: %d lines, want one for each file", path, len(s))
	}
	return s, nil
}

// Damage is a file that is not what a list says.
type Damage struct {
	Name string // as the list has it
	Want string
	Got  string // "": there is no such file
}

// Damaged compares the files of the list, which lies in dir. An error is that of a file that cannot be read, which says nothing
// about what it holds.
func (s Sums) Damaged(dir string, files Files) (all []Damage, err error) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		got, err := files.Of(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if got != s[name] {
			all = append(all, Damage{name, s[name], got})
		}
	}
	return all, nil
}

// Files remembers the digests of files, so that one that several lists name is read once.
type Files map[string]string

// Of returns the digest of a file, "" where there is none. Beside weights, a state has documents: what is larger than one is not read to
// its end, and has a digest that no list holds.
func (f Files) Of(path string) (sum string, err error) {
	path = filepath.Clean(path)
	if sum, ok := f[path]; ok {
		return sum, nil
	}
	if regular.Identify(path).Size > regular.Document && filepath.Ext(path) != ".safetensors" {
		sum = "larger than a document"
	} else if sum, _, err = File(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	f[path] = sum
	return sum, nil
}
