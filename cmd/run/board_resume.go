//go:build !core

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"fulcrum/configs"
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/internal/list"
	"fulcrum/reports/board"
	"fulcrum/reports/record"
)

// resumeDetached starts run resume in a process of its own, which outlives the board. An error that comes at once is
// returned.
func resumeDetached(dir string) error {
	args := []string{"resume", dir}
	if ledger.Exists(dir) {
		args = append(args, "--detach")
	}
	said, err := os.CreateTemp("", "fulcrum-resume-*")
	if err != nil {
		return err
	}
	defer said.Close()
	os.Remove(said.Name()) // it ends with the process that writes it
	if _, _, err = sweep.Background(context.Background(), dir, said, 10*time.Second, args...); err == nil || errors.Is(err, sweep.ErrSlow) {
		return nil
	}
	text := make([]byte, 4096)
	n, _ := said.ReadAt(text, 0) // what it has said, if anything
	return fmt.Errorf("resume: %s", bytes.TrimSpace(text[:n]))
}

// Keys whose values are programs or shell, and those whose values are addresses, by their last word.
func programKeys() []string { return []string{"command", "setup"} }
func addressKeys() []string { return []string{"url", "webhook"} }

// startsOf names the programs that a resume of dir starts and the addresses that it calls, as the configuration in the folder says. What
// cannot be read of it is a line too: nothing is left out in silence.
func startsOf(dir string) []board.Start {
	var starts []board.Start
	if !ledger.Exists(dir) {
		return startsOfRun(dir)
	}
	s, jobs, err := ledger.Load(dir)
	if err != nil {
		return []board.Start{unread(err)}
	}
	if path, err := sweep.OtherProgram(dir); err != nil {
		starts = append(starts, unread(err))
	} else if path != "" {
		starts = append(starts, board.Start{Key: "program", Value: shownText(path) + " (of the sweep's folder, not this build)"})
	}
	overrides := slices.Clone(s.Overrides)
	more := 0
	for _, j := range jobs {
		if j.State == record.StateDone || j.State == record.StatePruned {
			continue
		}
		overrides = append(overrides, j.Overrides...)
		job := filepath.Join(dir, j.Dir)
		if _, err := os.Stat(filepath.Join(job, runfolder.Marker)); err != nil {
			continue // not begun: what its overrides say
		}
		if more++; more <= mostJobs {
			starts = append(starts, startsOfRun(job)...)
		}
	}
	if more > mostJobs {
		starts = append(starts, board.Start{Key: "jobs", Value: fmt.Sprintf("what the folders of %d more of them say", more-mostJobs)})
	}
	for _, flag := range s.Flags { // groups that jobs choose from may lie there
		key, value, _ := strings.Cut(strings.TrimLeft(flag, "-"), "=")
		starts = append(starts, board.Start{Key: shownText(key), Value: shownText(value)})
	}
	for _, o := range overrides {
		key, value, _ := strings.Cut(strings.TrimLeft(o, "+~"), "=")
		if strings.HasPrefix(key, "hydra.launcher.") || strings.HasPrefix(key, "hydra.callbacks") { // arguments of srun may be programs
			starts = append(starts, board.Start{Key: shownText(key), Value: shownText(value)})
		} else {
			starts = append(starts, startOf(key, value)...)
		}
	}
	return list.Unique(starts)
}

// mostJobs is how many begun jobs of a sweep are looked into.
const mostJobs = 20

// startsOfRun is startsOf of a run folder.
func startsOfRun(dir string) []board.Start {
	saved, err := runfolder.ReadSaved(dir)
	if err != nil {
		return []board.Start{unread(err)}
	}
	var starts []board.Start
	for _, name := range slices.Sorted(maps.Keys(saved.Hydra.Job.EnvSet)) {
		starts = append(starts, board.Start{Key: "hydra.job.env_set." + shownText(name), Value: shownText(saved.Hydra.Job.EnvSet[name])})
	}
	c, err := configs.Compose(configs.Request{ConfigPath: filepath.Join(dir, ".hydra"), ConfigName: "config", AppName: "run",
		HydraFile: filepath.Join(dir, ".hydra", "hydra.yaml")})
	if err != nil {
		return append(starts, unread(err))
	}
	h, err := c.Hydra()
	if err != nil {
		return append(starts, unread(err))
	}
	for _, command := range h.OnJobEnd {
		starts = append(starts, board.Start{Key: "hydra.callbacks.on_job_end", Value: shownText(command)})
	}
	text, err := c.YAML("job", true, "")
	if err != nil {
		return append(starts, unread(err))
	}
	var tree any
	if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
		return append(starts, unread(err))
	}
	flat := map[string]string{}
	record.Flatten(flat, "", tree)
	for _, key := range slices.Sorted(maps.Keys(flat)) {
		starts = append(starts, startOf(key, flat[key])...)
	}
	return list.Unique(starts)
}

// startOf is a setting that names a program or an address; of an address only the host, as the rest may hold a secret.
func startOf(key, value string) []board.Start {
	last := key[strings.LastIndex(key, ".")+1:]
	program, address := slices.Contains(programKeys(), last), slices.Contains(addressKeys(), last)
	if !program && !address || slices.Contains([]string{"", "null", "[]", "''", `""`}, value) {
		return nil
	}
	if address {
		if u, err := url.Parse(value); err == nil && u.Host != "" {
			value = u.Scheme + "://" + u.Host
		}
	}
	return []board.Start{{Key: shownText(key), Value: shownText(value)}}
}

func unread(err error) board.Start {
	return board.Start{Key: "unknown", Value: "what it starts cannot be read: " + shownText(err.Error())}
}

// shownText shows characters that would hide or reorder others by their codes.
func shownText(text string) string {
	var b strings.Builder
	for _, r := range text {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "<%U>", r)
		}
	}
	return b.String()
}
