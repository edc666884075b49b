// Package sweeper says what chooses the jobs of a sweep and what they are judged by: the options of hydra.sweeper, a study's
// arms, and objectives. What a run came to is read from its folder (Goals.Read). fulcrum/experiments/sweep/search has the
// sweepers that optimize.
package sweeper

// Trial is a job as a sweeper sees it.
type Trial struct {
	Number    int       // from 0, without gaps
	Params    []string  // one for each dimension of the space, as written behind key=
	State     string    // launcher.Done, Pruned, Failed; anything else is still to come to its end
	Losses    []float64 // one for each objective, less is better, infinite for NaN; of Done and Pruned
	Violation float64   // of the constraints; 0 = feasible
}

// Sweeper proposes trials.
type Sweeper interface {
	// Next returns the parameters of the next trial. The history holds every trial proposed so far, in any
	// order, those that still run included.
	Next(history []Trial) (params []string, err error)
}
