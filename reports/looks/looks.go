// Package looks keeps the ledger of looks: a file with a line for every scoring of held-out questions. Whoever scores the same questions
// often enough finds a winner among equals, so that the n-th look has only a part of alpha (stats.LookAt).
//
//	err := looks.Take(looks.Path(nil, dir), dir, dir, record.Look{Split: "dev", Metric: "reward", Digest: digest}, "")
package looks

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/filelock"
	"fulcrum/internal/regular"
	"fulcrum/internal/usage"
	"fulcrum/reports/record"
	"fulcrum/reports/stats"
)

// line is a line of the ledger.
type line struct {
	Time   string   `json:"time"`
	Run    string   `json:"run"` // folder of the run or sweep
	ID     string   `json:"id"`
	Split  string   `json:"split"`
	Metric string   `json:"metric"`
	Digest string   `json:"digest"`
	Sketch []string `json:"sketch,omitempty"` // of its questions; lines of older programs have none
	Same   string   `json:"same,omitempty"`   // as of record.Look
	Claim  string   `json:"claim,omitempty"`  // of a sealed split
}

var day = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}$`)

// Path returns the ledger of the run or sweep in a folder: evidence.ledger, else looks.jsonl in the output root. That is the folder which
// holds the run's; of outputs/DATE/TIME and multirun/DATE/TIME it is outputs.
func Path(set *string, dir string) string {
	if set != nil {
		return *set
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	root := filepath.Dir(dir)
	if day.MatchString(filepath.Base(root)) {
		root = filepath.Dir(root)
	}
	if filepath.Base(root) == "multirun" {
		root = filepath.Join(filepath.Dir(root), "outputs")
	}
	return filepath.Join(root, "looks.jsonl")
}

// Take writes a look into looks.json of dir, once: with a number from the ledger, or with the reason why that could not be asked. A run
// that is resumed has the look that it had. The runs of a sweep, which is their owner, share its look: what it compares it corrects by a
// rule of its own. Another run is its own owner. With a claim the questions are sealed: a ledger that says of another look at them, of
// another claim or nothing is an error.
func Take(ledger, owner, dir string, look record.Look, claim string) error {
	own, err := record.ReadLooks(dir)
	had := own.At(look.Split, look.Metric) != nil
	if err != nil || had && claim == "" {
		return err
	}
	if err = enter(ledger, owner, &look, claim); err != nil {
		if claim != "" {
			return err
		}
		look.Missing = err.Error()
	}
	if own, err = record.ReadLooks(dir); err != nil || had { // enter may have written an id
		return err
	}
	look.Shared = owner != dir
	own.Looks = append(own.Looks, look)
	return write(dir, own)
}

func write(dir string, l record.Looks) error {
	return atomicfile.WriteJSON(filepath.Join(dir, record.LooksFile), l)
}

// enter gives a look its number: that of its owner's line in the ledger, which is added where there is none. The id is in the owner's
// folder before the line is in the ledger, so that one that was killed in between finds it.
func enter(ledger, owner string, look *record.Look, claim string) error {
	if err := atomicfile.MkdirAll(filepath.Dir(ledger)); err != nil {
		return err
	}
	f, err := regular.OpenFile(ledger, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := lock(f); err != nil {
		return fmt.Errorf("%s: %w", ledger, err)
	}
	text, err := io.ReadAll(f)
	if err == nil { // a full disk, or the end of a process, may have cut the last line off
		err = f.Truncate(int64(bytes.LastIndexByte(text, '\n') + 1))
	}
	if err != nil {
		return err
	}
	l, err := record.ReadLooks(owner)
	if err != nil {
		return err
	}
	if l.ID == "" {
		l.ID = rand.Text()
		if err := write(owner, l); err != nil {
			return err
		}
	}
	var lines []line
	err = record.EachJSON(ledger, func(was line) error {
		lines = append(lines, was)
		return nil
	})
	if err != nil {
		return err
	}
	mine := slices.IndexFunc(lines, func(was line) bool {
		return (was.ID == l.ID || look.Same != "" && was.Same == look.Same) && was.Metric == cmp.Or(look.Family, look.Metric) &&
			was.Digest == look.Digest
	})
	if claim != "" {
		for _, was := range related(lines, *look) {
			if was.ID != l.ID || was.Run != owner || was.Claim != claim {
				return usage.Errorf("questions of it were scored by %s at %s, with the claim %q: they are scored once", was.Run, was.Time,
					was.Claim)
			}
		}
	}
	if mine < 0 {
		mine = len(lines)
		text, err = json.Marshal(line{time.Now().Format(time.RFC3339), owner, l.ID, look.Split, cmp.Or(look.Family, look.Metric), look.Digest,
			look.Sketch, look.Same, claim})
		if err != nil {
			return err
		}
		if _, err := f.Write(append(text, '\n')); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
	look.Look = stats.LookAt(len(related(lines[:mine], *look)) + 1)
	return nil
}

// related returns the lines whose questions a look shares, or shares with lines that are related: one question in common is enough. Would
// half of them be asked for, 200 of 1,000 questions drawn anew with every run began at look 1 for ever. Sets that are not related have no
// question in common: each chain of overlapping sets spends its own alpha.
func related(lines []line, look record.Look) (of []line) {
	known := map[string]bool{look.Digest: true}
	add := func(sketch []string) {
		for _, h := range sketch {
			known[h] = true
		}
	}
	add(look.Sketch)
	in := make([]bool, len(lines))
	for more := true; more; {
		more = false
		for i, was := range lines {
			if !in[i] && (known[was.Digest] || slices.ContainsFunc(was.Sketch, func(h string) bool { return known[h] })) {
				in[i], more, known[was.Digest] = true, true, true
				add(was.Sketch)
			}
		}
	}
	for i, was := range lines {
		if in[i] {
			of = append(of, was)
		}
	}
	return of
}

// lock waits for the runs that write the ledger just now.
func lock(f *os.File) error {
	const most, pause = 10 * time.Second, 10 * time.Millisecond
	for begun := time.Now(); ; time.Sleep(pause) {
		err := filelock.Take(f)
		if held := errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES); !held || time.Since(begun) > most {
			return err
		}
	}
}
