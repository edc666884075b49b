package sweeps

import (
	"slices"
	"strings"

	"fulcrum/internal/regular"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// Study is what a sweep of arms asks: which settings it has, and what is to be known of them.
type Study struct {
	Arms      []StudyArm      `json:"arms"` // an arm behind the one that it starts from
	Questions []StudyQuestion `json:"questions"`
}

// StudyArm is one setting of a study.
type StudyArm struct {
	Name       string   `json:"name"`
	Label      string   `json:"label"` // what readers see
	From       string   `json:"from"`  // arm whose run of the same seed it starts from; "" = fresh weights
	Checkpoint string   `json:"checkpoint"`
	As         string   `json:"as,omitempty"` // key that names the checkpoint; "" = init.checkpoint
	Overrides  []string `json:"overrides"`
}

// StudyQuestion is a comparison that was planned before the runs.
type StudyQuestion struct {
	Ask     string `json:"ask"`
	Arm     string `json:"arm"`
	Against string `json:"against"` // another arm, or one of StudyBaselines
	Split   string `json:"split"`   // "" = the held-out set, else val
	Metric  string `json:"metric"`
}

// StudyBaselines are the policies that every run of a study scores besides its own.
func StudyBaselines() []string {
	return []string{record.PolicyInit, record.PolicyRandom, record.PolicySimilarity, record.PolicyMajority, record.PolicyBestBeam,
		record.PolicyOracle}
}

// Arm returns the arm of a name, nil for none.
func (s *Study) Arm(name string) *StudyArm {
	if i := slices.IndexFunc(s.Arms, func(a StudyArm) bool { return a.Name == name }); i >= 0 {
		return &s.Arms[i]
	}
	return nil
}

// Sets is an arm by what its label says that it sets, as in a question; else by its name.
func (s *Study) Sets(name string) string {
	if s != nil && s.Arm(name) != nil && strings.Contains(s.Arm(name).Label, "=") {
		return s.Arm(name).Label
	}
	return ArmKey + "=" + name
}

// ToldAnswers returns what the report in a study's folder answers, in the order of the questions; nothing before there is one.
func ToldAnswers(dir string) (answers []string) {
	data, _ := regular.ReadDocument(page.ReportPath(dir))
	_, text, _ := strings.Cut(string(data), "\n## Answers\n")
	text, _, _ = strings.Cut(text, "\n#")
	for line := range strings.Lines(text) {
		if _, answer, ok := strings.Cut(line, "** "); ok && strings.HasPrefix(line, "- **") {
			answers = append(answers, strings.TrimSpace(answer))
		}
	}
	return answers
}

// Told is a difference that a sweep's report tells, of an answer or of a setting from the first one.
type Told struct{ Label, Text, Verdict, Words string }

// ToldIn returns what the report in a sweep's folder tells, in its order; nothing before there is one.
func ToldIn(dir string) []Told {
	var data struct{ Differences struct{ Rows []Told } }
	page.ReadData(dir, &data)
	return data.Differences.Rows
}

// ArmKey is the swept key, in Job.Params, that says which arm a job is.
const ArmKey = "arm"
