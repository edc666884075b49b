package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/stat"
)

// table collects the rows and prints them: what --format=json prints and --from reads.
type table struct {
	Machine  string             `json:"machine"`
	Libtorch string             `json:"libtorch,omitempty"`
	Device   string             `json:"device"`
	Threads  int                `json:"threads"`
	Repeats  int                `json:"repeats"`
	Rows     []Line             `json:"rows"`
	Shapes   []ShapeMeasurement `json:"shapes"`
}

// Line is one row of the table: medians over the repeats.
type Line struct {
	Workload   string  `json:"workload"`
	Phase      string  `json:"phase"`
	Batch      int     `json:"batch"`
	Pool       int     `json:"pool"`
	Queries    int     `json:"queries"`
	Steps      int     `json:"steps"`
	PerSecond  float64 `json:"queries_per_second"`
	PerCPU     float64 `json:"queries_per_cpu_second"`
	StepMS     float64 `json:"step_ms"`
	LoadSecond float64 `json:"load_seconds"`
	LoadedMB   float64 `json:"loaded_mb"`
	BeginMS    float64 `json:"begin_ms"`
	PeakMB     float64 `json:"peak_mb"`
	FirstLoss  float64 `json:"first_loss"`
	LastLoss   float64 `json:"last_loss"`

	PeerPerCPU float64   `json:"peer_queries_per_cpu_second,omitempty"` // measured here, or published
	PeerPeakMB float64   `json:"peer_peak_mb,omitempty"`
	PeerHere   bool      `json:"peer_measured_here"`
	Ratio      float64   `json:"ratio,omitempty"`       // ours / peer, median over pairs that ran one after the other
	RatioRange []float64 `json:"ratio_range,omitempty"` // least and greatest pair
	Reference  float64   `json:"reference_queries_per_cpu_second,omitempty"`
	ExactCost  float64   `json:"exact_cost,omitempty"` // CPU time of a pass with the exact KL over one with k3
}

func (t *table) add(w Workload, rows []row) {
	var k3 Line
	for _, r := range rows {
		of := func(f func(Measurement) float64) float64 { return medianOf(r.Ours, f) }
		m := r.Ours[0]
		l := Line{Workload: w.Name, Phase: r.name, Batch: m.Batch, Pool: m.Pool, Queries: m.Queries, Steps: m.Steps,
			PerSecond: of(Measurement.PerSecond), PerCPU: of(Measurement.PerCPU),
			StepMS: of(func(m Measurement) float64 { return m.StepMS }), LoadSecond: of(func(m Measurement) float64 { return m.Load }),
			LoadedMB: of(func(m Measurement) float64 { return m.LoadedMB }), BeginMS: of(func(m Measurement) float64 { return 1e3 * m.Begin }),
			PeakMB: of(func(m Measurement) float64 { return m.PeakMB }), FirstLoss: m.Losses[0], LastLoss: m.Losses[len(m.Losses)-1],
			PeerPerCPU: w.Published.Peer[r.phase], Reference: w.Published.Reference[r.phase]}
		if len(t.Rows) == 0 {
			t.Libtorch, t.Device, t.Threads = m.Libtorch, m.Device, m.Threads
		}
		if len(r.Peer) > 0 {
			l.PeerHere = true
			l.PeerPerCPU = medianOf(r.Peer, func(p PeerMeasurement) float64 { return p.PerCPU })
			l.PeerPeakMB = medianOf(r.Peer, func(p PeerMeasurement) float64 { return p.PeakMB })
			pairs := list.Make(len(r.Peer), func(i int) float64 { return r.Ours[i].PerCPU() / r.Peer[i].PerCPU })
			l.Ratio, l.RatioRange = stat.Median(pairs), []float64{slices.Min(pairs), slices.Max(pairs)}
		}
		switch r.name {
		case "grpo":
			k3 = l
		case "grpo-exact":
			if k3.PerCPU > 0 {
				l.ExactCost = k3.PerCPU / l.PerCPU
			}
		}
		t.Rows = append(t.Rows, l)
	}
}

// Reprint prints the tables of a report that Run has printed as JSON: of another machine, perhaps.
func Reprint(raw []byte, format string, out io.Writer) error {
	var t table
	if err := jsonwords.Unmarshal(raw, &t); err != nil {
		return err
	}
	if len(t.Rows)+len(t.Shapes) == 0 {
		return fmt.Errorf("no rows: want what `bench workloads --format json` has printed")
	}
	return t.print(out, format)
}

