package sweep

import "fulcrum/configs"

// Fingerprints plans a sweep and returns the fingerprints of its jobs.
func Fingerprints(runs Runs, req configs.Request) ([]string, error) {
	p, err := newPlan(runs, req)
	if err != nil {
		return nil, err
	}
	jobs, err := p.jobs()
	hashes := make([]string, len(jobs))
	for i, j := range jobs {
		hashes[i] = j.row.Fingerprint
	}
	return hashes, err
}
