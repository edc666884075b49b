package experiments

import (
	"sort"
	"time"

	"fulcrum/reports/record"
)

// attempts is the time that a run was at work before a resume.
type attempts struct {
	start   time.Time
	seconds float64
}

// earlierAttempts adds up the attempts of the run in dir: from its rows, because one that was killed left no
// summary, or from the summary, which knows the time before the first row and after the last.
func earlierAttempts(dir string) attempts {
	var s attempts
	if rows, err := record.ReadRun(dir); err == nil {
		s = attemptsOf(rows)
	}
	if former, _ := record.ReadSummary(dir); former != nil && former.WallSeconds > s.seconds {
		if start, err := time.Parse(time.RFC3339, former.Start); err == nil {
			return attempts{start, former.WallSeconds}
		}
	}
	return s
}

// attemptsOf adds up the time between the first and the last row of each attempt; a resume event begins one.
func attemptsOf(rows *record.Run) attempts {
	type moment struct {
		at    float64
		first bool
	}
	var all []moment
	for _, list := range [][]record.Row{rows.Epochs, rows.EvalRows, rows.Events} {
		for _, row := range list {
			all = append(all, moment{row.Time, row.Text("event") == "resume"})
		}
	}
	if len(all) == 0 {
		return attempts{}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].at < all[j].at })
	s := attempts{start: time.UnixMilli(int64(all[0].at * 1000))}
	for i := 1; i < len(all); i++ {
		if !all[i].first {
			s.seconds += all[i].at - all[i-1].at
		}
	}
	return s
}
