package tokens_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"fulcrum/internal/list"
	"fulcrum/internal/rng"
	"fulcrum/internal/stat"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector/seq2seq"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl"
	"fulcrum/selector/vl/pixels"
	"fulcrum/selector/vl/processor"
)

const (
	benchSamples = 4
	benchLimit   = 64 // tokens of the longest completion
	benchEOS     = 5
)

// slotModel is what can decode in every way.
type slotModel[P any] interface {
	tokens.Model[P]
	tokens.Slotted[P]
	tokens.Resident[P]
}

// ending is a model whose completions end where lengths say.
type ending[P any] struct {
	slotModel[P]
	samples, limit int
	lengths        []int         // of each sequence; the limit: it does not end
	only           torchx.Tensor // [1, V] logits of the token that ends one
}

// newEnding returns one without lengths. What it makes belongs to the caller's scope.
func newEnding[P any](m slotModel[P], samples, limit int) ending[P] {
	row := slices.Repeat([]float32{-1e4}, m.Tensors().Vocab)
	row[benchEOS] = 0
	return ending[P]{slotModel: m, samples: samples, limit: limit, only: m.Tensors().OnDevice(torchx.From(row, 1, len(row)))}
}

func (e ending[P]) Begin(ps []P, all []*tokens.Sequence, opt *tokens.GenerateOptions) (tokens.Step, error) {
	step, err := e.slotModel.Begin(ps, all, opt)
	return e.step(step), err
}

func (e ending[P]) BeginSlots(ps []P, all []*tokens.Sequence, places, slots int,
	opt *tokens.GenerateOptions) (tokens.SlotDecoding, error) {
	d, err := e.slotModel.BeginSlots(ps, all, places, slots, opt)
	return endingSlots[P]{d, e}, err
}

type endingSlots[P any] struct {
	tokens.SlotDecoding
	of ending[P]
}

func (d endingSlots[P]) Step(live []*tokens.Sequence) (torchx.Tensor, error) {
	return d.of.step(d.SlotDecoding.Step)(live)
}

// step makes the last token of a completion certain.
func (e ending[P]) step(of tokens.Step) tokens.Step {
	return func(live []*tokens.Sequence) (torchx.Tensor, error) {
		logits, err := of(live)
		var rows []int64
		for i, s := range live {
			if n := e.lengths[s.Index]; n < e.limit && len(s.IDs)+1 == n {
				rows = append(rows, int64(i))
			}
		}
		if err == nil && len(rows) > 0 {
			last := torchx.Contiguous(torchx.Expand(e.only, len(rows), e.only.Shape()[1]))
			logits = torchx.ReplaceRows(logits.To(torchx.Float32), e.Tensors().Int64s(rows), last)
		}
		return logits, err
	}
}

func (e ending[P]) BeginResident(ps []P, all []*tokens.Sequence, opt *tokens.GenerateOptions) (tokens.Decoding, error) {
	d, err := e.slotModel.BeginResident(ps, all, opt)
	left := list.Map(all, func(s *tokens.Sequence) int64 {
		if e.lengths[s.Index] == e.limit {
			return 0 // it has gone past its end
		}
		return int64(e.lengths[s.Index])
	})
	return &endingResident[P]{d, e, e.Tensors().Int64s(left), len(left)}, err
}

// endingResident ends completions by one pass over the logits, which can be recorded.
type endingResident[P any] struct {
	tokens.Decoding
	of   ending[P]
	left torchx.Tensor // [rows] tokens up to the end
	rows int
}

func (d *endingResident[P]) First() torchx.Tensor { return d.end(d.Decoding.First()) }

func (d *endingResident[P]) Next(ids torchx.Tensor) torchx.Tensor { return d.end(d.Decoding.Next(ids)) }

func (d *endingResident[P]) end(logits torchx.Tensor) torchx.Tensor {
	torchx.Advance(d.left, -1)
	return torchx.Where(torchx.Reshape(torchx.Compare(d.left, "eq", 0), d.rows, 1), d.of.only, logits)
}

func (d *endingResident[P]) Take(rows []int) {
	d.of.Tensors().Take(&d.left, d.rows, list.Convert[int64](rows))
	d.rows = len(rows)
	d.Decoding.Take(rows)
}

