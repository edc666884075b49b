package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/registry"
)

// ShapeWorkload is a model's shape and what it is asked to do: random frozen weights made on the device, adapters of the
// decoder's attention, prompts of random tokens. Those in bfloat16 are published ones, for GPUs.
type ShapeWorkload struct {
	Name                                string
	Hidden, MLP, Layers, Heads, KVHeads int
	Vocab, Rank                         int
	Vision                              *VisionShape // nil: text only
	DType                               string
	Whole                               string // how the moments are kept (optim.state) where all weights are trained; "": adapters are

	Sequences int // decoded at once, each of a prompt of its own
	Prompts   int // of a GRPO step
	Group     int // completions of each
	Micro     int // prompts in one forward and backward pass
	Prompt    int // tokens of text; an image adds its own
	New       int // tokens generated
}

// VisionShape is the shape of a vision tower and the side in pixels of the square image that every prompt has.
type VisionShape struct {
	Depth, Hidden, MLP, Heads, Window, Image int
	Full                                     []int // blocks that attend to the whole image
}

// ShapeWorkloads returns the shapes in the order of the table.
func ShapeWorkloads() []ShapeWorkload {
	return []ShapeWorkload{
		{Name: "qwen2_5_1_5b", Hidden: 1536, MLP: 8960, Layers: 28, Heads: 12, KVHeads: 2, Vocab: 151_936, Rank: 8, DType: "bfloat16",
			Sequences: 512, Prompts: 64, Group: 8, Micro: 8, Prompt: 256, New: 256},
		{Name: "qwen2_5_vl_3b", Hidden: 2048, MLP: 11_008, Layers: 36, Heads: 16, KVHeads: 2, Vocab: 151_936, Rank: 8, DType: "bfloat16",
			Vision:    &VisionShape{Depth: 32, Hidden: 1280, MLP: 3420, Heads: 16, Window: 112, Image: 504, Full: []int{7, 15, 23, 31}},
			Sequences: 256, Prompts: 32, Group: 8, Micro: 4, Prompt: 256, New: 256},
		{Name: "smollm2_135m", Hidden: 576, MLP: 1536, Layers: 30, Heads: 9, KVHeads: 3, Vocab: 49_152, Rank: 8, DType: "bfloat16",
			Sequences: 128, Prompts: 16, Group: 8, Micro: 16, Prompt: 64, New: 128},
		{Name: "qwen2_5_vl_mid", Hidden: 512, MLP: 1408, Layers: 8, Heads: 8, KVHeads: 2, Vocab: 32_000, Rank: 8, DType: "float32",
			Sequences: 4, Prompts: 1, Group: 4, Micro: 1, Prompt: 64, New: 32},
	}
}

// sizes are what --sizes may change, by name.
func (w *ShapeWorkload) sizes() map[string]*int {
	s := map[string]*int{"hidden": &w.Hidden, "mlp": &w.MLP, "layers": &w.Layers, "heads": &w.Heads, "kv_heads": &w.KVHeads,
		"vocab": &w.Vocab, "rank": &w.Rank, "sequences": &w.Sequences, "prompts": &w.Prompts, "group": &w.Group, "micro": &w.Micro,
		"prompt": &w.Prompt, "new": &w.New}
	if v := w.Vision; v != nil {
		maps.Copy(s, map[string]*int{"vision_depth": &v.Depth, "vision_hidden": &v.Hidden, "vision_mlp": &v.MLP,
			"vision_heads": &v.Heads, "image": &v.Image})
	}
	return s
}

// Resized returns the workload with other sizes; those of a vision tower are passed over where there is none.
func (w ShapeWorkload) Resized(sizes map[string]int) (ShapeWorkload, error) {
	all := ShapeWorkload{Vision: &VisionShape{}}
	known := slices.Sorted(maps.Keys(all.sizes()))
	if w.Vision != nil {
		w.Vision = new(*w.Vision)
	}
	fields := w.sizes()
	for name, n := range sizes {
		if !slices.Contains(known, name) {
			return w, fmt.Errorf("--sizes: %w", registry.Unknown("size", name, known))
		}
		if n < 1 {
			return w, fmt.Errorf("--sizes: %s=%d, want at least 1", name, n)
		}
		if field, ok := fields[name]; ok {
			*field = n
		}
	}
	if v := w.Vision; v != nil { // what is left of the tower still needs its last block to see the whole image
		v.Full = slices.DeleteFunc(slices.Clone(v.Full), func(i int) bool { return i >= v.Depth })
		if len(v.Full) == 0 {
			v.Full = []int{v.Depth - 1}
		}
	}
	return w, nil
}

