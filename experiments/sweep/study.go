package sweep

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/configs"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/list"
	"fulcrum/internal/usage"
	"fulcrum/reports/sweeps"
)

// studyJobs crosses the arms of a study with the points of its grid: all arms of the first point, then those
// of the second, so that what a killed study leaves is whole seeds. An arm's overrides come first, so that
// the command line wins.
func (p *plan) studyJobs(points [][]string) ([]planned, error) {
	var jobs []planned
	for _, point := range points {
		first := len(jobs) // of this point: arm i is job first+i
		for _, arm := range p.study.Arms {
			num := len(jobs)
			var parent *int
			var start []string
			if arm.From != "" {
				at := first + slices.IndexFunc(p.study.Arms, func(a sweeps.StudyArm) bool { return a.Name == arm.From })
				parent, start = &at, []string{checkpointOf(p.dir, jobs[at].row.Dir, arm)}
			}
			job, err := p.compose(num, slices.Concat(without(arm.Overrides, point), point), "", start...)
			if err != nil {
				return nil, ofArm(arm, err)
			}
			job.row.Arm, job.row.Parent = arm.Name, parent
			for _, other := range jobs[first:] {
				if other.row.Fingerprint == job.row.Fingerprint {
					return nil, usage.Errorf("the arms %s and %s come to the same configuration (jobs %d and %d: %s): they would train the same twice",
						other.row.Arm, arm.Name, other.row.Num, num, strings.Join(job.row.Overrides, " "))
				}
			}
			if err := p.claimFolder(jobs, job.row); err != nil {
				return nil, err
			}
			jobs = append(jobs, job)
		}
	}
	return jobs, nil
}

// ofArm names the arm in an error about what it sets; other errors are of all arms.
func ofArm(arm sweeps.StudyArm, err error) error {
	for _, o := range arm.Overrides {
		if key, _, _ := strings.Cut(o, "="); strings.Contains(err.Error(), strings.TrimLeft(key, "+~")) {
			return fmt.Errorf("arm %s: %w", arm.Name, err)
		}
	}
	return err
}

// checkpointOf returns the override by which an arm starts from the run in a folder of the sweep's.
func checkpointOf(sweep, run string, arm sweeps.StudyArm) string {
	return cmp.Or(arm.As, "init.checkpoint") + "=" + configs.Quote(filepath.Join(sweep, run, "checkpoints", arm.Checkpoint+".safetensors"))
}

// startOf returns the overrides that a study gives a job of its own accord: where it starts.
func startOf(sweep string, study *sweeps.Study, job ledger.Job, jobs []ledger.Job) []string {
	if job.Parent == nil || study == nil {
		return nil
	}
	return []string{checkpointOf(sweep, jobs[*job.Parent].Dir, *study.Arm(job.Arm))}
}

// without returns the overrides of an arm whose keys a point does not set.
func without(arm, point []string) []string {
	key := func(override string) string {
		key, _, _ := strings.Cut(override, "=")
		return strings.TrimLeft(key, "+~")
	}
	return slices.DeleteFunc(slices.Clone(arm), func(o string) bool {
		return slices.ContainsFunc(point, func(q string) bool { return key(q) == key(o) })
	})
}

// Jobs lists the jobs of a sweep for --cfg sweep: their overrides, as Hydra prints them, and of a study's jobs
// in a comment which arm they are and what they wait for.
func Jobs(runs Runs, req configs.Request) (string, error) {
	req.Multirun = true
	composer, err := configs.NewComposer(req)
	if err != nil {
		return "", err
	}
	master, err := composer.Compose()
	if err != nil {
		return "", err
	}
	if master.Choice("hydra/sweeper") != sweeper.Study {
		if _, _, err := composer.Space(master); err != nil { // of no jobs it would be said that nothing acts in them
			return "", err
		}
		jobs, err := configs.ExpandSweep(req)
		return configs.JobsYAML(jobs), err
	}
	p, err := planSweep(runs, req, composer, master)
	if err != nil {
		return "", err
	}
	jobs, err := p.jobs()
	if err == nil {
		err = p.master.RefuseIdle(p.idle)
	}
	if err != nil {
		return "", err
	}
	rows := list.Map(jobs, func(j planned) ledger.Job { return j.row })
	var b strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&b, "# job %d: arm %s", row.Num, row.Arm)
		if row.Parent != nil {
			fmt.Fprintf(&b, ", from job %d (arm %s)", *row.Parent, rows[*row.Parent].Arm)
		}
		b.WriteString("\n" + configs.JobsYAML([][]string{slices.Concat(row.Overrides, startOf(p.dir, p.study, row, rows))}))
	}
	return b.String(), nil
}

// shownOverrides tell a job from the others of its sweep: of a study, arm=NAME stands for what the arm sets.
func shownOverrides(study *sweeps.Study, job ledger.Job) []string {
	if study == nil || job.Arm == "" {
		return job.Overrides
	}
	return append([]string{sweeps.ArmKey + "=" + job.Arm}, without(job.Overrides, study.Arm(job.Arm).Overrides)...)
}
