package digest

import "slices"

// Sketch returns the 64 smallest hashes of a set's members. Of two sets together it tells the 64 smallest that either has, a random sample,
// so that sets which share one member in twenty of both share a hash 24 times in 25, and sets that share none never do (bottom-k sketches:
// Broder 1997).
func Sketch(members []string) []string {
	all := make([]string, len(members))
	for i, m := range members {
		all[i] = Of([]byte(m))[:12]
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(64, len(all))]
}
