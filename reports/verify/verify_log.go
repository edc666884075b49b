package verify

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"fulcrum/internal/regular"
	"fulcrum/internal/visible"
	"fulcrum/reports/compare"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// logLine is a line of run.log, taken apart.
type logLine struct {
	at      int64 // milliseconds of its clock, in whatever time zone
	name    string
	level   record.Level
	message string
	row     bool // some row says the same
	cut     bool // a resume has cut off its row
}

var logPattern = regexp.MustCompile(`^\[(.*?)\]\[(.*?)\]\[(.*?)\] - (.*)`)

// parseLogLine takes [2006-01-02 15:04:05,000][name][LEVEL] - message apart. The second and later lines of a
// message are none: they have no level.
func parseLogLine(text string) logLine {
	parts := logPattern.FindStringSubmatch(text)
	if parts == nil {
		return logLine{}
	}
	at, err := time.Parse("2006-01-02 15:04:05.000", strings.Replace(parts[1], ",", ".", 1))
	if err != nil {
		return logLine{}
	}
	return logLine{at: at.UnixMilli(), name: parts[2], level: record.Level(parts[3]), message: parts[4]}
}

// log compares the lines of run.log that repeat rows with the rows. Lines of rows that a resume has cut off stay
// in the log, and are known by standing right before that resume.
func (c *runCheck) log() error {
	path := filepath.Join(c.dir, record.RunLogFile)
	data, err := regular.ReadFile(path)
	if os.IsNotExist(err) {
		c.note("there is no %s", record.RunLogFile)
		return nil
	}
	if err != nil {
		return err
	}
	var lines []logLine // by number of line − 1
	for text := range strings.Lines(string(data)) {
		lines = append(lines, parseLogLine(text))
	}
	console := &record.Progress{Plan: c.plan()}
	checked, next := 0, 0
	for _, row := range c.others {
		name, level, message := console.LogLine(row.Row)
		first, _, _ := strings.Cut(visible.Text(message), "\n")
		want := logLine{at: int64(math.Round(row.Time * 1000)), name: name, level: level, message: first}
		checked++
		if i := findLine(lines, want, next, sameMessage); i >= 0 {
			lines[i].row, next = true, i+1
			continue
		}
		if i := findLine(lines, want, next, func(a, b logLine) bool { return sameKind(a.message, b.message) }); i >= 0 {
			lines[i].row, next = true, i+1
			c.mismatch(Mismatch{File: record.RunLogFile, Line: i + 1, What: row.at(),
				Stated:     compare.QuoteDifference(lines[i].message, want.message),
				Recomputed: fmt.Sprintf("%s (%s:%d)", compare.QuoteDifference(want.message, lines[i].message), record.MetricsFile, row.line)})
			continue
		}
		c.mismatch(Mismatch{File: record.RunLogFile, What: row.at(), Stated: "no line",
			Recomputed: fmt.Sprintf("%q (%s:%d)", want.message, record.MetricsFile, row.line)})
	}
	markCut(lines)
	for i, l := range lines {
		if l.level != "" && !l.row && !l.cut && c.isRowLine(l) {
			c.mismatch(Mismatch{File: record.RunLogFile, Line: i + 1, Stated: strconv.Quote(page.Clip(l.message, 100)),
				Recomputed: "no such row in " + record.MetricsFile})
		}
	}
	c.checked("%s of %s", page.Plural(checked, "line"), record.RunLogFile)
	return nil
}

// plan is what the log knew of the phases' lengths: from the configuration.
func (c *runCheck) plan() []record.PhasePlan {
	var plan []record.PhasePlan
	schedule, _ := c.run.Setting("schedule").([]any)
	for _, name := range schedule {
		phase, _ := name.(string)
		if epochs, ok := c.run.SettingNumber(phase, "epochs"); ok && epochs > 0 {
			plan = append(plan, record.PhasePlan{Name: phase, Epochs: int(epochs)})
		}
	}
	return plan
}

// findLine finds the line of a row: after the lines of the rows before it, at the row's time in some time zone.
func findLine(lines []logLine, want logLine, from int, same func(a, b logLine) bool) int {
	for i := from; i < len(lines); i++ {
		if l := lines[i]; l.level != "" && l.name == want.name && sameMoment(l.at, want.at) && same(l, want) {
			return i
		}
	}
	return -1
}

// sameMoment compares a clock without a time zone with a time: zones differ by quarters of an hour.
func sameMoment(clock, at int64) bool {
	const quarter, day = 15 * 60 * 1000, 24 * 3600 * 1000
	d := clock - at
	return d%quarter == 0 && d > -day && d < day
}

// sameMessage ignores the width of columns, and how many epochs a phase was planned to have: a log that was told
// no plan says epoch 1, not epoch 1/3.
func sameMessage(a, b logLine) bool {
	return a.level == b.level && strings.Join(messageWords(a.message), " ") == strings.Join(messageWords(b.message), " ")
}

func messageWords(s string) []string {
	words := strings.Fields(s)
	for i := 1; i < len(words); i++ {
		if words[i-1] == "epoch" {
			words[i], _, _ = strings.Cut(words[i], "/")
		}
	}
	return words
}

// sameKind says whether two messages differ in numbers alone, or at all little.
func sameKind(a, b string) bool {
	x, y := messageWords(a), messageWords(b)
	same := 0
	for i := range min(len(x), len(y)) {
		if x[i] == y[i] {
			same++
		}
	}
	return 2*same >= max(len(x), len(y))
}

// markCut marks lines whose rows a later resume has cut off: going back from the line of the resume, those up to
// the first whose row is still there.
func markCut(lines []logLine) {
	for end := range lines {
		if !lines[end].row || !isResumeMessage(lines[end]) {
			continue
		}
		for i := end - 1; i >= 0; i-- {
			if lines[i].row && !isResumeMessage(lines[i]) {
				break
			}
			lines[i].cut = true
		}
	}
}

func isResumeMessage(l logLine) bool {
	return strings.HasPrefix(strings.TrimPrefix(l.message, "warning: "), "resumed ")
}

// isRowLine recognises lines that only rows leave: evaluations and ends of epochs.
func (c *runCheck) isRowLine(l logLine) bool {
	switch words := messageWords(l.message); {
	case l.name == "eval" && len(words) > 0 && words[0] == "eval":
		return true
	case len(words) > 3 && words[0] == l.name && words[1] == "epoch" && words[3] == "done":
		return true
	}
	return false
}
