package pruner

import "fulcrum/experiments/sweep/sweeper"

// toy shows what a rule is: this file, and one line in a table (withToy). It keeps the first half at every epoch.
type toy struct{}

func newToy(sweeper.PrunerOptions) rule { return toy{} }

func (toy) decides(int) bool { return true }

func (toy) keeps(ahead, others int) (bool, string) { return 2*ahead <= others, "half" }
