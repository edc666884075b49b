package record

import (
	"cmp"
	_ "embed"
	"slices"
	"strings"
	"sync"

	"fulcrum/internal/list"
)

// Metric is one field of a metrics.jsonl row. Its name is the same in code, plots, TensorBoard and docs.
type Metric struct {
	Name string
	Unit string // "" for counts and pure numbers; text, list or flag of what is no number
	Help string
}

func (m Metric) Numeric() bool { return !slices.Contains([]string{"text", "list", "flag"}, m.Unit) }

//go:embed metrics.tsv
var metricLines string // name, unit and help of a field, parted by tabs

// Metrics returns the known fields in the order in which rows carry them. Fields that are not listed
// follow in alphabetical order.
var Metrics = sync.OnceValue(func() []Metric {
	return list.Map(strings.Split(strings.TrimSpace(metricLines), "\n"), func(line string) Metric {
		f := strings.SplitN(line, "\t", 3)
		return Metric{Name: f[0], Unit: f[1], Help: f[2]}
	})
})

// MetricOrder sorts field names: known ones as in Metrics, then the others by name.
type MetricOrder map[string]int

func NewMetricOrder() MetricOrder {
	order := MetricOrder{}
	for i, m := range Metrics() {
		order[m.Name] = i
	}
	return order
}

func (o MetricOrder) Sort(names []string) {
	place := func(name string) int {
		if at, known := o[name]; known {
			return at
		}
		return len(o)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a, b)) })
}
