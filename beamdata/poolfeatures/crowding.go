package poolfeatures

// crowdingMean is the mean cosine of a candidate with the others of its pool.
func crowdingMean() Feature {
	return Feature{Name: "crowding_mean", Of: func(p *Pool, _ []int, out []float64) {
		others(p, func(j int, cosine float64) { out[j] += cosine / float64(len(out)-1) })
	}}
}

// crowdingMax is the cosine of a candidate with the nearest other one of its pool.
func crowdingMax() Feature {
	return Feature{Name: "crowding_max", Of: func(p *Pool, _ []int, out []float64) {
		for j := range out {
			out[j] = -1
		}
		others(p, func(j int, cosine float64) { out[j] = max(out[j], cosine) })
	}}
}

// others visits each candidate with each other one.
func others(p *Pool, visit func(j int, cosine float64)) {
	k, between := len(p.Rows), p.Between()
	for j := range k {
		for i, cosine := range between[j*k : (j+1)*k] {
			if i != j {
				visit(j, float64(cosine))
			}
		}
	}
}
