package slurm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/filelock"
	"fulcrum/internal/regular"
	"fulcrum/reports/record"
)

// submission is one job array, handed to Slurm by one call of sbatch. It is three files in .sweep/slurm: N.json,
// written first, says which jobs are in it; N.sh is the batch script; N.id holds what sbatch printed, the array's
// number. sbatch writes N.id itself and holds its lock while it runs: a controller that is killed meanwhile loses
// nothing, and the next one finds the array. Should sbatch die too, the array is found by the name of its script.
type submission struct {
	path   string   // without the ending
	Nums   []int    `json:"nums"`
	Tries  []int    `json:"tries"`  // attempts that each job had before
	Offset int      `json:"offset"` // job number less array index
	Sbatch []string `json:"sbatch"` // arguments
}

func slurmFolder(sweep string) string { return filepath.Join(sweep, ".sweep", "slurm") }

// submissions reads all of a sweep's, oldest first.
func submissions(sweep string) ([]*submission, error) {
	entries, err := os.ReadDir(slurmFolder(sweep)) // sorted
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []*submission
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") || strings.HasPrefix(e.Name(), ".") { // a temporary file is none
			continue
		}
		name := filepath.Join(slurmFolder(sweep), e.Name())
		s := &submission{path: strings.TrimSuffix(name, ".json")}
		if err := record.ReadJSON(name, s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// nextSubmission names a new submission of the sweep.
func nextSubmission(sweep string) (string, error) {
	all, err := submissions(sweep)
	if err != nil {
		return "", err
	}
	n := 1
	if len(all) > 0 {
		last, err := strconv.Atoi(filepath.Base(all[len(all)-1].path))
		if err != nil {
			return "", err
		}
		n = last + 1
	}
	return filepath.Join(slurmFolder(sweep), fmt.Sprintf("%06d", n)), nil
}

func (s *submission) script() string { return s.path + ".sh" }

// write stores the submission and its script.
func (s *submission) write(script string) error {
	if err := atomicfile.MkdirAll(filepath.Dir(s.path)); err != nil {
		return err
	}
	if err := atomicfile.Write(s.script(), []byte(script), 0o755); err != nil {
		return err
	}
	return atomicfile.WriteJSON(s.path+".json", s)
}

// submit calls sbatch. The file that it prints to is locked as long as it runs, whatever becomes of this
// process: the lock belongs to the open file, which sbatch inherits.
func (s *submission) submit() error {
	out, err := regular.OpenFile(s.path+".id", os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := filelock.Take(out); err != nil {
		return err
	}
	cmd := slurmCommand("sbatch", append(slices.Clone(s.Sbatch), s.script())...)
	cmd.Stdout = out
	if err := runCommand(cmd, commandLimit); err != nil {
		return err
	}
	return out.Sync()
}

// array returns the number of the job array, "" when sbatch has not said it. It waits for an sbatch that an
// earlier controller started.
func (s *submission) array() (string, error) {
	f, err := regular.OpenFile(s.path+".id", os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := filelock.Take(f)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("%s: sbatch does not end (%w)", s.path, err)
		}
	}
	text, err := regular.ReadDocument(s.path + ".id")
	if err != nil {
		return "", err
	}
	id, _, _ := strings.Cut(strings.TrimSpace(string(text)), ";") // id;cluster
	return id, nil
}

// found stores the number of an array that was found by its script.
func (s *submission) found(array string) error {
	return atomicfile.Write(s.path+".id", []byte(array+"\n"), 0o644)
}

// task returns Slurm's name of a job in the array.
func (s *submission) task(array string, num int) string {
	return array + "_" + strconv.Itoa(num-s.Offset)
}

// arrayIn finds the array of this submission in tasks by its script and returns its number, or "".
func (s *submission) arrayIn(tasks map[string]slurmTask) string {
	for id, t := range tasks {
		if t.command == s.script() {
			array, _, _ := strings.Cut(id, "_")
			return array
		}
	}
	return ""
}