// ShapeCase is what is measured of a shape.
type ShapeCase struct{ Name, What string }

// ShapeCases returns all cases in the order of the table.
func ShapeCases() []ShapeCase {
	return []ShapeCase{
		{"decode", "sampling of all sequences, prompts computed first"},
		{"update", "forward, backward and AdamW over the groups of one pass"},
		{"step", "a whole GRPO step: sampling, reference log-probabilities, update"},
	}
}

// ShapeSpec is what one process measures: ours, or the peer's, which gets the same JSON.
type ShapeSpec struct {
	Workload ShapeWorkload `json:"workload"`
	Case     string        `json:"case"`
	Device   string        `json:"device"`
	Threads  int           `json:"threads"`
	Repeats  int           `json:"repeats"` // after one that does not count
}

// ShapeMeasurement is what one process found. Times are seconds, medians over the repeats.
type ShapeMeasurement struct {
	Workload   string  `json:"workload"`
	Case       string  `json:"case"`
	Who        string  `json:"who"` // fulcrum, or the peer's name and version
	Device     string  `json:"device"`
	DType      string  `json:"dtype"`
	Whole      string  `json:"whole,omitempty"`
	Trained    int     `json:"trained,omitempty"` // numbers
	Seconds    float64 `json:"seconds"`
	Fastest    float64 `json:"fastest_seconds,omitempty"` // of the processes of a row
	Slowest    float64 `json:"slowest_seconds,omitempty"`
	Tokens     int     `json:"tokens"` // of completions: generated (decode, step), trained on (update)
	PerSecond  float64 `json:"tokens_per_second"`
	TFLOP      float64 `json:"tflop,omitempty"` // of the model, see FLOPs
	MFU        float64 `json:"mfu,omitempty"`   // of the device's dense bfloat16 peak
	Generation float64 `json:"generation_share,omitempty"`
	LogProbs   float64 `json:"logprob_share,omitempty"` // old and reference log-probabilities
	Update     float64 `json:"update_share,omitempty"`
	PeakGB     float64 `json:"peak_gb,omitempty"`     // of tensors on the device, 10⁹ bytes
	ReservedGB float64 `json:"reserved_gb,omitempty"` // taken from the driver for them
	Gap        float64 `json:"sampler_gap,omitempty"` // median |log π_sample − log π_train|
	First      float64 `json:"first_seconds"`         // the repetition that does not count: kernels are chosen, graphs captured
}

// FLOPs is what a model has to compute, counted from its shape. A row costs 2 a weight of the layers' matrices; attention 4·Hq·D a
// row and key that it sees (QKᵀ and PV); the head 2·H·V a scored row. backward adds, for frozen weights, the gradient of the input
// (as much again) and for attention twice the forward pass. Norms, rotations, the adapters (rank/H of a matrix) and the sampler are
// left out: they are none of the arithmetic that the peak counts. seen is the sum over rows of the keys that they see.
func (w ShapeWorkload) FLOPs(rows, seen, scored int, backward bool) float64 {
	d := w.Hidden / w.Heads
	matrices := float64(w.Layers) * float64(2*w.Hidden*w.Hidden+2*w.Hidden*w.KVHeads*d+3*w.Hidden*w.MLP)
	linear := 2*matrices*float64(rows) + 2*float64(w.Hidden)*float64(w.Vocab)*float64(scored)
	attention := 4 * float64(w.Hidden) * float64(w.Layers) * float64(seen)
	if backward {
		return 2*linear + 3*attention
	}
	return linear + attention
}

// Peak is a device's dense bfloat16 peak in FLOP/s by its name, from the vendor's data sheets; 0: not known.
func Peak(device string) float64 {
	for _, p := range []struct {
		name  string
		flops float64
	}{{"H100 PCIe", 756e12}, {"H100 NVL", 835e12}, {"H100", 989e12}, {"H200", 989e12}, {"GH200", 989e12}, {"A100", 312e12}, {"L40S", 362e12},
		{"B200", 2250e12}} {
		if strings.Contains(device, p.name) {
			return p.flops
		}
	}
	return 0
}

