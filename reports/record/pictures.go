package record

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/list"
)

// picturesFolder of a run folder has small copies of the pictures that completions.jsonl and examples.json speak of.
const picturesFolder = "pictures"

// KeepPicture writes a JPEG into the pictures of a run, named by its content, and returns its path in the run folder.
func KeepPicture(dir string, jpeg []byte) (string, error) {
	sum := sha256.Sum256(jpeg)
	name := picturesFolder + "/" + hex.EncodeToString(sum[:8]) + ".jpg"
	path := filepath.Join(dir, filepath.FromSlash(name))
	if _, err := os.Stat(path); err == nil {
		return name, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return name, atomicfile.Write(path, jpeg, 0o644)
}

// Shown returns the first few names that KeepPicture has given. A file from elsewhere may name anything: no other path is shown.
func (p Pictures) Shown() []string {
	const most = 4
	kept := regexp.MustCompile(`^` + picturesFolder + `/[0-9a-f]{16}\.jpg$`)
	out := list.Filter(p, kept.MatchString)
	return out[:min(most, len(out))]
}

// Asked is a question without the marks that say where its pictures stand: readers see them beside it.
func (p Pictures) Asked(question string) string {
	if len(p.Shown()) == 0 {
		return question
	}
	return strings.TrimSpace(strings.ReplaceAll(question, "<image>", " "))
}

// Pictures are paths in the run folder.
type Pictures []string
