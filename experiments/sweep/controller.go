package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/list"
	"fulcrum/internal/program"
	"fulcrum/internal/stdout"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/sweeps"
)

// controller runs a sweep: it submits jobs to the launcher, writes what becomes of them into the ledger,
// and asks the sweeper for more. All that it knows stands in the ledger and in the jobs' folders: another
// one can take over at any instant.
type controller struct {
	plan       *plan
	ledger     *ledger.Ledger
	launcher   launcher.Launcher
	jobs       []ledger.Job // job n at n
	starts     map[int]launcher.Job
	submitted  map[int]bool // submitted, and not ended
	onFailure  sweeper.OnFailure
	lost       map[int]int // attempts of a job that were lost and made again without asking
	halted     string      // why the sweep stops before its end; "" = it does not
	generation int         // of the configuration that new trials take
	live       *liveTable  // nil: each change is a line
}

// control runs the sweep to its end. The caller holds the folder's lock.
func control(ctx context.Context, p *plan, l *ledger.Ledger, starts map[int]launcher.Job, generation int) error {
	jobs, err := l.Jobs()
	if err != nil {
		return err
	}
	onFailure, err := sweeper.ParseOnFailure(p.options.OnFailure)
	if err != nil {
		return err
	}
	c := &controller{plan: p, ledger: l, jobs: jobs, starts: starts, lost: map[int]int{}, onFailure: onFailure, generation: generation}
	kept := keptProgram(p.dir)
	if kept == "" { // nothing is left to run, or the folder's file system executes nothing
		if kept, err = os.Executable(); err != nil {
			return err
		}
	}
	if c.launcher, err = p.open(kept); err != nil {
		return err
	}
	for _, job := range jobs {
		p.folders[job.Dir] = job.Num
	}
	work := len(starts) > 0 || len(jobs) < c.total() // whoever was told of the end is not told again
	stdout.OutliveReaders()
	stdout.Printf("sweep of %s → %s\n", page.Plural(c.total(), "job"), p.dir)
	// On a terminal one table shows the jobs, elsewhere a line each change. What they print stands in their job.log.
	if p.tells() && stdout.Width() > 0 && os.Getenv("TERM") != "dumb" {
		c.live = &liveTable{ctx: ctx, sweep: l.Sweep(), dir: p.dir}
	}
	err = c.run(ctx)
	c.launcher.Stop(c.halted != "") // jobs may still run
	for a := range c.launcher.Events() {
		if late := c.settle(a); err == nil { // on a full disk every event fails alike: once is enough
			err = late
		}
	}
	c.live.draw(c.jobs)
	if err != nil {
		return fmt.Errorf("%w; go on with %s", err, program.OnFolder("resume", p.dir))
	}
	err = c.finish(ctx)
	if work {
		p.tell()
	}
	return err
}

// total returns the number of jobs that the sweep will have.
func (c *controller) total() int {
	return max(c.trials(), len(c.jobs))
}

// trials returns how many a search makes: a finite space may have fewer points than it is asked for. 0: the jobs are known.
func (c *controller) trials() int {
	if c.plan.search == nil {
		return 0
	}
	return min(c.plan.options.NTrials, cmp.Or(c.plan.points(), math.MaxInt))
}