// shapeLines measures the cases of a shape in turns with the peer. With an error come the lines of before it.
func (o Options) shapeLines(ctx context.Context, w ShapeWorkload, cases []ShapeCase) (lines []ShapeMeasurement, err error) {
	if w, err = w.Resized(o.Sizes); err != nil {
		return nil, err
	}
	if w.Whole = o.Whole; w.Whole != "" {
		w.Name += "_" + w.Whole
	}
	for _, c := range cases {
		spec, err := json.Marshal(ShapeSpec{w, c.Name, o.Device, o.Threads, o.Passes})
		if err != nil {
			return nil, err
		}
		programs := [][]string{append(slices.Clone(o.ShapeProgram), string(spec))}
		if o.ShapePeer != "" {
			programs = append(programs, []string{o.Python, o.ShapePeer, string(spec)})
		}
		found := make([][]ShapeMeasurement, len(programs))
		end := func() {
			for _, ms := range found {
				if len(ms) > 0 {
					lines = append(lines, middle(ms))
				}
			}
		}
		for repeat := range o.Repeats {
			for i, program := range programs {
				fmt.Fprintf(o.Progress, "%s %s %d/%d%s\n", w.Name, c.Name, repeat+1, o.Repeats, []string{"", ", the peer"}[i])
				var m ShapeMeasurement
				if err := ask(ctx, &m, func() bool { return m.Seconds > 0 }, program...); err != nil {
					end()
					return lines, fmt.Errorf("%s: %w", c.Name, err)
				}
				found[i] = append(found[i], m)
			}
		}
		end()
	}
	return lines, nil
}

// middle returns the measurement with the median time (of two, the slower), and the range of times.
func middle(ms []ShapeMeasurement) ShapeMeasurement {
	seconds := medianOf(ms, func(m ShapeMeasurement) float64 { return m.Seconds })
	sorted := slices.SortedFunc(slices.Values(ms), func(a, b ShapeMeasurement) int { return int(1e9 * (a.Seconds - b.Seconds)) })
	at := slices.IndexFunc(sorted, func(m ShapeMeasurement) bool { return m.Seconds >= seconds })
	m := sorted[max(at, 0)]
	m.Fastest, m.Slowest = sorted[0].Seconds, sorted[len(sorted)-1].Seconds
	return m
}

// printShapes prints the rows of the published shapes as a table of their own.
func printShapes(out io.Writer, lines []ShapeMeasurement, format string) error {
	if len(lines) == 0 {
		return nil
	}
	cells := [][]string{{"shape", "case", "who", "tokens/s", "seconds", "MFU", "sampling", "log-probs", "update", "peak GB", "gap"}}
	percent := func(x float64) string {
		if x == 0 {
			return ""
		}
		return fmt.Sprintf("%.1f %%", 100*x)
	}
	for _, l := range lines {
		gap, peak := "", ""
		if l.Gap > 0 {
			gap = fmt.Sprintf("%.1e", l.Gap)
		}
		if l.PeakGB > 0 {
			peak = fmt.Sprintf("%.1f", l.PeakGB)
		}
		seconds := fmt.Sprintf("%.3g", l.Seconds)
		if l.Slowest > l.Fastest {
			seconds += fmt.Sprintf(" (%.3g–%.3g)", l.Fastest, l.Slowest)
		}
		cells = append(cells, []string{l.Workload, l.Case, l.Who, number(l.PerSecond), seconds, percent(l.MFU),
			percent(l.Generation), percent(l.LogProbs), percent(l.Update), peak, gap})
	}
	fmt.Fprintln(out)
	if err := writeCells(out, format, cells, 3); err != nil {
		return err
	}
	texts := list.Map(ShapeCases(), func(c ShapeCase) string { return c.Name + ": " + c.What })
	trained := "Random frozen weights in %s, adapters on q, k, v, o"
	if lines[0].Whole != "" {
		trained = "Random weights, computed with in %s, all trained in float32"
	}
	_, err := fmt.Fprintf(out, trained+"; %s. tokens: of completions. MFU: of the device's dense bfloat16 peak (%s).\n", lines[0].DType,
		strings.Join(texts, "; "), lines[0].Device)
	return err
}
