package sweeps

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"time"

	"fulcrum/internal/list"
	"fulcrum/internal/regular"
	"fulcrum/reports/page"
	"fulcrum/reports/stats"
)

// Ask is the rule of a study that grows by seeds until what it asks is settled or hopeless. Effect and MaxSeeds are fixed before anything
// runs.
type Ask struct {
	Effect   float64       `json:"effect"`           // a difference of scores that is worth having, above 0
	MaxSeeds int           `json:"max_seeds"`        // of each arm
	Budget   time.Duration `json:"budget,omitempty"` // of job time; 0: none
	Agreed   bool          `json:"agreed"`           // somebody has agreed to the cost of more than two seeds
}

// AnswerFile holds a question and its answer in the folder of its study.
const AnswerFile = "answer.md"

// AskedIn returns the folder of the question that the run in a folder is of; "" where it is of none.
func AskedIn(dir string) string {
	study := filepath.Join(dir, "..")
	if text, _ := regular.ReadDocument(filepath.Join(study, AnswerFile)); strings.HasPrefix(string(text), "# Question\n") {
		return study
	}
	return ""
}

// Rule says in sentences when the question is judged and when it ends.
func (a Ask) Rule() string {
	stages := stats.Stages(a.MaxSeeds)
	return fmt.Sprintf("A difference of %g is worth having. Each arm is judged after %s seeds, never in between. Early stages ask for a much "+
		"smaller p: it counts %s times. It ends when every difference is settled, better, worse or less than %[1]g by its interval, or "+
		"given up, not before three seeds: when %[4]d would settle one of %[1]g with a chance below 10 %%.", a.Effect,
		page.Joined(list.Map(stages, func(n int) string { return fmt.Sprint(n) })), page.Joined(list.Map(stages, a.factor)), a.MaxSeeds)
}

// factor is what p is multiplied by at a stage: 125, 1.1.
func (a Ask) factor(seeds int) string {
	_, stage := stats.StageAt(seeds, a.MaxSeeds)
	if times := 1 / stage.Share; times < 10 {
		return fmt.Sprintf("%.1f", times)
	}
	return page.Thousands(int(math.Round(1 / stage.Share)))
}
