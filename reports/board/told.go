package board

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"

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

// reported answers with a sweep's report as its jobs stand now, unless q knows that (since): to read one takes all scores of its jobs.
func (b *Board) reported(id string, q url.Values) (*told, error) {
	s, opt, jobs, err := b.ledgerOf(id)
	if err != nil {
		return nil, err
	}
	ended := slices.Clone(jobs)
	for i, j := range ended { // what a job at work has taken so far changes no report
		if j.State == "running" {
			ended[i].Epochs, ended[i].Seconds = 0, 0
		}
	}
	options, err := json.Marshal(opt)
	version := idOf(fmt.Sprintf("%s %+v", options, ended))
	if version == q.Get("since") || err != nil {
		return &told{Version: version, Same: true}, err
	}
	markdown, figures := sweepreport.PageOf(s.dir, jobs, opt).Told()
	return &told{version, false, page.Fragment(markdown, slices.Sorted(maps.Keys(figures))...), figures}, nil
}
