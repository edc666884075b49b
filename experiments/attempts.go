package experiments

import (
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
	s := attemptsIn(dir)
	if former, _ := record.ReadSummary(dir); former != nil && former.WallSeconds > s.seconds {
		if start, err := time.Parse(time.RFC3339, former.Start); err == nil {
			return attempts{start, former.WallSeconds}
		}
	}
	return s
}

// attemptsIn adds up the time between the first and the last row of each attempt; a resume event begins one. Attempts follow each
// other as their rows do, whatever the clock was set to in between.
func attemptsIn(dir string) (s attempts) {
	last := 0.0
	_ = record.EachRow(dir, func(row record.Row) error { // what cannot be read is named where the run is
		switch {
		case s.start.IsZero():
			s.start = time.UnixMilli(int64(row.Time * 1000))
		case row.Text("event") != "resume":
			s.seconds += max(0, row.Time-last)
		}
		last = row.Time
		return nil
	})
	return s
}
