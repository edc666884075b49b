package group

// Agreement returns 1 for each counted candidate [B*G] that gives the most frequent answer of its group, else 0. Of equally frequent
// answers the first counts. It is the reward of training on a policy's own plurality, without any truth (TTRL, arXiv:2504.16084 §2).
func Agreement(answers []string, valid []bool, G int) []float64 {
	out := make([]float64, len(answers))
	for from := 0; from < len(answers); from += G {
		times, most := map[string]int{}, -1
		for at := from; at < from+G; at++ {
			if Counts(valid, at) {
				times[answers[at]]++
			}
		}
		for at := from; at < from+G; at++ {
			if Counts(valid, at) && (most < 0 || times[answers[at]] > times[answers[most]]) {
				most = at
			}
		}
		for at := from; at < from+G; at++ {
			if Counts(valid, at) && answers[at] == answers[most] {
				out[at] = 1
			}
		}
	}
	return out
}
