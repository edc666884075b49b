package icl

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// Fits reports whether a record with these keys is one of data.records_icl.
func Fits(keys []string) bool {
	has := func(key string) bool { return slices.Contains(keys, key) }
	return has("question") && (has("answers") || has("image")) && !has("conversations") && !has("messages")
}

// Inspect returns what a file of records holds, as names with values, and the faults for which a run would refuse it.
// look returns what is wrong with a picture.
func Inspect(path string, look func(string) error) (facts [][2]string, fault error) {
	s, err := Load(path)
	if err != nil {
		return nil, err
	}
	add := func(name, format string, args ...any) {
		facts = append(facts, [2]string{name, fmt.Sprintf(format, args...)})
	}
	images, missing := map[string]bool{}, 0
	for row, r := range s.Records.All() {
		if r.Image == "" || images[r.Image] {
			continue
		}
		images[r.Image] = true
		err := look(r.Image)
		if errors.Is(err, fs.ErrNotExist) {
			missing++
		}
		if err != nil && fault == nil {
			fault = fmt.Errorf("%s: %w", s.At(row), err)
		}
	}
	add("records", "%d", s.Records.Len())
	add("held out", "%d (split val: asked, never an example)", s.Counts["held_out"])
	add("images", "%d", len(images))
	add("missing images", "%d", missing)
	add("without answers", "%d", s.Counts["questions_without_answers"])
	for _, u := range s.Unknown {
		add("unknown key", "%s", u)
	}
	return facts, fault
}
