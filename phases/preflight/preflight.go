// Package preflight tries a run before its first step: every phase of the schedule makes a few steps on one
// batch with a clone of the policy, and what must hold there is checked: gradients reach every tensor, frozen
// ones stay, the ratio is 1, log-probabilities are the same with and without gradient, alone and in a batch,
// and the better candidates become likelier.
//
//	report := preflight.New(checks, seed)
//	report.Faults(bundle.Audit(…))            // faults of the data, as findings
//	err := report.Try(ctx, policy, stages)  // the phases, on clones
//	doctor.Judge(report.Findings())         // the error of the first stop
//
// It trusts no phase: what a step should do is computed here from rewards and log-probabilities alone. The
// policy it is given stays as it is, and its random numbers are its own. Findings are those of package
// doctor and depend on configuration, data and weights alone, never on the clock.
package preflight

import (
	"fmt"
	"slices"

	"fulcrum/beamdata/audit"
	"fulcrum/internal/list"
	"fulcrum/phases/doctor"
)

// Name stands for the phase of findings that belong to none.
const Name = "preflight"

// Finding is a doctor's finding and the phase that it is about.
type Finding struct {
	Phase string
	doctor.Finding
}

// Report collects what the checks find.
type Report struct {
	severity map[string]doctor.Severity // of findings, by check
	seed     int64
	steps    int // optimizer steps of each trial
	checks   int
	findings []Finding
	seen     []Seen
	said     map[string]bool // phase and check: each is said once

	reaches []reached // of the stages tried so far
}

// New returns an empty report of these checks. seed chooses the queries that are looked at.
func New(checks []doctor.Check, seed int64) *Report {
	r := &Report{severity: map[string]doctor.Severity{}, seed: seed, steps: trialSteps, said: map[string]bool{}}
	for _, c := range checks {
		r.severity[c.Name] = c.Severity
	}
	return r
}

// Findings returns what was found, in the order of the checks.
func (r *Report) Findings() []Finding { return r.findings }

func (r *Report) Checks() int { return r.checks }

// Judge returns the error that ends the run: that of the first stop, or nil.
func (r *Report) Judge() error {
	return doctor.Judge(list.Map(r.findings, func(f Finding) doctor.Finding { return f.Finding }))
}

func (r *Report) Faults(faults []audit.Fault) {
	r.checks += len(ofData())
	r.Saw(Name, "data", "%d checks of all sets, %d with a finding", len(ofData()), len(faults))
	r.Fault(faults...)
}

// Fault adds faults that were looked for by themselves.
func (r *Report) Fault(faults ...audit.Fault) {
	for _, f := range faults {
		most := doctor.Stop
		if f.Mild {
			most = doctor.Note
		}
		r.add(Name, most, doctor.Finding{Check: f.Check, Message: f.Message, Key: f.Key, Value: f.Value, Limit: f.Limit})
	}
}

// add appends a finding with the severity of its check, but none worse than most.
func (r *Report) add(phase string, most doctor.Severity, f doctor.Finding) {
	if f.Severity = r.severity[f.Check]; f.Severity.WorseThan(most) {
		f.Severity = most
	}
	at := fmt.Sprintf("%s %s %s", phase, f.Check, f.Severity)
	if f.Severity == doctor.Off || phase != Name && r.said[at] {
		return
	}
	r.said[at] = true
	r.findings = append(r.findings, Finding{phase, f})
}

// found adds a finding that may be a stop: what was measured and what it was held against. key is the configuration key to change, or "".
func (r *Report) found(phase, check, key string, value, limit float64, format string, args ...any) {
	r.add(phase, doctor.Stop, doctor.Finding{Check: check, Key: key, Value: value, Limit: limit, Message: fmt.Sprintf(format, args...)})
}

// Seen is a check that was made, and the figures that it saw.
type Seen struct{ Phase, Check, Figures string }

// Saw notes the figures of a check, which a dry run shows. phase is Name where a check belongs to none.
func (r *Report) Saw(phase, check, format string, args ...any) {
	r.seen = append(r.seen, Seen{phase, check, fmt.Sprintf(format, args...)})
}

// Passed returns what the checks saw that found nothing worse than a note, in the order they were made.
func (r *Report) Passed() []Seen {
	return slices.DeleteFunc(slices.Clone(r.seen), func(s Seen) bool {
		return slices.ContainsFunc(r.findings, func(f Finding) bool {
			return f.Phase == s.Phase && f.Check == s.Check && f.Severity.WorseThan(doctor.Note)
		})
	})
}
