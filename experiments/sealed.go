//go:build !core

package experiments

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"time"

	"fulcrum/configs"
	"fulcrum/experiments/job"
	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/tasks"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/build"
	"fulcrum/internal/interrupt"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/reports/looks"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
)

// OpenTest scores the sealed questions of a finished run, once, and writes the claim and the scores into its folder.
func (a App) OpenTest(ctx context.Context, dir, claim string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	best := filepath.Join(dir, "checkpoints", "best.safetensors")
	c, saved, err := a.openSaved(dir, false, []string{"init.checkpoint=" + configs.Quote(best)})
	if err != nil {
		return err
	}
	cfg, err := job.Decode(c)
	if err != nil {
		return err
	}
	if cfg.Data.Sealed == nil {
		return usage.Errorf("%s: its data.sealed is null: only questions that a run has named before it trained can be opened", dir)
	}
	f, err := runfolder.Claim(dir)
	if err != nil {
		return err
	}
	defer f.Release()
	s, err := record.ReadSummary(dir)
	if err != nil {
		return err
	}
	if s == nil || s.State != record.StateDone || s.Best == nil {
		return usage.Errorf("%s: the run has not ended: want one with a best policy", dir)
	}
	opened, err := record.ReadOpened(dir)
	switch {
	case err != nil:
		return err
	case opened != nil && (s.Claim != "" || opened.Claim != claim): // else it was killed between the scores and the report
		return usage.Errorf("%s: its sealed questions were opened at %s, with the claim %q: they are scored once", dir, opened.Time,
			opened.Claim)
	case opened == nil:
		opened = &record.Opened{Time: time.Now().Format(time.RFC3339), Claim: claim}
		opened.Evaluations, err = scoreSealed(ctx, c, cfg, dir, cmp.Or(saved.SweepFolder(), dir), s, claim)
		if err != nil {
			return err
		}
		if err := atomicfile.WriteJSON(filepath.Join(dir, record.OpenedFile), opened); err != nil {
			return err
		}
	}
	s.Claim, s.Evaluations = claim, nil
	if err := results.WriteSummary(dir, *s); err != nil {
		return err
	}
	if err := addToManifest(dir); err != nil {
		return err
	}
	if err := writeReport(dir, cfg); err != nil {
		return err
	}
	stdout.Printf("report: %s\n", page.ReportPath(dir))
	return nil
}

// scoreSealed scores the sealed questions with a log of its own, so that the records of the run stay as they are.
func scoreSealed(ctx context.Context, c *configs.Composed, cfg *job.Config, dir, owner string, s *record.Summary,
	claim string) ([]record.Evaluation, error) {
	tmp, remove, err := interrupt.Folder("", "fulcrum-open-test-")
	if err != nil {
		return nil, err
	}
	defer remove()
	opt := record.LogOptions{LoggingOptions: cfg.Logging}
	opt.TensorBoard, opt.WandB = false, false
	log, err := record.OpenLog(tmp, opt)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	j := &job.Job{Config: cfg, Dir: tmp, Log: log, Compose: c.With, Baselines: map[string]float64{}}
	defer j.Close()
	ledger, sealed, digest := looks.Path(cfg.Evidence.Ledger, owner), *cfg.Data.Sealed, ""
	look := func(metric string) error {
		err := looks.Take(ledger, dir, dir, record.Look{Split: record.Sealed, Metric: metric, Digest: digest, Sketch: j.Data.EvalSketch}, claim)
		if err != nil {
			return fmt.Errorf("data.sealed=%s: %w", sealed, err)
		}
		return nil
	}
	evals, err := tasks.ScoreSealed(ctx, j, s.Best, func(of string) error {
		if digest = of; of != s.Data.Sealed {
			return usage.Errorf("data.sealed=%s: it has other questions than when the run trained, which did not leave them out", sealed)
		}
		return look("reward")
	})
	for _, e := range evals {
		if err == nil {
			err = look(e.Metric)
		}
	}
	return evals, err
}

// addToManifest takes the digests of what an opening has written. Those of all other records are of the run's end, as they were.
func addToManifest(dir string) error {
	run, err := record.ReadRun(dir)
	if err != nil || run.Manifest == nil {
		return err
	}
	written := map[string]string{}
	for name, of := range run.Manifest.Files {
		if name != record.SummaryFile && name != record.LooksFile {
			written[name] = of.SHA256
		}
	}
	_, err = record.WriteManifest(dir, build.Name(), written)
	return err
}
