package arms

import "fulcrum/reports/record"

func eval(split, policy, phase string, epoch int, scores ...float64) record.Evaluation {
	e := record.Evaluation{Split: split, Policy: policy, Phase: phase, Epoch: epoch, Metric: "reward", Shots: 2, Scores: scores}
	for i := range scores {
		e.QueryIDs = append(e.QueryIDs, int64(10+i))
	}
	return e
}
