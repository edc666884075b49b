package verify

import (
	"os"
	"path/filepath"

	"fulcrum/reports/page"
	"fulcrum/reports/runreport"
	"fulcrum/reports/sweepreport"
)

// VerifySweep writes a sweep's report again from its ledger's jobs and their summaries, draws its plots again, and
// compares both with what stands in its folder. Its jobs are runs: VerifyRun checks each.
func VerifySweep(dir string, jobs []sweepreport.Job, opt sweepreport.Options) (*Verification, error) {
	c := &Verification{}
	sweep := sweepreport.PageOf(dir, jobs, opt)
	figures := sweep.Figures()
	for _, f := range figures {
		if _, err := c.comparePlot(dir, f.Figure.Name, f.Figure); err != nil {
			return nil, err
		}
	}
	if len(figures) > 0 {
		c.checked("%s drawn again", page.Plural(len(figures), "plot"))
	}
	more, err := sweep.Explore()
	if err != nil {
		return nil, err
	}
	if err := c.CompareReport(dir, sweep.Report(figures), more); err != nil {
		return nil, err
	}
	for _, f := range figures {
		for _, ending := range []string{".png", ".svg"} {
			file := runreport.PlotsFolder + "/" + f.Figure.Name + ending
			if _, err := os.Stat(filepath.Join(dir, file)); os.IsNotExist(err) {
				c.mismatch(Mismatch{File: file, Stated: "no file", Recomputed: "a plot"})
			}
		}
	}
	return c, nil
}