var _ tokens.SlottedResident[*processor.Prompt] = ending[*processor.Prompt]{}

func (e ending[P]) BeginResidentSlots(ps []P, all []*tokens.Sequence, places, slots int,
	opt *tokens.GenerateOptions) (tokens.SlotsOnDevice, error) {
	m, ok := e.slotModel.(tokens.SlottedResident[P])
	if !ok {
		return nil, fmt.Errorf("%T has no slots on the device", e.slotModel)
	}
	d, err := m.BeginResidentSlots(ps, all, places, slots, opt)
	left := slices.Repeat([]int64{-1}, slots)
	return &endingOnDevice[P]{&endingResident[P]{d, e, e.Tensors().Int64s(left), slots}, d}, err
}

// endingOnDevice is endingResident in slots: left counts on from a sequence's second token.
type endingOnDevice[P any] struct {
	*endingResident[P]
	in tokens.SlotsOnDevice
}

func (d *endingOnDevice[P]) Fill(prompt, place int) error { return d.in.Fill(prompt, place) }

func (d *endingOnDevice[P]) Put(rows []int, of []*tokens.Sequence) {
	defer torchx.Scope()()
	d.in.Put(rows, of)
	w, left := d.of.Tensors(), list.Map(of, func(s *tokens.Sequence) int64 { return d.of.after(s) })
	torchx.WriteRowsAt(d.left, w.Int64s(list.Convert[int64](rows)), w.Int64s(left))
}

func (d *endingOnDevice[P]) FirstOf(of []*tokens.Sequence) torchx.Tensor {
	after := d.of.Tensors().Int64s(list.Map(of, func(s *tokens.Sequence) int64 { return d.of.after(s) }))
	return torchx.Where(torchx.Reshape(torchx.Compare(after, "eq", 0), len(of), 1), d.of.only, d.in.FirstOf(of))
}

// after is how many tokens follow a sequence's first one; -1: it does not end, or nobody waits for it.
func (e ending[P]) after(s *tokens.Sequence) int64 {
	if s.Index >= len(e.lengths) || e.lengths[s.Index] == e.limit {
		return -1
	}
	return int64(e.lengths[s.Index]) - 1
}

