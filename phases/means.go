package phases

// sums accumulates step metrics over an epoch. Every number is averaged over the steps that have it;
// lists (histograms) are added up. It is saved with a state in mid-epoch.
type sums struct {
	Total map[string]number    `json:"total"`
	Count map[string]int       `json:"count"`
	Lists map[string][]float64 `json:"lists"`
}

func newSums() sums {
	return sums{map[string]number{}, map[string]int{}, map[string][]float64{}}
}

func (s *sums) add(m Metrics) {
	if s.Total == nil {
		*s = newSums()
	}
	for name, v := range m {
		switch v := v.(type) {
		case float64:
			s.Total[name] += number(v)
			s.Count[name]++
		case int:
			s.Total[name] += number(v)
			s.Count[name]++
		case []float64:
			l := s.Lists[name]
			if l == nil {
				l = make([]float64, len(v))
			}
			for i, x := range v {
				l[i] += x
			}
			s.Lists[name] = l
		}
	}
}

// means returns the averages, and the sums of lists.
func (s sums) means() Metrics {
	m := Metrics{}
	for name, n := range s.Count {
		m[name] = float64(s.Total[name]) / float64(n)
	}
	for name, l := range s.Lists {
		m[name] = l
	}
	return m
}
