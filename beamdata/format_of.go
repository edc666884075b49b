package beamdata

import (
	"errors"
	"fmt"

	"fulcrum/internal/regular"
)

// FormatOf returns the format of a beam file, legacy or rl, from its first query.
func FormatOf(path string) (string, error) {
	f, err := regular.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	opt := DefaultOptions()
	p := newParser(f, path, opt)
	p.finite = false // scores that are not are a matter of training
	r := &fileReader{opt: opt, parser: p}
	format, found := "", errors.New("found")
	err = p.each(func(rec *record) (err error) {
		if format, err = r.detect(rec); err == nil {
			err = found
		}
		return err
	})
	switch {
	case errors.Is(err, found):
		return format, nil
	case err != nil:
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return "", fmt.Errorf("%s: %w", path, p.noQuery())
}
