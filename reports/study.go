package reports

import "slices"

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
	return []string{policyInit, policyRandom, policySimilarity, policyMajority, "best_beam", policyOracle}
}

// Arm returns the arm of a name, nil for none.
func (s *Study) Arm(name string) *StudyArm {
	if i := slices.IndexFunc(s.Arms, func(a StudyArm) bool { return a.Name == name }); i >= 0 {
		return &s.Arms[i]
	}
	return nil
}
