package tokens_test

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"testing"

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

// ending is a model whose completions end where lengths say.
type ending[P any] struct {
	tokens.Slotted[P]
	tokens.Model[P]
	lengths []int // of each sequence; the limit: it does not end
}

func (e ending[P]) Begin(ps []P, all []*tokens.Sequence, opt *tokens.GenerateOptions) (tokens.Step, error) {
	step, err := e.Model.Begin(ps, all, opt)
	return e.step(step), err
}

func (e ending[P]) BeginSlots(ps []P, all []*tokens.Sequence, places, slots int,
	opt *tokens.GenerateOptions) (tokens.SlotDecoding, error) {
	d, err := e.Slotted.BeginSlots(ps, all, places, slots, opt)
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
		for i, s := range live {
			if err == nil && len(s.IDs)+1 == e.lengths[s.Index] && e.lengths[s.Index] < benchLimit {
				row := torchx.FullLike(logits, -1e4, torchx.Float32, 1, logits.Shape()[1])
				row = torchx.ReplaceRows(torchx.Reshape(row, -1, 1), torchx.From([]int64{benchEOS}, 1), torchx.From([]float32{0}, 1, 1))
				logits = torchx.ReplaceRows(logits, torchx.From([]int64{int64(i)}, 1), torchx.Reshape(row, 1, -1))
			}
		}
		return logits, err
	}
}

// drawnLengths are log-normal, a tenth of them at the limit.
func drawnLengths(n int) []int {
	r := rng.New(2, "lengths")
	return list.Map(stat.Indices(n), func(int) int {
		return max(1, min(benchLimit, int(benchLimit*math.Exp(r.NormFloat64()-1.2816))))
	})
}

// run generates in parts of so many prompts at once (0: all), each in so many slots (0: none), and returns tokens and processor time.
func (e ending[P]) run(b *testing.B, ps []P, parts, slots int) (n int, seconds float64) {
	opt := tokens.GenerateOptions{SamplingOptions: tokens.DefaultSampling(benchLimit), Seed: 1, EOS: []int64{benchEOS}, Last: []int64{}}
	if slots > 0 {
		opt.Slots = &slots
	}
	before := golden.ProcessorTime(b)
	from := 0
	for part := range slices.Chunk(ps, cmp.Or(parts, len(ps))) {
		to := from + len(part)*benchSamples
		out, err := tokens.Generate[P](ending[P]{e.Slotted, e.Model, e.lengths[from:to]}, part, benchSamples, opt)
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
	return n, (golden.ProcessorTime(b) - before).Seconds()
}

// benchSlots takes turns: all at once, in parts with the memory of the slots, in slots. Ratios are of tokens a second, medians of turns.
func benchSlots[P any](b *testing.B, m interface {
	tokens.Model[P]
	tokens.Slotted[P]
}, ps []P) {
	b.Helper()
	for _, lengths := range []string{"drawn", "equal"} {
		for _, slots := range []int{4, 8, 16} {
			b.Run(lengths+"/"+map[int]string{4: "4", 8: "8", 16: "16"}[slots], func(b *testing.B) {
				e := ending[P]{m, m, drawnLengths(len(ps) * benchSamples)}
				if lengths == "equal" {
					e.lengths = slices.Repeat([]int{benchLimit / 3}, len(e.lengths))
				}
				var atOnce, parts, rates []float64
				for b.Loop() {
					rate := func(parts, slots int) float64 {
						n, seconds := e.run(b, ps, parts, slots)
						return float64(n) / seconds
					}
					all, part, in := rate(0, 0), rate(slots/benchSamples, 0), rate(0, slots)
					atOnce, parts, rates = append(atOnce, in/all), append(parts, in/part), append(rates, in)
				}
				b.ReportMetric(stat.Median(rates), "tokens/cpu-s")
				for name, x := range map[string][]float64{"over-all": atOnce, "over-parts": parts} {
					b.ReportMetric(stat.Median(x), name)
					b.ReportMetric(slices.Min(x), name+"-least")
					b.ReportMetric(slices.Max(x), name+"-most")
				}
			})
		}
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
	c := map[string]any{"architectures": []string{"Qwen2ForCausalLM"}, "model_type": "qwen2", "torch_dtype": "float32", "vocab_size": 32_000,
		"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 2,
		"rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": true, "max_position_embeddings": 32_768}
	if see {
		c["architectures"], c["model_type"] = []string{"Qwen2_5_VLForConditionalGeneration"}, "qwen2_5_vl"
		c["rope_scaling"] = map[string]any{"type": "mrope", "mrope_section": []int{8, 12, 12}}
		c["image_token_id"], c["video_token_id"], c["vision_start_token_id"], c["vision_end_token_id"] = 31_999, 31_996, 31_998, 31_997
		c["vision_config"] = map[string]any{"depth": 8, "hidden_size": 320, "intermediate_size": 640, "num_heads": 8, "out_hidden_size": 512,
			"window_size": 112, "fullatt_block_indexes": []int{3, 7}, "tokens_per_second": 2}
	}
	config, err := json.Marshal(c)
	if err != nil {
		b.Fatal(err)
	}
	o := vl.DefaultOptions()
	o.DType = "float32"
	m, err := vl.NewFrozen(o, config, "cpu", 1)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(m.Free)
	return m
}
