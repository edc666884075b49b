package slurm

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"fulcrum/experiments/sweep/launcher"
)

// run watches the tasks until Stop.
func (s *slurm) run() {
	defer close(s.events)
	const late = 20 * time.Second
	pause, said := s.soon, ""
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
			pause = s.soon
		case <-time.After(pause):
		}
		s.mu.Lock()
		tasks, cancel := slices.Collect(maps.Values(s.tasks)), s.cancel
		s.mu.Unlock()
		if cancel && len(tasks) == 0 {
			return
		}
		if len(tasks) == 0 {
			pause = late
			continue
		}
		slices.SortFunc(tasks, func(a, b *task) int { return a.job.Num - b.job.Num })
		news, err := s.look(tasks, cancel)
		if _, ok := errors.AsType[*SilentError](err); ok {
			s.send(launcher.Attempt{Err: err})
			return
		}
		if err != nil && s.ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			s.queue.warn(said + "; trying again")
		}
		if pause = min(pause*5/4, late); news {
			pause = s.soon
		}
		if len(tasks) > 200 || cancel && pause > 3*time.Second { // squeue is work for the cluster
			pause = max(pause, 5*time.Second)
		}
	}
}

// look asks Slurm about all tasks and tells what is new.
func (s *slurm) look(tasks []*task, cancel bool) (news bool, err error) {
	queue, err := s.queue.list(s.ctx)
	if err != nil {
		return false, err
	}
	var gone []string
	for _, t := range tasks {
		now := queue[t.id]
		if now.command != t.sub.script() { // the number has been given to another job
			now = slurmTask{}
			delete(queue, t.id)
		}
		if now.id == "" || now.state == "CANCELLED" {
			gone = append(gone, t.id)
		}
	}
	for id, t := range s.queue.account(gone) {
		if _, ok := queue[id]; !ok || t.kind() == slurmOver {
			queue[id] = t
		}
	}
	var drop, warnEnd []string
	for _, t := range tasks {
		now, known := queue[t.id]
		told, over, err := s.tell(t, now, known, cancel)
		if over { // first, whatever comes between: an end that was told is not told again
			s.mu.Lock()
			if s.tasks[t.job.Num] == t {
				delete(s.tasks, t.job.Num)
			}
			s.mu.Unlock()
		}
		if err != nil || s.ctx.Err() != nil {
			return news, err
		}
		news = news || told
		switch {
		case over, !known:
		case cancel && now.kind() == slurmWaits, cancel && !t.stopped.IsZero() && time.Since(t.stopped) > 2*launcher.Patience:
			drop = append(drop, t.id)
		case cancel && now.kind() == slurmRuns && t.stopped.IsZero():
			t.stopped = time.Now()
			warnEnd = append(warnEnd, t.id)
		case now.kind() == slurmWaits && now.stuck() && t.warned != now.reason:
			t.warned = now.reason
			s.queue.warn(fmt.Sprintf("job %d waits in Slurm's queue and will not start by itself: %s (scontrol show job %s)",
				t.job.Num, now.reason, t.id))
		}
	}
	return news, errors.Join(s.queue.cancel(drop, ""), s.queue.cancel(warnEnd, "TERM"))
}

// tell sends the events that the controller has not seen of a task, and reports whether it is over.
func (s *slurm) tell(t *task, now slurmTask, known, cancel bool) (news, over bool, err error) {
	all, err := launcher.Attempts(t.job.Dir)
	if err != nil {
		return false, false, err
	}
	if n := len(all); n > 0 && (all[n-1].State == launcher.Done || all[n-1].State == launcher.Pruned) && all[n-1].Try <= t.ended {
		t.begun, t.ended = all[n-1].Try-1, all[n-1].Try-1 // an attempt that was given up has finished the job
	}
	seen := t.begun // what began since may be newer than what the queue has just said
	for i, a := range all {
		if a.Try <= t.ended {
			continue
		}
		if a.Try > t.begun {
			start := a
			start.State, start.Ended, start.ExitCode, start.Cause, start.Tail = launcher.Running, time.Time{}, 0, "", nil
			if !s.send(start) {
				return news, false, nil
			}
			t.begun, news = a.Try, true
		}
		last := i == len(all)-1
		switch {
		case last && launcher.Ended(a.State):
			return true, s.finish(t, a, now), nil
		case last && !(known && now.kind() == slurmWaits && a.Try <= seen):
			continue
		}
		t.ended, news = a.Try, true // Slurm has stopped it and starts it again
		if a.State == launcher.Running {
			a.Ended, a.ExitCode, a.Cause = time.Now(), -1, "stopped by Slurm"
		}
		a.State, a.Requeued = launcher.Interrupted, true
		if !s.send(a) {
			return news, false, nil
		}
	}
	if known && now.kind() != slurmOver {
		t.over = time.Time{}
		return news, false, nil
	}
	if t.over.IsZero() {
		t.over = time.Now()
	}
	a := launcher.Attempt{Num: t.job.Num, ID: t.id, State: launcher.Queued}
	if n := len(all); n > 0 && all[n-1].Try > t.ended {
		a = all[n-1]
	} else if now.state != "CANCELLED" && time.Since(t.over) < s.lag { // its record may not be visible yet
		os.ReadDir(filepath.Dir(t.job.Dir)) // makes a network file system look again
		return news, false, nil
	}
	return true, s.finish(t, s.verdict(a, now, cancel), now), nil
}

// finish tells the end of a task.
func (s *slurm) finish(t *task, a launcher.Attempt, now slurmTask) bool {
	if a.State == launcher.Failed && a.ExitCode < 0 && now.state == "OUT_OF_MEMORY" {
		a.Cause += " (Slurm: OUT_OF_MEMORY: more memory by hydra.launcher.mem_gb)"
	}
	if a.Ended.IsZero() {
		a.Ended = time.Now()
	}
	if !s.send(a) {
		return false
	}
	linkOutput(t)
	return true
}

func (s *slurm) send(a launcher.Attempt) bool {
	select {
	case s.events <- a:
		return true
	case <-s.ctx.Done():
		return false
	}
}
