// Package prove computes steps of a finished run again, in a copy of its folder, and compares bytes with what the run has left.
package prove

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"fulcrum/experiments/runfolder"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/digest"
	"fulcrum/internal/interrupt"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/regular"
	"fulcrum/internal/rng"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// Options say what is computed again.
type Options struct {
	Program   string // path
	Steps     int    // of the run that are drawn and compared row by row; 0: all behind the state
	Seed      int64  // of the draw
	FromStart bool   // steps of the whole run are drawn
}

// Run computes steps of the run in dir again. It returns what was proven, in a sentence, or an error that names what differs first.
func Run(ctx context.Context, dir string, o Options) (said string, err error) {
	s, err := record.ReadSummary(dir)
	if err != nil {
		return "", err
	}
	if !s.Over() || len(s.Phases) == 0 {
		return "", usage.Errorf("%s: want a run that has trained and is finished", dir)
	}
	states, err := phases.States(dir)
	if err != nil {
		return "", err
	}
	var from *phases.Saved // the oldest kept state behind which there are steps; nil: the start
	if !o.FromStart && len(states) > 1 {
		from = states[0]
	}
	was, total, err := steps(dir)
	if err != nil {
		return "", err
	}
	begun := 0
	if from != nil {
		begun = from.GlobalStep()
	}
	if total <= begun {
		return "", fmt.Errorf("%s: it has no optimizer step", dir)
	}
	drawn, kill := draw(was, begun, o), total
	if len(drawn) > 0 { // else no step behind the state was logged, and checkpoints alone are compared
		kill = drawn[len(drawn)/2]
	}
	tmp, remove, err := interrupt.Folder("", "fulcrum-prove-")
	if err != nil {
		return "", err
	}
	defer remove()
	again := filepath.Join(tmp, "run")
	if err := copied(dir, again, from); err != nil {
		return "", err
	}
	processes := 1 // another number than the run had, where its steps have several shards
	if s.Versions["shards"] != "" && s.Versions["processes"] == "" {
		processes = 2
	}
	killed, err := repeat(ctx, again, processes, kill, o)
	if err != nil {
		return "", err
	}
	if err := compareSteps(was, again, drawn); err != nil {
		return "", err
	}
	files, err := compareFiles(dir, again, from)
	if err != nil {
		return "", err
	}
	return sentence(from, total-begun, total, drawn, files, processes, s.Versions["shards"], killed), nil
}

// sentence says what was proven.
func sentence(from *phases.Saved, repeated, total int, drawn []int, files, processes int, shards string, killed bool) string {
	origin := "the start"
	if from != nil {
		origin = filepath.Base(from.Dir)
	}
	how := fmt.Sprintf("by %d processes", processes)
	if processes == 1 {
		how = "by one process"
	}
	if n, err := strconv.Atoi(shards); err == nil && n > processes {
		how += ", shards in the other order"
	}
	if killed {
		how += ", killed once on the way"
	}
	return fmt.Sprintf("proven: %d of %d steps repeated from %s, %s; %s drawn and %s have the same bytes",
		repeated, total, origin, how, page.Plural(len(drawn), "row"), page.Plural(files, "checkpoint"))
}

// clock matches what no repetition has equal.
var clock = regexp.MustCompile(`"(time|step_seconds)":[^,}]+,?`)

// steps returns the rows of a run's optimizer steps by global step, without clock times, and how many steps there were: not every one need
// have a row.
func steps(dir string) (rows map[int]string, total int, err error) {
	path := filepath.Join(dir, "metrics.jsonl")
	text, err := regular.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	rows = map[int]string{}
	for line := range strings.Lines(string(text)) {
		var row struct {
			Kind string `json:"kind"`
			Step int    `json:"global_step"`
		}
		if err := jsonwords.Unmarshal([]byte(line), &row); err != nil {
			return nil, 0, fmt.Errorf("%s: %w", path, err)
		}
		switch row.Kind {
		case record.KindStep:
			rows[row.Step] = clock.ReplaceAllString(strings.TrimSpace(line), "")
		case record.KindEpoch:
			total = row.Step
		}
	}
	return rows, total, nil
}

// draw draws rows of steps behind the first ones, in order.
func draw(rows map[int]string, begun int, o Options) (drawn []int) {
	for n := range rows {
		if n > begun {
			drawn = append(drawn, n)
		}
	}
	slices.Sort(drawn)
	if o.Steps == 0 || o.Steps >= len(drawn) {
		return drawn
	}
	some := list.Map(rng.New(o.Seed, "prove").Perm(len(drawn))[:o.Steps], func(at int) int { return drawn[at] })
	slices.Sort(some)
	return some
}

