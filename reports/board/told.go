package board

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"

	"fulcrum/reports/page"
	"fulcrum/reports/sweepreport"
)

// told is what a sweep's page has of the sweep's report.
type told struct {
	Version string            `json:"version"`
	Same    bool              `json:"same,omitempty"`    // nothing has changed since the version that was asked about
	HTML    string            `json:"html,omitempty"`    // its figures stand at [data-plot]
	Figures map[string]string `json:"figures,omitempty"` // SVG
}

// lastTold is the report that was read last: to read one takes all scores of its jobs.
type lastTold struct {
	mu sync.Mutex
	id string
	told
}

// reported answers with a sweep's report as its jobs stand now, unless q knows that (since).
func (b *Board) reported(id string, q url.Values) (*told, error) {
	s, opt, jobs, err := b.ledgerOf(id)
	if err != nil {
		return nil, err
	}
	ended := slices.Clone(jobs)
	for i, j := range ended { // what a job at work has taken so far changes no report
		if ended[i].Tail = nil; j.State == "running" {
			ended[i].Epochs, ended[i].Seconds = 0, 0
		}
	}
	options, err := json.Marshal(opt)
	version := idOf(fmt.Sprintf("%s %+v", options, ended))
	if version == q.Get("since") || err != nil {
		return &told{Version: version, Same: true}, err
	}
	last := &b.lastTold
	last.mu.Lock()
	defer last.mu.Unlock()
	if last.id != id || last.Version != version {
		markdown, figures := sweepreport.PageOf(s.dir, jobs, opt).Told()
		last.id, last.told = id, told{Version: version, Figures: map[string]string{}}
		last.HTML = page.Fragment(markdown, slices.Sorted(maps.Keys(figures))...)
		for name, svg := range figures {
			last.Figures[name] = string(svg)
		}
	}
	answer := last.told
	return &answer, nil
}