func (t *table) print(out io.Writer, format string) error {
	if format == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", " ")
		return e.Encode(t)
	}
	if err := t.printTraining(out, format); err != nil {
		return err
	}
	return printShapes(out, t.Shapes, format)
}

// printTraining prints the rows of the training workloads, or only what was asked for where there are none.
func (t *table) printTraining(out io.Writer, format string) error {
	if len(t.Rows) == 0 {
		fmt.Fprintf(out, "%s; device %s, threads %d, %d processes a row\n", t.Machine, t.Device, t.Threads, t.Repeats)
		return nil
	}
	fmt.Fprintln(out, t.heading())
	if format == "markdown" {
		fmt.Fprintln(out)
	}
	if err := writeCells(out, format, t.cells(), 2); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, t.footnote())
	return err
}

// writeCells writes rows of cells, the first one the header, as a table whose first columns hold names and the others numbers.
func writeCells(out io.Writer, format string, cells [][]string, names int) error {
	if format == "markdown" {
		for i, row := range cells {
			fmt.Fprintf(out, "| %s |\n", strings.Join(row, " | "))
			if i == 0 {
				fmt.Fprintln(out, strings.Repeat("|---", names)+"|"+strings.Repeat("--:|", len(row)-names))
			}
		}
		_, err := fmt.Fprintln(out)
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range cells {
		fmt.Fprintln(w, strings.Join(row, "\t")+"\t")
	}
	return w.Flush()
}

func (t *table) heading() string {
	threads := "1 thread"
	if t.Threads != 1 {
		threads = fmt.Sprint(t.Threads, " threads")
	}
	times := "one process a row"
	if t.Repeats > 1 {
		times = fmt.Sprintf("medians of %d processes", t.Repeats)
	}
	return fmt.Sprintf("%s; libtorch %s, device %s, %s; %s", t.Machine, t.Libtorch, t.Device, threads, times)
}

func (t *table) footnote() string {
	text := "CPU s: of all threads of the process. load: reading the files; begin: preparing the phase (optimizer, frozen " +
		"policies); peak: of the whole process. " +
		"reference, peer: queries per CPU second of the Python reference and of hand-optimised PyTorch; in brackets as published, " +
		"on one core of another machine (libtorch 1.13.1, OpenBLAS)."
	if slices.ContainsFunc(t.Rows, func(l Line) bool { return l.PeerHere }) {
		text += " The peer without brackets ran in turns with ours; ratio: ours / peer (least–greatest pair)."
	}
	return text
}

// cells returns the header and the rows as text.
func (t *table) cells() [][]string {
	cells := [][]string{{"workload", "phase", "batch", "K", "queries/s", "queries/CPU s", "ms/step", "load s", "begin ms",
		"peak MB", "reference", "peer", "ratio", "exact/k3"}}
	for _, l := range t.Rows {
		reference, peer, ratio, exact := "", "", "", ""
		if l.Reference > 0 && l.Phase != "grpo-exact" {
			reference = "(" + number(l.Reference) + ")"
		}
		if l.PeerPerCPU > 0 {
			peer = number(l.PeerPerCPU)
			if !l.PeerHere {
				peer = "(" + peer + ")"
			}
		}
		if l.PeerHere {
			ratio = fmt.Sprintf("%.2f (%.2f–%.2f)", l.Ratio, l.RatioRange[0], l.RatioRange[1])
		}
		if l.ExactCost > 0 {
			exact = fmt.Sprintf("%.2f", l.ExactCost)
		}
		cells = append(cells, []string{l.Workload, l.Phase, fmt.Sprint(l.Batch), fmt.Sprint(l.Pool), number(l.PerSecond), number(l.PerCPU),
			fmt.Sprintf("%.2f", l.StepMS), fmt.Sprintf("%.2f", l.LoadSecond), fmt.Sprintf("%.1f", l.BeginMS), fmt.Sprintf("%.0f",
				l.PeakMB), reference, peer, ratio, exact})
	}
	return cells
}

// number shows a rate with at least three digits.
func number(x float64) string {
	if x < 100 {
		return fmt.Sprintf("%.3g", x)
	}
	return fmt.Sprintf("%.0f", x)
}

func medianOf[T any](xs []T, f func(T) float64) float64 {
	return stat.Median(list.Map(xs, f))
}
