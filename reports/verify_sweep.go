package reports

import (
	"os"
	"path/filepath"
)

// VerifySweep writes a sweep's report again from its ledger's jobs and their summaries, draws its plots again, and
// compares both with what stands in its folder. Its jobs are runs: VerifyRun checks each.
func VerifySweep(dir string, jobs []SweepJob, opt SweepOptions) (*Verification, error) {
	c := &Verification{}
	page := sweepPageOf(dir, jobs, opt)
	figures := page.figures()
	for _, f := range figures {
		if _, err := c.comparePlot(dir, f.figure.name, f.figure); err != nil {
			return nil, err
		}
	}
	if len(figures) > 0 {
		c.checked("%s drawn again", plural(len(figures), "plot"))
	}
	if err := c.CompareReport(dir, page.report(figures)); err != nil {
		return nil, err
	}
	for _, f := range figures {
		for _, ending := range []string{".png", ".svg"} {
			file := plotsFolder + "/" + f.figure.name + ending
			if _, err := os.Stat(filepath.Join(dir, file)); os.IsNotExist(err) {
				c.mismatch(Mismatch{File: file, Stated: "no file", Recomputed: "a plot"})
			}
		}
	}
	return c, nil
}
