package phases

import "fulcrum/selector"

// SampleGroups draws g candidates of up to steps actions for each query from a policy and has them scored, as the online
// phases do. The preflight holds their rewards against those of each candidate alone.
func SampleGroups(p selector.Policy, src selector.Source, queries []int, g, steps int, temperature float64, key uint64) (*selector.Batch, error) {
	return sampleGroups(p, &Env{Data: Data{Shots: steps}}, src, queries, g, temperature, key)
}
