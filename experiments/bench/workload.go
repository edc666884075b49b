package bench

import (
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/registry"
)

// Workload is one named shape of training data and batch.
type Workload struct {
	Name     string
	Data     Dataset
	Batch    int // queries a step
	MaxSteps int // 0 = one pass over the data
	OnCPU    bool
	Once     bool // one process a row is enough: it takes minutes
	// Peer names the scenario of the peer program that computes the same, and PeerBatch its batch on own
	// pools; empty: there is none.
	Peer      string
	PeerBatch int
	Published Published
}

// Dataset is what the files of a workload hold. Everything is drawn from fixed seeds.
type Dataset struct {
	Name     string
	RL       bool // own pools (RL format); else one pool shared by all (legacy format)
	Queries  int
	Pool     int // K, candidates of a query
	Examples int // rows that candidates are drawn from; 0: from the rows of all queries
	Min, Max int // candidates recorded for a query, uniform
	Shots    int
	Dim      int
}

// Published are queries per CPU second that were measured elsewhere, by phase ("rce", "grpo"): on one
// core with libtorch 1.13.1 and OpenBLAS.
type Published struct {
	Reference map[string]float64 // the Python reference
	Peer      map[string]float64 // hand-optimised PyTorch, dropout 0
}

// Workloads returns every workload in the order of the table.
func Workloads() []Workload {
	legacy := Dataset{Name: "legacy_k64", Queries: 800, Pool: 64, Examples: 64, Min: 5, Max: 5, Shots: 2, Dim: 768}
	big := Dataset{Name: "legacy_k1500", Queries: 96, Pool: 1500, Examples: 1500, Min: 5, Max: 5, Shots: 2, Dim: 768}
	rl := Dataset{Name: "rl_k64", RL: true, Queries: 800, Pool: 64, Examples: 2000, Min: 5, Max: 16, Shots: 2, Dim: 768}
	vqa := Dataset{Name: "vqav2_100k", RL: true, Queries: 100_000, Pool: 64, Min: 5, Max: 5, Shots: 2, Dim: 768}
	shared, own := legacy, rl
	shared.Name, shared.Queries = "legacy_k64_large", 25_600
	own.Name, own.Queries, own.Min, own.Max = "own_k64_large", 25_600, 5, 5
	both := func(rce, grpo float64) map[string]float64 { return map[string]float64{"rce": rce, "grpo": grpo} }
	return []Workload{
		{Name: "legacy_k64_b32", Data: legacy, Batch: 32, OnCPU: true, Peer: "legacy_k64_b32",
			Published: Published{both(115, 118), both(3477, 3147)}},
		{Name: "legacy_k1500_b32", Data: big, Batch: 32, OnCPU: true, Peer: "legacy_k1500_b32",
			Published: Published{both(2.3, 2.9), both(854, 858)}},
		{Name: "rl_k64_b1", Data: rl, Batch: 1, OnCPU: true, Peer: "rl_k64_b1", PeerBatch: 1,
			Published: Published{both(58, 97), nil}},
		{Name: "rl_k64_b32", Data: rl, Batch: 32, OnCPU: true, Peer: "rl_k64_b1", PeerBatch: 32,
			Published: Published{nil, both(973, 807)}},
		{Name: "vqav2_100k", Data: vqa, Batch: 32, MaxSteps: 100, OnCPU: true, Once: true},
		{Name: "legacy_k64_b256", Data: shared, Batch: 256},
		{Name: "own_k64_b256", Data: own, Batch: 256},
	}
}

// choose returns the workloads of these names, or those that suit the device when there are none.
func choose(names []string, cuda bool) (training []Workload, shapes []ShapeWorkload, err error) {
	of := &choice{kind: "workload", names: names}
	training = list.Filter(Workloads(), func(w Workload) bool { return of.takes(w.Name, w.OnCPU || cuda) })
	shapes = list.Filter(ShapeWorkloads(), func(w ShapeWorkload) bool { return of.takes(w.Name, cuda == (w.DType == "bfloat16")) })
	return training, shapes, of.unknown()
}

// choice is what somebody has chosen by names; none: what fits.
type choice struct {
	kind         string
	names, known []string
}

func (c *choice) takes(name string, fits bool) bool {
	c.known = append(c.known, name)
	return slices.Contains(c.names, name) || len(c.names) == 0 && fits
}

// unknown refuses a name that stands for nothing.
func (c *choice) unknown() error {
	for _, name := range c.names {
		if !slices.Contains(c.known, name) {
			return registry.Unknown(c.kind, name, c.known)
		}
	}
	return nil
}

// variant is a phase with the KL estimator of its penalty.
type variant struct{ name, phase, estimator string }

// variants returns what is measured of each workload: grpo's like-for-like estimator is k3.
func variants() []variant {
	return []variant{{"rce", "rce", ""}, {"grpo", "grpo", "k3"}, {"grpo-exact", "grpo", "exact"}}
}

// chooseVariants returns what is measured of the training workloads and of the published shapes; no names: everything.
func chooseVariants(names []string) (training []variant, shapes []ShapeCase, err error) {
	of := &choice{kind: "phase", names: names}
	training = list.Filter(variants(), func(v variant) bool { return of.takes(v.name, true) })
	shapes = list.Filter(ShapeCases(), func(c ShapeCase) bool { return of.takes("shape-"+c.Name, true) })
	return training, shapes, of.unknown()
}