// TestEndsOnDevice: completions in slots on the device have the lengths that the benchmark wants.
func TestEndsOnDevice(t *testing.T) {
	defer torchx.Scope()()
	ps, slots := asked(6, false), 5
	e := newEnding[*processor.Prompt](vlModel(t), 4, 24)
	e.lengths = drawnLengths(24, 24)
	out, err := tokens.Generate[*processor.Prompt](e, ps, 4, tokens.GenerateOptions{SamplingOptions: func() tokens.SamplingOptions {
		how := tokens.DefaultSampling(24)
		how.Slots = &slots
		return how
	}(), Seed: 1, EOS: []int64{benchEOS}, Last: []int64{}, OnDevice: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range e.lengths {
		if got := out[i/4][i%4].IDs; n < 24 && (len(got) > n || got[len(got)-1] != benchEOS) || len(got) > 24 {
			t.Errorf("sequence %d: %v, want at most %d tokens", i, got, n)
		}
	}
}

// drawnLengths are log-normal, a tenth of them at the limit.
func drawnLengths(n, limit int) []int {
	r := rng.New(2, "lengths")
	return list.Map(stat.Indices(n), func(int) int {
		return max(1, min(limit, int(float64(limit)*math.Exp(r.NormFloat64()-1.2816))))
	})
}

// run generates in parts of so many prompts at once (0: all), each in so many slots (0: none), and returns tokens and seconds: of the
// processor on a CPU, which other work does not stretch, and of the clock on a GPU.
func (e ending[P]) run(b *testing.B, ps []P, parts, slots int) (n int, seconds float64) {
	opt := tokens.GenerateOptions{SamplingOptions: tokens.DefaultSampling(e.limit), Seed: 1, EOS: []int64{benchEOS}, Last: []int64{}}
	if slots > 0 {
		opt.Slots = &slots
	}
	torchx.Synchronize()
	before, start := golden.ProcessorTime(b), time.Now()
	from := 0
	for part := range slices.Chunk(ps, cmp.Or(parts, len(ps))) {
		to := from + len(part)*e.samples
		of := e
		of.lengths = e.lengths[from:to]
		out, err := tokens.Generate[P](of, part, e.samples, opt)
		if err != nil {
			b.Fatal(err)
		}
		from = to
		for _, group := range out {
			for _, c := range group {
				n += len(c.IDs)
			}
		}
	}
	torchx.Synchronize()
	if e.only.OnCUDA() {
		return n, time.Since(start).Seconds()
	}
	return n, (golden.ProcessorTime(b) - before).Seconds()
}

// turns takes turns: all at once, in parts with the memory of the slots, in slots. Ratios are of tokens a second, medians of turns.
func (e ending[P]) turns(b *testing.B, ps []P, slots int, unit string) {
	var atOnce, parts, rates []float64
	for b.Loop() {
		rate := func(parts, slots int) float64 {
			n, seconds := e.run(b, ps, parts, slots)
			if e.only.OnCUDA() {
				fmt.Fprintf(os.Stderr, "%d prompts at once, %d slots (0: all): %d tokens in %.2f s\n", cmp.Or(parts, len(ps)), slots, n, seconds)
			}
			return float64(n) / seconds
		}
		all, part, in := rate(0, 0), rate(slots/e.samples, 0), rate(0, slots)
		atOnce, parts, rates = append(atOnce, in/all), append(parts, in/part), append(rates, in)
	}
	b.ReportMetric(stat.Median(rates), unit)
	for name, x := range map[string][]float64{"over-all": atOnce, "over-parts": parts} {
		b.ReportMetric(stat.Median(x), name)
		b.ReportMetric(slices.Min(x), name+"-least")
		b.ReportMetric(slices.Max(x), name+"-most")
	}
}

func benchSlots[P any](b *testing.B, m slotModel[P], ps []P) {
	b.Helper()
	for _, lengths := range []string{"drawn", "equal"} {
		for _, slots := range []int{4, 8, 16} {
			b.Run(fmt.Sprintf("%s/%d", lengths, slots), func(b *testing.B) {
				defer torchx.Scope()()
				e := newEnding(m, benchSamples, benchLimit)
				e.lengths = drawnLengths(len(ps)*benchSamples, benchLimit)
				if lengths == "equal" {
					e.lengths = slices.Repeat([]int{benchLimit / 3}, len(e.lengths))
				}
				e.turns(b, ps, slots, "tokens/cpu-s")
			})
		}
	}
}

// BenchmarkSlotsOfAShape has 8 completions of log-normal lengths of up to 256 tokens of each of 64 prompts of 256, by Qwen2.5-1.5B's shape
// on CUDA: slots beside what a run without slots does there, both with recorded steps. Elsewhere a tiny shape.
//
//	go test -run '^$' -bench SlotsOfAShape -benchtime 2x ./selector/tokens
func BenchmarkSlotsOfAShape(b *testing.B) {
	device, sizes := "cpu", map[string]any{"torch_dtype": "float32", "vocab_size": 640, "hidden_size": 64, "intermediate_size": 96,
		"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
	prompts, samples, text, limit, slots := 6, 4, 8, 24, []int{8, 12}
	if torchx.CUDAAvailable() {
		device, sizes = "cuda:0", map[string]any{"torch_dtype": "bfloat16", "vocab_size": 151_936, "hidden_size": 1536,
			"intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2}
		prompts, samples, text, limit, slots = 64, 8, 256, 256, []int{64, 128}
	}
	m := shapedDecoder(b, sizes, device)
	r := rng.New(1, "prompts")
	ps := list.Map(stat.Indices(prompts), func(int) *processor.Prompt {
		return &processor.Prompt{IDs: list.Map(stat.Indices(text), func(int) int64 { return 6 + r.Int64N(600) })}
	})
	defer torchx.Scope()()
	e := newEnding(m, samples, limit)
	e.lengths = drawnLengths(prompts*samples, limit)
	warm := e
	warm.lengths = slices.Repeat([]int{16}, len(e.lengths)) // kernels are compiled
	warm.run(b, ps[:2], 0, 0)
	warm.run(b, ps[:2], 0, samples)
	for _, n := range slots {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			e.turns(b, ps, n, map[bool]string{true: "tokens/s", false: "tokens/cpu-s"}[device != "cpu"])
		})
	}
}

// BenchmarkSlots has 64 completions of log-normal lengths of 16 prompts of 64 tokens: the decoder of bench's qwen2_5_vl_mid without and
// with pictures, and a T5 of its width.
//
//	go test -run '^$' -bench Slots/text -benchtime 3x ./selector/tokens
func BenchmarkSlots(b *testing.B) {
	texts := list.Map(drawnIDs(16, 1, 31_990), func(ids []int64) *processor.Prompt {
		return &processor.Prompt{IDs: slices.Repeat(ids, 64)}
	})
	b.Run("text", func(b *testing.B) { benchSlots[*processor.Prompt](b, midDecoder(b, false), texts) })
	b.Run("pictures", func(b *testing.B) {
		const cells, patches = 36, 144
		seen := list.Map(stat.Indices(len(texts)), func(i int) *processor.Prompt {
			r := rng.New(int64(i), "picture")
			data := list.Map(make([]float32, patches*1176), func(float32) float32 { return float32(r.NormFloat64()) })
			return &processor.Prompt{IDs: slices.Concat([]int64{31_998}, slices.Repeat([]int64{31_999}, cells), []int64{31_997}, texts[i].IDs),
				Images: []pixels.Patches{{Data: data, Rows: patches, Grid: [3]int{1, 12, 12}}}}
		})
		benchSlots[*processor.Prompt](b, midDecoder(b, true), seen)
	})
	b.Run("t5", func(b *testing.B) {
		o := seq2seq.DefaultOptions()
		o.Scratch = seq2seq.ScratchOptions{Model: "t5", Width: 512, FF: 2048, Layers: 6, DecoderLayers: 6, Heads: 8, Positions: 1024}
		m, err := seq2seq.New(o, seq2seq.Vocabulary{Size: 32_000, Pad: 0, EOS: 1}, "cpu", 5)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(m.Free)
		benchSlots[[]int64](b, m, list.Map(texts, func(p *processor.Prompt) []int64 { return p.IDs }))
	})
}

// midDecoder is a Qwen2 or Qwen2.5-VL of the sizes of bench's qwen2_5_vl_mid.
func midDecoder(b *testing.B, see bool) *vl.Model {
	c := map[string]any{"torch_dtype": "float32", "vocab_size": 32_000, "hidden_size": 512, "intermediate_size": 1408,
		"num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 2}
	if see {
		c["architectures"], c["model_type"] = []string{"Qwen2_5_VLForConditionalGeneration"}, "qwen2_5_vl"
		c["rope_scaling"] = map[string]any{"type": "mrope", "mrope_section": []int{8, 12, 12}}
		c["image_token_id"], c["video_token_id"], c["vision_start_token_id"], c["vision_end_token_id"] = 31_999, 31_996, 31_998, 31_997
		c["vision_config"] = map[string]any{"depth": 8, "hidden_size": 320, "intermediate_size": 640, "num_heads": 8, "out_hidden_size": 512,
			"window_size": 112, "fullatt_block_indexes": []int{3, 7}, "tokens_per_second": 2}
	}
	return shapedDecoder(b, c, "cpu")
}

// shapedDecoder is a model with random weights; sizes go over those of a small text model.
func shapedDecoder(b *testing.B, sizes map[string]any, device string) *vl.Model {
	c := map[string]any{"architectures": []string{"Qwen2ForCausalLM"}, "model_type": "qwen2", "rms_norm_eps": 1e-6, "rope_theta": 1e6,
		"tie_word_embeddings": true, "max_position_embeddings": 32_768}
	maps.Copy(c, sizes)
	config, err := json.Marshal(c)
	if err != nil {
		b.Fatal(err)
	}
	o := vl.DefaultOptions()
	o.DType = c["torch_dtype"].(string)
	m, err := vl.NewFrozen(o, config, device, 1)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(m.Free)
	return m
}
