package stats

// GroupBy puts things with the same key together, in the order in which the keys first come.
func GroupBy[T any, K comparable](things []T, key func(T) K) [][]T {
	var groups [][]T
	index := map[K]int{}
	for _, thing := range things {
		k := key(thing)
		at, seen := index[k]
		if !seen {
			at = len(groups)
			index[k], groups = at, append(groups, nil)
		}
		groups[at] = append(groups[at], thing)
	}
	return groups
}
