package tasks

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/experiments/runfolder"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/hffolder"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/regular"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/usage"
)

// This file reads and writes files of one JSON object a line, as task=generate, task=score and task=evaluate do.

// eachLine hands the lines of a file to use, with their numbers from 1, without the white space around them. Blank lines
// and a byte order mark are skipped; of bytes that are no UTF-8 fault says so. The first error of use ends it.
func eachLine(path string, f io.Reader, use func(number int, line []byte, fault error) error) error {
	r := bufio.NewReaderSize(f, 1<<20)
	for number := 1; ; number++ {
		line, readErr := r.ReadBytes('\n')
		if readErr != nil && !errors.Is(readErr, io.EOF) {
			return fmt.Errorf("cannot read %s: %w", path, usage.Reason(readErr))
		}
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if err := use(number, line, jsonwords.CheckUnicode(line)); err != nil {
				return err
			}
		}
		if readErr != nil {
			return nil
		}
	}
}

// eachLineOf hands the lines of a file that key names to use, whose errors get the place.
func eachLineOf(path, key string, use func(number int, line []byte) error) error {
	f, err := openNamed(path, key)
	if err != nil {
		return err
	}
	defer f.Close()
	return eachLine(path, f, func(number int, line []byte, fault error) error {
		if fault == nil {
			fault = use(number, line)
		}
		if fault != nil {
			return fmt.Errorf("%s:%d: %w", path, number, fault)
		}
		return nil
	})
}

// PrepareOut makes the folder of a file that is to be written, but in a dry run, removes what a killed process has left of it there, and
// refuses anything in its place but a file that is no input. key names the file's option, inputs the options of the files that are read,
// as far as they are given: one that is not there is told first.
func PrepareOut(key, path string, inputs map[string]*string, dry bool) error {
	for _, input := range slices.Sorted(maps.Keys(inputs)) {
		if in := inputs[input]; in != nil && sameFile(*in, path) {
			return usage.Errorf("%s=%s: this is %s, which would be overwritten", key, path, input)
		} else if in != nil && absent(*in) {
			return usage.Errorf("%s: no such file: set %s to an existing one", *in, input)
		}
	}
	if configs, _ := regular.Glob(filepath.Dir(path), "*config.json"); len(configs) > 0 && sameFile(path, path) && hffolder.Part(path) {
		return usage.Errorf("%s=%s: this file belongs to the model in its folder: want another name", key, path)
	}
	if runfolder.Writes(path) {
		return usage.Errorf("%s=%s: a run writes this file of its folder itself: want another name", key, path)
	}
	at := path
	for ; dry && absent(filepath.Dir(at)); at = filepath.Dir(at) {
	}
	if err := atomicfile.MkdirAll(filepath.Dir(at)); err != nil {
		return usage.Errorf("%s=%s: %v", key, path, err)
	}
	f, err := atomicfile.Create(at) // whether the folder, or the one that it will stand in, may be written into
	if other, ok := errors.AsType[*atomicfile.NotRegularError](err); ok {
		return usage.Errorf("%s=%s: this is %s: want the name of a file", key, path, other.Kind)
	} else if err != nil {
		return usage.Errorf("%s=%s: cannot write there: %v", key, path, usage.Reason(err))
	}
	f.Abort()
	if err := atomicfile.Forget(at); err != nil && !errors.Is(err, fs.ErrPermission) { // a folder that may not be listed
		return err
	}
	return nil
}

// stream writes a file of one JSON value a line, those that write encodes: whole or not at all, and not where a mapped file has changed
// meanwhile.
func stream(path string, write func(encode func(value any) error) error) error {
	return atomicfile.Stream(path, func(w *bufio.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		err := write(func(value any) error {
			if err := encoder.Encode(value); err != nil {
				return fmt.Errorf("cannot write %s: %w", path, err)
			}
			return nil
		})
		return cmp.Or(err, tensorfile.Changed())
	})
}

// writeLines writes a file of one JSON value a line.
func writeLines[T any](path string, values []T) error {
	var lines []byte
	for _, value := range values {
		line, err := jsonwords.Marshal(value)
		if err != nil {
			return err
		}
		lines = append(append(lines, line...), '\n')
	}
	return atomicfile.Write(path, lines, 0o644)
}

// sameFile reports whether two paths lead to one existing file.
func sameFile(a, b string) bool {
	x, errA := os.Stat(a)
	y, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(x, y)
}

// some lists the first of many names.
func some(names []string, most int) string {
	if len(names) > most {
		names = append(names[:most:most], "…")
	}
	return strings.Join(names, ", ")
}
