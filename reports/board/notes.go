package board

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/regular"
	"fulcrum/internal/usage"
)

// NotesFile holds what a reader writes about a run: the one file of a run folder that the board changes.
const NotesFile = "notes.json"

// Notes are a reader's words and tags.
type Notes struct {
	Note string   `json:"note"`
	Tags []string `json:"tags"`
}

const (
	maxNote = 64 << 10 // bytes
	maxTags = 32
	maxTag  = 64 // bytes
)

// readNotes returns the notes of a run, none where there are none, and what is wrong with their file.
func readNotes(dir string) (n Notes, wrong string) {
	data, err := regular.ReadSmall(filepath.Join(dir, NotesFile), 4*maxNote)
	if err != nil {
		return n, unread(NotesFile, err)
	}
	if json.Unmarshal(data, &n) != nil {
		return Notes{}, NotesFile + " is damaged"
	}
	return n, ""
}

// unread says why a file of a run is not read; "" where there is none.
func unread(name string, err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return name + ": " + usage.Reason(err).Error()
}

// writeNotes checks and replaces the notes of a run.
func writeNotes(dir string, data []byte) error {
	var n Notes
	if err := jsonwords.Unmarshal(data, &n); err != nil {
		return err
	}
	if len(n.Note) > maxNote || !utf8.ValidString(n.Note) {
		return fmt.Errorf("the note has %d bytes: want at most %d of text", len(n.Note), maxNote)
	}
	tags := []string{}
	for _, tag := range n.Tags {
		tag = strings.Join(strings.Fields(tag), " ")
		if len(tag) > maxTag {
			return fmt.Errorf("tag %.20q… has %d bytes: want at most %d", tag, len(tag), maxTag)
		}
		if tag != "" && !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	if len(tags) > maxTags {
		return fmt.Errorf("%d tags: want at most %d", len(tags), maxTags)
	}
	n.Tags = tags
	path := filepath.Join(dir, NotesFile)
	err := atomicfile.WriteJSON(path, n)
	if err == nil {
		return nil
	}
	if cause, ok := errors.AsType[syscall.Errno](err); ok { // not the name of a temporary file
		err = cause
	}
	return fmt.Errorf("not saved: %s: %w", path, err)
}
