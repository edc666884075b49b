package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"fulcrum/experiments/sweep/launcher"
	"fulcrum/internal/regular"
)

// verdict says how a task ended that is over, from Slurm's word and the record of its last attempt: that
// was interrupted, has no end (Running), or there is none (Queued).
func (s *slurm) verdict(a launcher.Attempt, now slurmTask, cancel bool) launcher.Attempt {
	say := func(state, cause string) launcher.Attempt {
		if a.State == launcher.Interrupted && a.Cause != "" {
			cause += "; " + a.Cause
		}
		if a.State != launcher.Interrupted {
			a.ExitCode = -1
		}
		a.State, a.Cause = state, cause
		return a
	}
	if cancel {
		if a.State == launcher.Interrupted {
			return a
		}
		return say(launcher.Interrupted, "cancelled with the sweep")
	}
	word := "Slurm: " + now.state
	switch now.state {
	case "CANCELLED":
		who := "scancel"
		if strings.HasPrefix(now.reason, "by ") {
			who = "by user " + strings.TrimPrefix(now.reason, "by ")
		}
		return say(launcher.Failed, "cancelled ("+who+")")
	case "TIMEOUT":
		cause := fmt.Sprintf("%s after %d minutes (hydra.launcher.timeout_min)", word, s.opt.TimeoutMin)
		if a.State == launcher.Interrupted && s.opt.MaxNumTimeout > 0 { // it saved its state and could not queue itself again
			return say(launcher.Interrupted, cause)
		}
		return say(launcher.Failed, cause)
	case "OUT_OF_MEMORY":
		return say(launcher.Failed, word+" (more by hydra.launcher.mem_gb)")
	case "DEADLINE":
		return say(launcher.Failed, word)
	case "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "REVOKED":
		if a.State == launcher.Interrupted {
			return say(launcher.Interrupted, word)
		}
		return say(launcher.Lost, word)
	case "":
		word = "it has left Slurm's queue without a word"
	}
	switch a.State {
	case launcher.Interrupted:
		return a
	case launcher.Running:
		return say(launcher.Lost, word+"; its supervisor died")
	}
	if now.state == "FAILED" {
		word += " before the program started"
		if line := lastOutput(s.sweep, a.ID); line != "" {
			word += ": " + line
		}
		return say(launcher.Failed, word)
	}
	return say(launcher.Lost, word+", and nothing of the job is in its folder")
}

// output returns the files of what Slurm itself, the setup lines and the supervisor print.
func output(sweep, id string) []string {
	path := filepath.Join(slurmFolder(sweep), id)
	return []string{path + ".err", path + ".out"}
}

// lastOutput returns the last line that a task printed before its program took over.
func lastOutput(sweep, id string) string {
	for _, path := range output(sweep, id) {
		text, err := regular.ReadDocument(path)
		if err != nil {
			continue
		}
		if lines := strings.Split(strings.TrimSpace(string(text)), "\n"); lines[len(lines)-1] != "" {
			return lines[len(lines)-1]
		}
	}
	return ""
}

// linkOutput leaves links to a task's files in its run folder, where they hold anything.
func linkOutput(t *task) {
	for _, path := range output(t.job.Sweep, t.id) {
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			continue
		}
		target := path
		if rel, err := filepath.Rel(t.job.Dir, path); err == nil {
			target = rel
		}
		os.Symlink(target, filepath.Join(t.job.Dir, "slurm-"+filepath.Base(path))) // there is a link already, or no folder: nothing is lost
	}
}
