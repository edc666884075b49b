package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
)

// TokenWorkload is a size of a token policy (selector/vl): random weights, text only.
type TokenWorkload struct {
	Name, Peer                              string // Peer: the peer program's name of it
	Hidden, MLP, Layers, Heads, KVHeads     int
	Vocab, Tokens                           int // tokens of a sequence
	Prompt, Generated, Group, Rank, Repeats int // Repeats: of a case in one process, after one that does not count
}

// TokenWorkloads returns the sizes in the order of the table.
func TokenWorkloads() []TokenWorkload {
	return []TokenWorkload{
		{Name: "qwen2_5_vl_tiny", Peer: "tiny", Hidden: 64, MLP: 128, Layers: 4, Heads: 4, KVHeads: 2, Vocab: 640, Tokens: 128,
			Prompt: 64, Generated: 64, Group: 4, Rank: 8, Repeats: 15},
		{Name: "qwen2_5_vl_mid", Peer: "mid", Hidden: 512, MLP: 1408, Layers: 8, Heads: 8, KVHeads: 2, Vocab: 32000, Tokens: 512,
			Prompt: 64, Generated: 24, Group: 4, Rank: 8, Repeats: 2},
	}
}

// TokenCase is what is measured of a size. The peer program has the same names.
type TokenCase struct {
	Name, What string
	Batch      int // sequences that are generated; 0: the unit is seconds a step, else tokens a second
}

// TokenCases returns all cases in the order of the table.
func TokenCases() []TokenCase {
	return []TokenCase{
		{Name: "forward", What: "log-probabilities of a sequence"},
		{Name: "backward", What: "and the gradient of all weights"},
		{Name: "lora", What: "and the gradient of adapters on q, k, v, o"},
		{Name: "generate1", What: "greedy decoding with a cache", Batch: 1},
		{Name: "generate4", What: "of four sequences", Batch: 4},
		{Name: "grpo", What: "a policy step on four completions of a prompt, each half a sequence"},
	}
}

// TokenSpec is what one process measures.
type TokenSpec struct {
	Workload string `json:"workload"`
	Case     string `json:"case"`
	Device   string `json:"device"`
	Threads  int    `json:"threads"`
	Repeats  int    `json:"repeats"`
}

// TokenMeasurement is what one process found, ours or the peer's: medians of seconds a step, or of tokens a second.
type TokenMeasurement struct {
	Value  float64 `json:"value"` // by wall time
	CPU    float64 `json:"cpu"`   // by CPU time of all threads
	PeakMB float64 `json:"peak_mb"`
}

// TokenLine is one row of the table: medians over the processes.
type TokenLine struct {
	Workload   string  `json:"workload"`
	Case       string  `json:"case"`
	Unit       string  `json:"unit"`
	Value      float64 `json:"value"`
	CPU        float64 `json:"cpu"`
	PeakMB     float64 `json:"peak_mb"`
	Peer       float64 `json:"peer_cpu,omitempty"`
	PeerPeakMB float64 `json:"peer_peak_mb,omitempty"`
	// how many times as fast as the peer by CPU time, median over pairs that ran one after the other
	Ratio      float64   `json:"ratio,omitempty"`
	RatioRange []float64 `json:"ratio_range,omitempty"`
}

// Rate turns the seconds of one repetition into the case's unit.
func (c TokenCase) Rate(w TokenWorkload, seconds float64) float64 {
	if c.Batch == 0 {
		return seconds
	}
	return float64(c.Batch*w.Generated) / seconds
}

func (c TokenCase) unit() string {
	if c.Batch == 0 {
		return "s"
	}
	return "tokens/s"
}

