package board

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"fulcrum/internal/list"
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

// writtenValues are the configurations of all runs for a page of files: that of one, and by run what others have otherwise.
type writtenValues struct {
	Names  []string                     `json:"names"`
	Common map[string]string            `json:"common"`
	Own    map[string]map[string]string `json:"own"` // "" for a key that a run does not have
}

// allValues reads the configurations of runs.
func allValues(runs []entry) *writtenValues {
	a := &writtenValues{Names: []string{}, Own: map[string]map[string]string{}}
	for _, e := range runs {
		settings, own := settingsOf(e.dir), map[string]string{}
		if a.Common == nil {
			a.Common, a.Names = settings, slices.Sorted(maps.Keys(settings))
		}
		for key := range a.Common {
			if settings[key] != a.Common[key] {
				own[key] = settings[key]
			}
		}
		for key, value := range settings {
			if _, common := a.Common[key]; !common {
				own[key] = value
			}
		}
		a.Own[e.ID] = own
	}
	return a
}
