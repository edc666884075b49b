package torchx

import (
	"fmt"
	"math"
	"testing"

	"golang.org/x/sys/unix"

	"fulcrum/internal/rng"
)

// decoder is Qwen2.5's text decoder from this package's operations: what they cost together.
type decoder struct {
	hidden, mlp, layers, heads, kv, vocabulary int
	weights                                    map[string]Tensor // frozen, unless params has them
	params                                     *Params
}

func newDecoder(hidden, mlp, layers, heads, kv, vocabulary int, lora bool) *decoder {
	d := &decoder{hidden: hidden, mlp: mlp, layers: layers, heads: heads, kv: kv, vocabulary: vocabulary, weights: map[string]Tensor{}}
	width := hidden / heads
	specs := []Spec{{"embed", []int{vocabulary, hidden}}, {"norm", []int{hidden}}}
	var low []Spec
	for l := range layers {
		at := func(name string) string { return fmt.Sprint(l, ".", name) }
		for _, p := range []struct {
			name    string
			out, in int
			bias    bool
		}{{"q", heads * width, hidden, true}, {"k", kv * width, hidden, true}, {"v", kv * width, hidden, true},
			{"o", hidden, heads * width, false}} {
			specs = append(specs, Spec{at(p.name), []int{p.out, p.in}})
			if p.bias {
				specs = append(specs, Spec{at(p.name + "b"), []int{p.out}})
			}
			low = append(low, Spec{at(p.name + "A"), []int{8, p.in}}, Spec{at(p.name + "B"), []int{p.out, 8}})
		}
		specs = append(specs, Spec{at("n1"), []int{hidden}}, Spec{at("n2"), []int{hidden}},
			Spec{at("gate"), []int{mlp, hidden}}, Spec{at("up"), []int{mlp, hidden}}, Spec{at("down"), []int{hidden, mlp}})
	}
	fill := func(s Spec) Tensor {
		if len(s.Shape) == 1 {
			return Full(1, s.Shape...)
		}
		r := rng.New(1, s.Name)
		x := make([]float32, numel(s.Shape))
		for i := range x {
			x[i] = float32(0.02 * r.NormFloat64())
		}
		return From(x, s.Shape...)
	}
	if lora {
		for _, s := range specs {
			d.weights[s.Name] = Own(fill(s))
		}
		specs = low
	}
	d.params = NewParams(specs, "cpu")
	defer Scope()()
	for _, s := range specs {
		Copy(d.params.Get(s.Name), fill(s))
	}
	return d
}

func (d *decoder) free() {
	d.params.Free()
	for _, w := range d.weights {
		w.Free()
	}
}

func (d *decoder) get(name string) Tensor {
	if d.params.Has(name) {
		return d.params.Get(name)
	}
	return d.weights[name]
}

func (d *decoder) linear(x Tensor, name string) Tensor {
	bias := d.get(name + "b")
	if d.params.Has(name + "A") {
		return LoRALinear(x, d.get(name), bias, d.get(name+"A"), d.get(name+"B"), 4)
	}
	return Linear(x, d.get(name), bias)
}

func (d *decoder) angles(positions []int) (cos, sin Tensor) {
	half := d.hidden / d.heads / 2
	c, s := make([]float32, len(positions)*half), make([]float32, len(positions)*half)
	for i, p := range positions {
		for j := range half {
			angle := float64(p) * math.Pow(1e6, -float64(j)/float64(half))
			c[i*half+j], s[i*half+j] = float32(math.Cos(angle)), float32(math.Sin(angle))
		}
	}
	return From(c, len(positions), half), From(s, len(positions), half)
}

// hiddens returns the states [N, H] of tokens; with a cache (one pair of keys and values a layer) the keys are
// written at `at` and read from there.
func (d *decoder) hiddens(ids []int64, positions []int, spans []Span, cache []Tensor, at []int64) Tensor {
	n, width := len(ids), d.hidden/d.heads
	cos, sin := d.angles(positions)
	x := Embedding(d.get("embed"), From(ids, n))
	normed := RMSNorm(x, d.get("0.n1"), 1e-6)
	var rows Tensor
	if cache != nil {
		rows = From(at, len(at))
	}
	for l := range d.layers {
		name := func(s string) string { return fmt.Sprint(l, ".", s) }
		q := Rope(Reshape(d.linear(normed, name("q")), n, d.heads, width), cos, sin)
		k := Rope(Reshape(d.linear(normed, name("k")), n, d.kv, width), cos, sin)
		v := Reshape(d.linear(normed, name("v")), n, d.kv, width)
		if cache != nil {
			WriteRowsAt(cache[2*l], rows, k)
			WriteRowsAt(cache[2*l+1], rows, v)
			k, v = cache[2*l], cache[2*l+1]
		}
		y := Attend(q, k, v, spans, 1/math.Sqrt(float64(width)))
		x, normed = AddRMSNorm(x, d.linear(Reshape(y, n, d.hidden), name("o")), d.get(name("n2")), 1e-6)
		y = SwiGLU(Linear(normed, d.get(name("gate")), Tensor{}), Linear(normed, d.get(name("up")), Tensor{}))
		y = Linear(y, d.get(name("down")), Tensor{})
		next := "norm"
		if l+1 < d.layers {
			next = fmt.Sprint(l+1, ".n1")
		}
		x, normed = AddRMSNorm(x, y, d.get(next), 1e-6)
	}
	return normed
}