// tokenLines measures the cases of a size in turns with the peer: this machine's speed may drift.
func (o Options) tokenLines(ctx context.Context, w TokenWorkload, cases []TokenCase) ([]TokenLine, error) {
	ours, peer := make([][]TokenMeasurement, len(cases)), make([][]TokenMeasurement, len(cases))
	for repeat := range o.Repeats {
		for i, c := range cases {
			fmt.Fprintf(o.Progress, "%s %s %d/%d\n", w.Name, c.Name, repeat+1, o.Repeats)
			text, err := json.Marshal(TokenSpec{w.Name, c.Name, o.Device, o.Threads, w.Repeats})
			if err != nil {
				return nil, err
			}
			var m, p TokenMeasurement
			if err := ask(ctx, &m, func() bool { return m.Value > 0 }, append(slices.Clone(o.TokenProgram), string(text))...); err != nil {
				return nil, fmt.Errorf("%s: %w", c.Name, err)
			}
			ours[i] = append(ours[i], m)
			if o.TokenPeer == "" || o.Device != "cpu" {
				continue
			}
			if err := ask(ctx, &p, func() bool { return p.Value > 0 }, o.Python, o.TokenPeer, "--size", w.Peer, "--cases", c.Name,
				"--repeats", strconv.Itoa(w.Repeats), "--threads", strconv.Itoa(o.Threads)); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", c.Name, filepath.Base(o.TokenPeer), err)
			}
			peer[i] = append(peer[i], p)
		}
	}
	var lines []TokenLine
	for i, c := range cases {
		l := TokenLine{Workload: w.Name, Case: c.Name, Unit: c.unit(),
			Value: medianOf(ours[i], func(m TokenMeasurement) float64 { return m.Value }),
			CPU:   medianOf(ours[i], func(m TokenMeasurement) float64 { return m.CPU }), PeakMB: medianOf(ours[i],
				func(m TokenMeasurement) float64 { return m.PeakMB })}
		if len(peer[i]) > 0 {
			l.Peer = medianOf(peer[i], func(m TokenMeasurement) float64 { return m.CPU })
			l.PeerPeakMB = medianOf(peer[i], func(m TokenMeasurement) float64 { return m.PeakMB })
			pairs := make([]float64, len(peer[i]))
			for k, p := range peer[i] {
				pairs[k] = ours[i][k].CPU / p.CPU
				if c.Batch == 0 {
					pairs[k] = 1 / pairs[k]
				}
			}
			l.Ratio, l.RatioRange = stat.Median(pairs), []float64{slices.Min(pairs), slices.Max(pairs)}
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// printTokens prints the rows of the token policies as a table of their own.
func printTokens(out io.Writer, lines []TokenLine, format string) error {
	if len(lines) == 0 {
		return nil
	}
	cells := [][]string{{"workload", "case", "wall", "CPU", "unit", "peak MB", "peer CPU", "peer MB", "ratio"}}
	for _, l := range lines {
		peer, peak, ratio := "", "", ""
		if l.Peer > 0 {
			peer, peak, ratio = fmt.Sprintf("%.3g", l.Peer), fmt.Sprintf("%.0f", l.PeerPeakMB), fmt.Sprintf("%.2f (%.2f–%.2f)",
				l.Ratio, l.RatioRange[0], l.RatioRange[1])
		}
		cells = append(cells, []string{l.Workload, l.Case, fmt.Sprintf("%.3g", l.Value), fmt.Sprintf("%.3g", l.CPU), l.Unit,
			fmt.Sprintf("%.0f", l.PeakMB), peer, peak, ratio})
	}
	fmt.Fprintln(out)
	if err := writeCells(out, format, cells, 2); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, "Qwen2.5's decoder from random weights in float32, text only: "+caseTexts()+
		". peer: plain PyTorch as HuggingFace's eager code computes it, "+
		"in turns with ours; ratio: how many times as fast by CPU time (least–greatest pair).")
	return err
}

func caseTexts() string {
	texts := list.Map(TokenCases(), func(c TokenCase) string { return c.Name + " " + c.What })
	return strings.Join(texts, "; ")
}
