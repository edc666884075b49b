package sweepreport

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/program"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/sweeps"
)

// enoughSeeds is from how many seeds on a setting is not told to take more.
const enoughSeeds = 5

// writeNext says what to try next: the failed jobs, more seeds of the best setting, values beyond an edge at which the best one lies.
func (v *View) writeNext(d *page.Document) {
	var items []string
	if n := v.Count(func(j sweeps.Job) bool { return j.State == record.StateFailed }); n > 0 {
		items = append(items, fmt.Sprintf("`run resume SWEEP_FOLDER` runs %s again (Failures).", page.Plural(n, "failed job")))
	}
	best := v.Leading()
	if v.Opt.Study == nil && best != nil && len(v.Opt.Objectives) == 1 {
		for _, s := range v.Settings[:1] {
			if n := len(s.Jobs); n < enoughSeeds {
				from := n
				for _, j := range s.Jobs {
					if seed, err := strconv.Atoi(j.Params["seed"]); err == nil {
						from = max(from, seed+1)
					}
				}
				flags := list.Filter(v.Opt.Command, func(word string) bool { return strings.HasPrefix(word, "--config-") })
				common := list.Filter(v.Common, func(o string) bool {
					key, _, _ := strings.Cut(o, "=")
					return !sweeps.IsSeed(key)
				})
				words := append(slices.Concat([]string{"-m"}, flags, common, s.Overrides), fmt.Sprintf("seed=range(%d,%d)", from, from+enoughSeeds-n))
				items = append(items, fmt.Sprintf("More seeds of the best setting, which has %d%s: %s.", n,
					page.Verb(len(v.Settings), "", " and, as the best of several, some luck"), program.Command(words...)))
			}
		}
		for _, dim := range v.Dims {
			axis := newSweepAxis(dim, v.ByNumber)
			at, ok := axis.positions[best.Params[dim.Key]]
			if sweeps.IsSeed(dim.Key) || !axis.numeric || !ok || axis.low == axis.high || at != axis.low && at != axis.high {
				continue
			}
			side := "above"
			if at == axis.low {
				side = "below"
			}
			items = append(items, fmt.Sprintf("%s %s %s: the best one lies at the edge of the values that were tried.",
				page.InlineCode(dim.Key), side, page.Plain(dim.Cell(*best))))
		}
	}
	if len(items) > 0 {
		d.Heading(2, "What to try next")
		d.List(items...)
	}
}
