package runreport

import (
	"math"
	"strings"

	"fulcrum/reports/curves"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// explorePoints is how many points a curve has in report.html: as many as its width shows.
const explorePoints = 400

// explored is what the script of report.html draws: curves.Lively.
type explored struct {
	Started float64       `json:"started"`
	Phases  []curves.Span `json:"phases"`
	Levels  []level       `json:"levels"` // of the chart of scores
	Steps   *curves.Drawn `json:"steps"`
	Epochs  *curves.Drawn `json:"epochs"`
}

// level is a baseline of the validation score.
type level struct {
	Label string  `json:"label"`
	Value float64 `json:"value"`
}

// Explore returns the interactive part of a run's page; a folder without rows has none.
func Explore(run *record.Run) (page.Lively, error) {
	c, err := curves.Read(run.Dir)
	if err != nil || len(c.Phases) == 0 {
		return page.Lively{}, err
	}
	d := explored{Started: c.Started, Phases: c.Phases, Levels: []level{}, Steps: curves.DrawnOf(c.Steps, nil, explorePoints, false),
		Epochs: curves.DrawnOf(c.Epochs, nil, explorePoints, false)}
	for _, name := range []string{"reward", "accuracy", "recorded_reward"} {
		if c.Epochs.Of("val_"+name) == nil {
			continue
		}
		for _, policy := range []string{record.PolicySimilarity, record.PolicyMajority, record.PolicyRecorded} {
			if top, ok := run.Score("val", policy, "top1_accuracy"); ok && top == 1 && policy == record.PolicyRecorded {
				continue // an oracle
			}
			// A mean that is not finite fails the run, which says so; it must not take the report with it.
			if score, ok := run.Score("val", policy, name); ok && !math.IsInf(score, 0) && !math.IsNaN(score) {
				d.Levels = append(d.Levels, level{strings.ReplaceAll(policy, "_", " "), score})
			}
		}
		break
	}
	return curves.Lively(d)
}