// run is the loop: submit jobs, wait for events, write them down.
func (c *controller) run(ctx context.Context) error {
	if err := c.adopt(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	for {
		if err := c.submit(ctx); err != nil || c.halted != "" {
			return err
		}
		if len(c.submitted) == 0 {
			return nil
		}
		select {
		case <-tick.C:
			c.live.draw(c.jobs)
		case a := <-c.launcher.Events():
			if err := c.settle(a); err != nil || c.halted != "" {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// adopt finds out what became of the jobs that an earlier controller had started: some may still be in a
// cluster's queue, some have ended since, the others are lost and run again.
func (c *controller) adopt(ctx context.Context) error {
	var open []launcher.Job
	for _, job := range c.jobs {
		if start, ok := c.starts[job.Num]; ok {
			open = append(open, start)
		}
	}
	adopted, err := c.launcher.Adopt(ctx, open)
	if err != nil {
		return err
	}
	c.submitted = list.Set(adopted)
	var again []ledger.Job
	for i := range c.jobs {
		job := &c.jobs[i]
		if _, ok := c.starts[job.Num]; !ok || c.submitted[job.Num] {
			continue
		}
		attempts, err := launcher.Attempts(c.starts[job.Num].Dir)
		if err != nil {
			return err
		}
		for _, a := range attempts {
			if a.Try < job.Attempts || a.Try == job.Attempts && job.State != launcher.Running {
				continue // the ledger knows
			}
			if a.State == launcher.Running {
				a.State, a.Cause = launcher.Lost, "its process and the sweep's controller died"
			}
			if err := c.note(job, a); err != nil {
				return err
			}
		}
		switch job.State {
		case launcher.Running, launcher.Lost, launcher.Failed, launcher.Skipped: // what a resume is for
			job.State = launcher.Queued
			again = append(again, *job)
		}
	}
	c.halted = "" // what failed then is what a resume tries again
	return c.ledger.Update(again...)
}

// submit gives the launcher what can start now.
func (c *controller) submit(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil
	}
	if err := c.propose(); err != nil || c.halted != "" {
		return err
	}
	if err := c.skip(); err != nil {
		return err
	}
	limit := len(c.jobs)
	if b := c.plan.options.MaxBatchSize; b != nil && c.plan.search == nil {
		if limit = *b; len(c.submitted) > 0 {
			return nil // Hydra's batches: one after another
		}
	}
	var batch []launcher.Job
	for _, job := range c.jobs {
		ready := job.Parent == nil || c.jobs[*job.Parent].State == launcher.Done // what it starts from must be there
		if job.State == launcher.Queued && !c.submitted[job.Num] && ready && len(batch) < limit {
			batch = append(batch, c.starts[job.Num])
			c.submitted[job.Num] = true
		}
	}
	if len(batch) == 0 {
		return nil
	}
	return c.launcher.Submit(ctx, batch)
}

// skip gives up the jobs whose parent has come to nothing. Parents have smaller numbers: one pass reaches
// grandchildren too.
func (c *controller) skip() error {
	var skipped []ledger.Job
	for i := range c.jobs {
		job := &c.jobs[i]
		if job.Parent == nil || job.State != launcher.Queued || c.submitted[job.Num] {
			continue
		}
		switch parent := c.jobs[*job.Parent]; parent.State {
		case launcher.Failed, launcher.Lost, launcher.Skipped:
			came := strings.Replace("was "+parent.State, "was failed", "failed", 1)
			job.State, job.Cause = launcher.Skipped, fmt.Sprintf("it starts from job %d (arm %s), which %s", parent.Num, parent.Arm, came)
			c.say("#%-4d %s: %s  %s\n", job.Num, job.State, job.Cause, strings.Join(shownOverrides(c.plan.study, *job), " "))
			skipped = append(skipped, *job)
		}
	}
	if len(skipped) == 0 {
		return nil
	}
	return c.ledger.Update(skipped...)
}

// propose asks the sweeper for as many trials as may run beside those under way.
func (c *controller) propose() error {
	p := c.plan
	if p.search == nil {
		return nil
	}
	under := list.Count(c.jobs, func(j ledger.Job) bool { return !launcher.Ended(j.State) && j.State != launcher.Lost }) // lost: given up
	for ; under < p.options.NJobs && len(c.jobs) < c.trials() && c.halted == ""; under++ {
		params, err := p.search.Next(c.history())
		if err != nil {
			return fmt.Errorf("hydra/sweeper=%s: %w", p.sweeper, err)
		}
		num, overrides := len(c.jobs), p.overrides(params)
		job, err := p.compose(num, overrides, "")
		if err != nil { // a point that several keys together make invalid: the search learns that
			job.row = p.invalid(num, overrides, err)
			under--
		}
		job.row.Generation = c.generation
		if err := c.ledger.Add(job.row); err != nil {
			return err
		}
		c.jobs = append(c.jobs, job.row)
		p.folders[job.row.Dir] = num
		if err != nil {
			c.say("#%-4d failed: %v  %s\n", num, err, strings.Join(overrides, " "))
			c.tolerate(num)
			continue
		}
		c.starts[num] = expecting(job.start, job.row.Fingerprint)
	}
	return nil
}

// history returns the sweep as its sweeper sees it.
func (c *controller) history() []sweeper.Trial {
	trials := make([]sweeper.Trial, len(c.jobs))
	for i, job := range c.jobs {
		trials[i] = sweeper.Trial{Number: job.Num, Params: job.Params, State: job.State, Violation: float64(job.Violation)}
		if job.State == launcher.Lost {
			trials[i].State = launcher.Failed // nothing is to come of it
		}
		for _, o := range job.Objectives {
			trials[i].Losses = append(trials[i].Losses, o.Loss())
		}
	}
	return trials
}

// settle takes what the launcher says about an attempt.
func (c *controller) settle(a launcher.Attempt) error {
	if a.Err != nil {
		return a.Err
	}
	if a.Num < 0 || a.Num >= len(c.jobs) {
		return fmt.Errorf("%s: the launcher reports job %d, which is not in the sweep", c.plan.dir, a.Num)
	}
	job := &c.jobs[a.Num]
	if a.State != launcher.Running && !a.Requeued {
		delete(c.submitted, a.Num)
	}
	known := a.Try > 0 && (a.Try < job.Attempts || a.Try == job.Attempts && job.State != launcher.Running)
	if known && (a.State == job.State || a.State != launcher.Done && a.State != launcher.Pruned) {
		return nil // an earlier controller was told
	}
	return c.note(job, a)
}

// note writes an attempt, and what follows from it for its job, into the ledger and tells the user.
func (c *controller) note(job *ledger.Job, a launcher.Attempt) error {
	if a.Try > 0 {
		job.Attempts = max(job.Attempts, a.Try)
	}
	label := fmt.Sprintf("#%d", job.Num)
	if a.State == launcher.Running {
		job.State = launcher.Running
		if c.live == nil || a.Try > 1 {
			c.say("%-5s %s  %s\n", label, started(a), strings.Join(c.differing(*job), " "))
		}
		return c.ledger.Update(*job)
	}
	if a.State == launcher.Interrupted && a.Try == 0 { // told to end before it began: nothing has happened
		job.State = launcher.Queued
		return c.ledger.Update(*job)
	}
	if !a.Ended.IsZero() && !a.Started.IsZero() {
		job.Seconds += max(0, a.Ended.Sub(a.Started).Seconds()) // of another machine, whose clock may have been set
	}
	job.ExitCode, job.Cause, job.Tail = new(a.ExitCode), a.Cause, a.Tail
	switch a.State {
	case launcher.Done, launcher.Pruned:
		job.State, job.Cause, job.Tail = a.State, "", nil
		err := cmp.Or(result(c.plan.dir, c.plan.goals, job), c.alike(job))
		if err != nil { // all jobs would come to the same
			job.State, job.Cause, job.Objectives = launcher.Failed, err.Error(), nil
			c.halted = fmt.Sprintf("job %d has ended well and cannot be judged (%v); resume with another "+
				"hydra.sweeper.objective", job.Num, err)
		}
	case launcher.Interrupted:
		job.State = launcher.Queued
	}
	if a.State == launcher.Failed || a.State == launcher.Lost || job.State == launcher.Failed {
		c.failed(job, a.State)
	}
	if c.live == nil || job.State != launcher.Done && job.State != launcher.Pruned {
		c.say("%-5s %s\n", label, c.ending(job, a))
	}
	return c.ledger.Update(*job)
}

// alike refuses a trial that a search would learn from as if it were measured like the others: without hydra.sweeper.objective each
// run is judged by a metric of its own.
func (c *controller) alike(job *ledger.Job) error {
	search := c.plan.search != nil && c.plan.sweeper != "random" && c.plan.sweeper != "sobol" // those learn nothing
	for _, other := range c.jobs {
		if search && len(other.Objectives) > 0 && len(job.Objectives) > 0 && other.Objectives[0].Name != job.Objectives[0].Name {
			return fmt.Errorf("its own metric is %s, that of job %d %s", job.Objectives[0].Name, other.Num, other.Objectives[0].Name)
		}
	}
	return nil
}

// lostAgain is how many lost attempts at a job are made good by another one: a node that failed is not
// the job's fault. More than that look like it.
const lostAgain = 3

// failed decides what becomes of a job after an attempt that came to nothing.
func (c *controller) failed(job *ledger.Job, state string) {
	if state == launcher.Lost && c.lost[job.Num] < lostAgain {
		c.lost[job.Num]++
		job.State = launcher.Queued
		return
	}
	if job.State = state; state != launcher.Lost {
		job.State = launcher.Failed
	}
	if job.Failures++; job.Failures <= c.onFailure.Retries && c.halted == "" {
		job.State = launcher.Queued
		return
	}
	c.tolerate(job.Num)
}

// tolerate stops the sweep when it may not go on after a failed job.
func (c *controller) tolerate(num int) {
	n := list.Count(c.jobs, func(j ledger.Job) bool { return j.State == launcher.Failed || j.State == launcher.Lost })
	rate := c.plan.options.MaxFailureRate
	switch {
	case c.halted != "": // the first reason counts
	case c.onFailure.Stop:
		c.halted = fmt.Sprintf("job %d failed and hydra.sweeper.on_failure=stop", num)
	case c.plan.search != nil && float64(n) > rate*float64(c.total()):
		c.halted = fmt.Sprintf("%d of %d trials failed and hydra.sweeper.max_failure_rate=%g", n, c.total(), rate)
	}
}

// result reads what a job of the sweep in dir came to.
func result(dir string, goals sweeper.Goals, job *ledger.Job) error {
	dir = filepath.Join(dir, job.Dir)
	r, err := goals.Read(dir)
	if err != nil {
		return err
	}
	summary, err := record.ReadSummary(dir)
	if err != nil {
		return err
	}
	job.Objectives, job.Violation, job.Metrics, job.Epochs = nil, record.Number(r.Violation), r.Metrics, 0
	job.Seconds = max(job.Seconds, summary.WallSeconds) // of an attempt that was killed, or was none of the sweep's, too
	for _, phase := range summary.Phases {
		job.Epochs += phase.Epochs
	}
	for i, v := range r.Values {
		job.Objectives = append(job.Objectives, ledger.Objective{Name: r.Names[i], Value: record.Number(v), Minimize: r.Minimize[i]})
	}
	return nil
}

func started(a launcher.Attempt) string {
	verb := "started"
	if a.Resumed {
		verb = "resumed"
	}
	if a.Try > 1 {
		verb += fmt.Sprintf(" (attempt %d)", a.Try)
	}
	return verb
}

// ending says how an attempt ended and what becomes of the job.
func (c *controller) ending(job *ledger.Job, a launcher.Attempt) string {
	text := a.State
	if launcher.Ended(job.State) && job.State != a.State {
		text = job.State
	}
	if !a.Ended.IsZero() && !a.Started.IsZero() {
		text += fmt.Sprintf(" in %.1f s", a.Ended.Sub(a.Started).Seconds())
	}
	for _, o := range job.Objectives {
		text += fmt.Sprintf("  %s %.4g", o.Name, float64(o.Value))
	}
	if job.Violation > 0 {
		text += "  (violates a constraint)"
	}
	if job.Cause != "" {
		text += ": " + job.Cause
	}
	if job.State == launcher.Queued && a.State != launcher.Interrupted {
		text += "; tried again"
		if a.State != launcher.Lost {
			text += fmt.Sprintf(" (%d of %d)", job.Failures, c.onFailure.Retries)
		}
	}
	return text
}

// finish writes the report and says how the sweep stands.
func (c *controller) finish(ctx context.Context) error {
	dir := c.plan.dir
	s := c.ledger.Sweep()
	err := c.plan.runs.Report(dir)
	if err != nil { // the jobs count, and run report writes it again
		stdout.Message(stdout.Errors(), fmt.Sprintf("warning: the report: %v", err))
	}
	counts := list.Tally(list.Map(c.jobs, func(j ledger.Job) string { return j.State }))
	missing := c.total() - counts[launcher.Done] - counts[launcher.Pruned]
	if c.live == nil && (s.Ask == nil || missing > 0) { // a terminal has the table already, a question shows it when it ends
		opt, rows := ResultOf(dir, s, c.jobs)
		stdout.Print(sweeps.Table(rows, opt, tableWidth))
	}
	if !errors.Is(err, ErrNoReport) {
		stdout.Printf("report: %s\n", filepath.Join(dir, "report.md"))
	}
	if n := len(c.submitted); ctx.Err() != nil && n > 0 && c.launcher.Outlived() {
		return &runfolder.InterruptedError{Cause: context.Cause(ctx), Dir: dir, Outlive: n}
	}
	if ctx.Err() != nil && counts[launcher.Queued]+counts[launcher.Running]+c.total()-len(c.jobs) > 0 {
		return &runfolder.InterruptedError{Cause: context.Cause(ctx), Dir: dir}
	}
	bad := counts[launcher.Failed] + counts[launcher.Lost]
	goOn := program.OnFolder("resume", dir)
	switch {
	case c.halted != "":
		return fmt.Errorf("the sweep was stopped: %s; %d of %d jobs are missing; go on with %s", c.halted, missing, c.total(), goOn)
	case bad > 0:
		also := ""
		if n := counts[launcher.Skipped]; n > 0 {
			also = fmt.Sprintf(" and %d that start from them were skipped", n)
		}
		return fmt.Errorf("%d of %d jobs failed%s (report.md has the causes); retry them with %s", bad, c.total(), also, goOn)
	case missing > 0:
		return fmt.Errorf("%d of %d jobs are missing; go on with %s", missing, c.total(), goOn)
	}
	if s.Ask != nil { // its further seeds are to run the same program (End)
		return nil
	}
	return dropProgram(dir)
}
