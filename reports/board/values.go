package board

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"fulcrum/internal/list"
	"fulcrum/reports/compare"
)

// valuesAnswer holds what runs have set some keys to.
type valuesAnswer struct {
	Version int64               `json:"version"` // of the last run that was read
	More    bool                `json:"more,omitempty"`
	Names   []string            `json:"names,omitempty"` // all keys of the newest run, where no version is known
	Values  map[string][]string `json:"values"`          // by run, as q names the keys; "" where it has none
}

// values reads keys (a list with commas) from the configurations of the runs that have changed since a version, for as long as an answer
// may take.
func (b *Board) values(q url.Values) *valuesAnswer {
	since := int64(within(q.Get("since"), 0, 0, 1<<62))
	keys := strings.Split(q.Get("keys"), ",")
	runs := b.list(since, 0).Runs
	slices.SortFunc(runs, func(x, y entry) int { return cmp.Compare(x.Version, y.Version) })
	a := &valuesAnswer{Version: since, Values: map[string][]string{}}
	if n := len(runs); since == 0 && n > 0 {
		a.Names = slices.Sorted(maps.Keys(settingsOf(runs[n-1].dir)))
	}
	for begin := time.Now(); len(runs) > 0 && q.Get("keys") != ""; runs = runs[1:] {
		if a.More = time.Since(begin) > readAtOnce; a.More {
			break
		}
		settings := settingsOf(runs[0].dir)
		a.Version, a.Values[runs[0].ID] = runs[0].Version, list.Map(keys, func(key string) string { return settings[key] })
	}
	return a
}

// allValues are the configurations of runs for a page of files: that of the first, and all where some differ.
func allValues(runs []entry) map[string]any {
	all := append(list.Map(runs, func(e entry) map[string]string { return settingsOf(e.dir) }), nil)
	return map[string]any{"ids": list.Map(runs, func(e entry) string { return e.ID }), "common": all[0],
		"differing": compare.Differing(all[:len(runs)])}
}
