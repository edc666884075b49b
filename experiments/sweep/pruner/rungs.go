package pruner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/regular"
	"fulcrum/reports/record"
)

// Progress is what a run of a sweep tells its siblings: a rung file.
type Progress struct {
	Num      int             `json:"num"` // of the job
	Metric   string          `json:"metric"`
	Minimize bool            `json:"minimize"`
	Best     []record.Number `json:"best"` // best value up to and including each epoch, from the first
}

// rungs returns the folder of a sweep's rung files.
func rungs(sweep string) string { return filepath.Join(sweep, ".sweep", "rungs") }

func rungFile(sweep string, num int) string {
	return filepath.Join(rungs(sweep), strconv.Itoa(num)+".json")
}

// write stores p. A file that tells the same and more stays: it is of an earlier attempt, and the run, which is
// deterministic, will come to its later epochs again.
func (p Progress) write(sweep string) error {
	path := rungFile(sweep, p.Num)
	if old, err := readProgress(path); err == nil && old.Num == p.Num && old.Metric == p.Metric && old.Minimize == p.Minimize &&
		len(old.Best) >= len(p.Best) && slices.Equal(texts(old.Best[:len(p.Best)]), texts(p.Best)) {
		return nil
	}
	if err := atomicfile.MkdirAll(rungs(sweep)); err != nil {
		return err
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(text, '\n'), 0o644)
}

// texts makes NaN equal to itself.
func texts(numbers []record.Number) []string {
	return list.Map(numbers, func(n record.Number) string { return strconv.FormatFloat(float64(n), 'g', -1, 64) })
}

func readProgress(path string) (Progress, error) {
	var p Progress
	text, err := regular.ReadDocument(path)
	if err != nil {
		return p, err
	}
	if err := jsonwords.Unmarshal(text, &p); err != nil {
		return p, fmt.Errorf("%s: damaged rung file: %w", path, err)
	}
	return p, nil
}

// Siblings reads what the jobs of a sweep have told so far, in the order of their numbers.
func Siblings(sweep string) ([]Progress, error) {
	entries, err := os.ReadDir(rungs(sweep))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Progress
	for _, e := range entries {
		if _, err := strconv.Atoi(strings.TrimSuffix(e.Name(), ".json")); err != nil {
			continue // a temporary file
		}
		p, err := readProgress(filepath.Join(rungs(sweep), e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Progress) int { return a.Num - b.Num })
	return all, nil
}
