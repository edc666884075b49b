//go:build !core

package tasks

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"fulcrum/beamdata/icl"
	"fulcrum/experiments/job"
	"fulcrum/experiments/lvlm"
	"fulcrum/experiments/workload"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// openRecords reads questions about images, warns of what is odd in them and describes them for the summary.
func openRecords(j *job.Job, in *string) (*icl.Set, error) {
	set, err := j.Config.Records(in)
	if err != nil {
		return nil, err
	}
	for _, note := range set.Notes() {
		j.Log.Warnf("data: %s", note)
	}
	j.Data = record.DataSummary{Name: "records", Fingerprint: set.Digest, Counts: set.Counts, Skipped: map[string]int{}}
	return set, nil
}

// openKept opens the model of the section lvlm. Without lvlm.store what it says is kept in the run folder, so that a task that was
// killed asks nothing again.
func openKept(ctx context.Context, j *job.Job) (*workload.Scorer, error) {
	if store := filepath.Join(j.Dir, "store"); lvlmOf(j.Config).Store == nil && !j.Config.DryRun {
		lvlmOf(j.Config).Store = &store
	}
	return workload.OpenScorer(ctx, j)
}

// pace says how far a task is that asks a model.
type pace struct {
	job         *job.Job
	counts      func() lvlm.Counts
	name        string
	prompts     int // that the task needs in all
	first       lvlm.Counts
	start, told time.Time
}

func newPace(j *job.Job, scorer *workload.Scorer, name string, prompts int) *pace {
	now := time.Now()
	return &pace{job: j, counts: scorer.Counts, name: name, prompts: prompts, first: scorer.Counts(), start: now, told: now}
}

// tell logs what is done, at most every ten seconds but for the last. The time that remains is that of all prompts that are left at
// the rate of those that the model was asked: what the store knows may make it shorter, never longer.
func (p *pace) tell(what string, last bool) {
	if !last && time.Since(p.told) < 10*time.Second {
		return
	}
	p.told = time.Now()
	now := p.counts()
	asked, known := now.Asked-p.first.Asked, now.Known-p.first.Known
	line := fmt.Sprintf("%s: %s, %s asked, %s known", p.name, what, page.Thousands(int(asked)), page.Thousands(int(known)))
	if asked > 0 {
		rate := float64(asked) / time.Since(p.start).Seconds()
		line += fmt.Sprintf(", %.3g a second", rate)
		if left := p.prompts - int(asked+known); left > 0 {
			line += fmt.Sprintf(", at most %s left", page.Duration(float64(left)/rate))
		}
	}
	p.job.Logf("%s", line)
}