func count(n int) []int {
	x := make([]int, n)
	for i := range x {
		x[i] = i
	}
	return x
}

// generate decodes greedily with a cache and returns the last tokens.
func (d *decoder) generate(prompt []int64, batch, tokens int) []int64 {
	defer Scope()()
	defer NoGrad()()
	room := len(prompt) + tokens
	cache := make([]Tensor, 2*d.layers)
	for i := range cache {
		cache[i] = Zeros(batch*room, d.kv, d.hidden/d.heads)
	}
	var ids, at []int64
	var positions []int
	var spans []Span
	for b := range batch {
		for i, id := range prompt {
			ids, positions, at = append(ids, (id+int64(b))%int64(d.vocabulary)), append(positions, i), append(at, int64(b*room+i))
		}
		spans = append(spans, Span{Q: b * len(prompt), QLen: len(prompt), Own: b * room, OwnLen: len(prompt), Causal: true})
	}
	for step := range tokens {
		end := Scope()
		h := d.hiddens(ids, positions, spans, cache, at)
		if step == 0 {
			last := make([]int64, batch)
			for b := range last {
				last[b] = int64((b+1)*len(prompt) - 1)
			}
			h = IndexSelect(h, 0, From(last, batch))
		}
		ids, _, _ = SampleTokens(Linear(h, d.get("embed"), Tensor{}), SampleOptions{}, nil, nil, nil)
		end()
		positions, at, spans = positions[:0], at[:0], spans[:0]
		for b := range batch {
			positions, at = append(positions, len(prompt)+step), append(at, int64(b*room+len(prompt)+step))
			spans = append(spans, Span{Q: b, QLen: 1, Own: b * room, OwnLen: len(prompt) + step + 1, Causal: true})
		}
	}
	return ids
}

func cpuSeconds() float64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return float64(t.Nano()) / 1e9
}

// BenchmarkDecoder computes a decoder at the sizes of `make bench-peers`; cpu-ms/op is CPU time.
func BenchmarkDecoder(b *testing.B) {
	Attach(1)
	for _, size := range []struct {
		name                                               string
		hidden, mlp, layers, heads, kv, vocabulary, tokens int
	}{{"tiny", 64, 128, 4, 4, 2, 640, 128}, {"mid", 512, 1408, 8, 8, 2, 32000, 512}} {
		n := size.tokens
		ids, targets := make([]int64, n), make([]int64, n)
		for i := range ids {
			ids[i], targets[i] = int64(i*37%size.vocabulary), int64(i*53%size.vocabulary)
		}
		causal := []Span{{QLen: n, OwnLen: n, Causal: true}}
		run := func(name string, lora bool, f func(d *decoder)) {
			b.Run(size.name+"/"+name, func(b *testing.B) {
				d := newDecoder(size.hidden, size.mlp, size.layers, size.heads, size.kv, size.vocabulary, lora)
				defer d.free()
				f(d)
				b.ResetTimer()
				begin := cpuSeconds()
				for range b.N {
					f(d)
				}
				b.ReportMetric(1e3*(cpuSeconds()-begin)/float64(b.N), "cpu-ms/op")
			})
		}
		logp := func(d *decoder) Tensor {
			l, _ := TokenLogp(d.hiddens(ids, count(n), causal, nil, nil), d.get("embed"), From(targets, n), 1)
			return Mean(l)
		}
		step := func(d *decoder) {
			defer Scope()()
			d.params.ZeroGrad()
			Backward(logp(d))
		}
		run("forward", false, func(d *decoder) {
			defer Scope()()
			defer NoGrad()()
			logp(d)
		})
		run("backward", false, step)
		run("lora", true, step)
		for _, batch := range []int{1, 4} {
			tokens := 64
			if size.name == "mid" {
				tokens = 24
			}
			run(fmt.Sprint("generate", batch), false, func(d *decoder) { d.generate(ids[:64], batch, tokens) })
		}
		run("grpo", true, func(d *decoder) { // one prompt, four completions; forward and backward
			defer Scope()()
			half, g := n/2, 4
			all, positions := append([]int64(nil), ids[:half]...), count(half)
			spans := []Span{{QLen: half, OwnLen: half, Causal: true}}
			for i := range g {
				for j := range half {
					all, positions = append(all, int64((i*91+j*7)%size.vocabulary)), append(positions, half+j)
				}
				spans = append(spans, Span{Q: half * (i + 1), QLen: half, PrefixLen: half, Own: half * (i + 1), OwnLen: half, Causal: true})
			}
			h := d.hiddens(all, positions, spans, nil, nil)
			_, h = Split(h, 0, half)
			l, _ := TokenLogp(h, d.get("embed"), From(all[half:], g*half), 1)
			d.params.ZeroGrad()
			Backward(Mean(l))
		})
	}
}
