// Package doctor watches a run for silent failures: it reads the rows that training writes, step by step and epoch by
// epoch, and says in one sentence what is wrong, what the likely cause is and which key to change.
//
//	d := doctor.New(opt)
//	d.Begin("grpo", limits)                // what the phase promises: bounds, schedules, refreshes
//	findings := d.Step(epoch, step, row)   // the same numbers as the row in metrics.jsonl
//	findings = d.Epoch(epoch, row)
//
// It is pure: findings depend on rows and limits alone, never on the clock or the machine, so that equal
// runs give equal findings, a resumed run (State, Restore) included. It knows no tensor and no policy.
// Its checks do not trust the code that made a row: what options promise (the ratio right after a
// refresh, the learning rate of a step, the curriculum's top k) is computed here again.
package doctor

import "slices"

// Severity says what a finding asks for.
type Severity string

// The severities, in rising order. A check that is off says nothing.
const (
	Off     Severity = "off"
	Note    Severity = "note"    // good to know; healthy runs have some
	Warning Severity = "warning" // a person should look before trusting the result
	Stop    Severity = "stop"    // the result would be worthless: the run ends
)

// WorseThan reports whether s asks for more than t.
func (s Severity) WorseThan(t Severity) bool {
	rising := []Severity{Note, Warning, Stop}
	return slices.Index(rising, s) > slices.Index(rising, t)
}

// Finding is one thing that somebody should know about a run.
type Finding struct {
	Check    string // snake_case name, the event's name in metrics.jsonl: no_signal, beta_at_bound, …
	Severity Severity
	Message  string  // one plain sentence: the number, the likely cause, what to change
	Key      string  // configuration key to change; "" where it is the code or the data
	Set      string  // KEY=VALUE, to type; "" where no one value is to be had
	Value    float64 // what was measured
	Limit    float64 // what it was held against; both 0 where the finding is no number
	Step     int     // of the phase, where no row says it: the first that it is of
}

// Fields returns the finding as the fields of an event row in metrics.jsonl. Other events have no value.
func (f Finding) Fields() map[string]any {
	fields := map[string]any{"event": f.Check, "severity": string(f.Severity), "message": f.Message, "value": f.Value, "limit": f.Limit}
	if f.Key != "" {
		fields["key"] = f.Key
	}
	if f.Set != "" {
		fields["set"] = f.Set
	}
	return fields
}

// StopError ends a run because of a finding of severity stop.
type StopError struct{ Finding Finding }

func (e *StopError) Error() string { return "stopped by " + e.Finding.Check + ": " + e.Finding.Message }

// Judge returns the error that ends a run with these findings: that of the first stop, or nil.
func Judge(findings []Finding) error {
	for _, f := range findings {
		if f.Severity == Stop {
			return &StopError{f}
		}
	}
	return nil
}