// copied makes a folder of the run as it was when the state was saved; nil: at its start.
func copied(dir, to string, from *phases.Saved) error {
	keep := []string{".hydra", "looks.json"}
	if from != nil {
		keep = append(keep, "metrics.jsonl", "evals.jsonl", "completions.jsonl", "run.log", "attempts.jsonl",
			filepath.Join("checkpoints", filepath.Base(from.Dir)))
		for _, name := range from.Checkpoints() {
			keep = append(keep, filepath.Join("checkpoints", name))
		}
	}
	for _, name := range keep {
		err := filepath.WalkDir(filepath.Join(dir, name), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			below, err := filepath.Rel(dir, path)
			if err != nil {
				return err
			}
			if entry.IsDir() {
				return atomicfile.MkdirAll(filepath.Join(to, below))
			}
			text, err := regular.ReadFile(path)
			if err != nil {
				return err
			}
			if err := atomicfile.MkdirAll(filepath.Dir(filepath.Join(to, below))); err != nil {
				return err
			}
			return atomicfile.Write(filepath.Join(to, below), text, 0o644)
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a checkpoint that the run no longer keeps
			return err
		}
	}
	return nil
}

// repeat trains in the copy to the end. It kills the processes once when a step's row is written, and goes on.
func repeat(ctx context.Context, dir string, processes, kill int, o Options) (killed bool, err error) {
	for {
		var said bytes.Buffer
		cmd := exec.CommandContext(ctx, o.Program, "resume", dir, fmt.Sprintf("parallel.processes=%d", processes))
		cmd.Env = append(os.Environ(), runfolder.Repeats+"=1")
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			return killed, err
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		if !killed && killAt(cmd, ended, dir, kill) {
			killed = true
			continue
		}
		if err := <-ended; err != nil {
			return killed, cmp.Or(context.Cause(ctx), fmt.Errorf("the run could not be repeated: %w\n%s", err, strings.TrimSpace(said.String())))
		}
		return killed, nil
	}
}

// killAt kills a run once it has written the row of a step; false: it ended before.
func killAt(cmd *exec.Cmd, ended chan error, dir string, step int) bool {
	row := fmt.Sprintf(`"global_step":%d,`, step)
	for {
		select {
		case err := <-ended:
			ended <- err
			return false
		case <-time.After(20 * time.Millisecond):
		}
		text, err := regular.ReadFile(filepath.Join(dir, "metrics.jsonl"))
		if err != nil || !strings.Contains(string(text), row) {
			continue
		}
		if cmd.Process.Kill() != nil {
			continue // it has ended meanwhile
		}
		<-ended
		return true
	}
}

// compareSteps compares the rows of steps.
func compareSteps(was map[int]string, again string, drawn []int) error {
	now, _, err := steps(again)
	if err != nil {
		return err
	}
	for _, n := range drawn {
		if now[n] != was[n] {
			return fmt.Errorf("step %d differs when it is computed again:\n the run: %s\n now:     %s", n, was[n], now[n])
		}
	}
	return nil
}

// compareFiles compares the checkpoints that the run has left with those of the copy, and returns how many there are behind the state.
func compareFiles(dir, again string, from *phases.Saved) (files int, err error) {
	var before []string
	if from != nil {
		before = from.Checkpoints()
	}
	all, err := regular.Glob(filepath.Join(dir, "checkpoints"), "*.safetensors")
	if err != nil {
		return 0, err
	}
	for _, path := range all {
		name := filepath.Base(path)
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || slices.Contains(before, name) {
			continue // links are best and last
		}
		files++
		other := filepath.Join(again, "checkpoints", name)
		was, _, err := digest.File(path)
		if err != nil {
			return files, err
		}
		now, _, err := digest.File(other)
		if errors.Is(err, fs.ErrNotExist) {
			return files, fmt.Errorf("checkpoints/%s: the repeated run has none", name)
		}
		if err != nil {
			return files, err
		}
		if was != now {
			return files, differ(name, path, other)
		}
	}
	return files, nil
}

// differ names the first tensor that two checkpoints do not share.
func differ(name, path, other string) error {
	was, err := tensorfile.MapSafetensors(path)
	if err != nil {
		return err
	}
	defer was.Close()
	now, err := tensorfile.MapSafetensors(other)
	if err != nil {
		return err
	}
	defer now.Close()
	for _, tensor := range was.Tensors {
		if same, ok := now.Get(tensor.Name); !ok || !bytes.Equal(same.Data, tensor.Data) {
			return fmt.Errorf("checkpoints/%s: %s differs when it is computed again", name, tensor.Name)
		}
	}
	return fmt.Errorf("checkpoints/%s: its metadata differ when it is computed again", name)
}
