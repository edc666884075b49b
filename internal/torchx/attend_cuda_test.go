package torchx

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"fulcrum/internal/rng"
	"fulcrum/internal/testkit/golden"
)

// TestAttendDecode: starts and lengths as tensors give what the same spans give, and follow when the tensors change.
func TestAttendDecode(t *testing.T) {
	scoped(t)
	const n, m, hq, hk, d = 6, 90, 4, 2, 16
	x := operands("decode", []int{n, hq, d}, []int{m, hk, d}, []int{m, hk, d})
	of := func(x ...int32) Tensor { return From(x, len(x)) }
	q, k, v := From(x[0], n, hq, d).To(Float32), From(x[1], m, hk, d).To(Float32), From(x[2], m, hk, d).To(Float32)
	prefix, prefixLen, own, ownLen := []int32{12, 0}, []int32{20, 11}, []int32{40, 32, 48, 80, 56, 64}, []int32{1, 8, 5, 3, 2, 7}
	keys := &DecodeSpans{Prefix: of(prefix...), PrefixLen: of(prefixLen...), Own: of(own...), OwnLen: of(ownLen...), MaxPrefix: 20, MaxOwn: 8}
	for range 2 {
		var shared, alone []Span
		for i := range n {
			alone = append(alone, Span{Q: i, QLen: 1, Own: int(own[i]), OwnLen: int(ownLen[i])})
			s := alone[i]
			s.Prefix, s.PrefixLen = int(prefix[i/3]), int(prefixLen[i/3])
			shared = append(shared, s)
		}
		if got, want := AttendDecode(q, k, v, keys, 0.3).Floats(), Attend(q, k, v, shared, 0.3).Floats(); !slices.Equal(got, want) {
			t.Errorf("with prefixes: %v, want %v", got[:4], want[:4])
		}
		bare := &DecodeSpans{Own: keys.Own, OwnLen: keys.OwnLen, MaxOwn: 8}
		if got, want := AttendDecode(q, k, v, bare, 0.3).Floats(), Attend(q, k, v, alone, 0.3).Floats(); !slices.Equal(got, want) {
			t.Errorf("without prefixes: %v, want %v", got[:4], want[:4])
		}
		ownLen[2], prefixLen[1] = 6, 12
		Copy(keys.OwnLen, of(ownLen...))
		Copy(keys.PrefixLen, of(prefixLen...))
	}
	for name, bad := range map[string]*DecodeSpans{
		"lengths of other rows": {Own: keys.Own, OwnLen: of(1, 1), MaxOwn: 8},
		"int64":                 {Own: From([]int64{1, 1, 1, 1, 1, 1}, n), OwnLen: keys.OwnLen, MaxOwn: 8},
		"no longest":            {Own: keys.Own, OwnLen: keys.OwnLen},
		"4 prefixes of 6 rows": {Prefix: of(0, 0, 0, 0), PrefixLen: of(1, 1, 1, 1), Own: keys.Own, OwnLen: keys.OwnLen, MaxOwn: 8,
			MaxPrefix: 1},
		"prefixes without a length":  {Prefix: keys.Prefix, Own: keys.Own, OwnLen: keys.OwnLen, MaxOwn: 8, MaxPrefix: 1},
		"prefixes without a longest": {Prefix: keys.Prefix, PrefixLen: keys.PrefixLen, Own: keys.Own, OwnLen: keys.OwnLen, MaxOwn: 8},
	} {
		if err := Try(func() error { AttendDecode(q, k, v, bad, 1); return nil }); err == nil {
			t.Errorf("%s passed", name)
		}
	}
}

// attendRows is a batch: random spans over n rows of q and m rows of k and v.
type attendRows struct {
	name      string
	n, m      int
	hq, hk, d int
	spans     []Span
	decode    bool // no gradient: gaps between keys, keys of rows that come later
	reach     int  // of a bias, both ways; 0: none
}

// randomSpans draws batches of every kind that models make.
func randomSpans(name string, hq, hk, d int) []attendRows {
	r := rng.New(17, name)
	between := func(lo, hi int) int { return lo + r.IntN(hi-lo+1) }
	causal := attendRows{name: "causal sequences"}
	for range between(3, 9) {
		n := between(1, 150)
		causal.spans = append(causal.spans, Span{Q: causal.n, QLen: n, Own: causal.n, OwnLen: n, Causal: true})
		causal.n += n
	}
	causal.m = causal.n
	windows := attendRows{name: "windows"}
	for range between(4, 12) {
		n := 4 * between(1, 16)
		windows.spans = append(windows.spans, Span{Q: windows.n, QLen: n, Own: windows.n, OwnLen: n})
		windows.n += n
	}
	windows.m = windows.n
	groups := attendRows{name: "groups"}
	add := func(prefix, prefixLen, n int) {
		groups.spans = append(groups.spans, Span{Q: groups.n, QLen: n, Prefix: prefix, PrefixLen: prefixLen, Own: groups.n, OwnLen: n,
			Causal: true})
		groups.n += n
	}
	for range between(2, 5) {
		at, n := groups.n, between(1, 200)
		add(0, 0, n)
		for range between(0, 5) {
			add(at, n, between(1, 140))
		}
	}
	groups.m = groups.n
	cross := attendRows{name: "cross attention"} // of completions over the sources of an encoder
	for range between(2, 6) {
		n, keys := between(1, 90), between(1, 170)
		cross.spans = append(cross.spans, Span{Q: cross.n, QLen: n, Own: cross.m, OwnLen: keys})
		cross.n, cross.m = cross.n+n, cross.m+keys
	}
	mixed := attendRows{name: "causal and windows, gaps, keys in another order"}
	for i := range between(4, 8) {
		n := between(2, 60)
		s := Span{Q: mixed.n, QLen: n, Own: 3000 - 300*i + between(0, 50), OwnLen: n + between(0, 90), Causal: i%2 == 0}
		if i%3 == 0 {
			s.Prefix, s.PrefixLen = 100*i, between(1, 99)
		}
		mixed.spans = append(mixed.spans, s)
		mixed.n += n
	}
	mixed.m = 3200
	prefill := attendRows{name: "prefill after a cache", decode: true, n: 33, m: 400, spans: []Span{
		{QLen: 20, Own: 31, OwnLen: 157, Causal: true}, {Q: 20, QLen: 13, Own: 5, OwnLen: 13, Causal: true}}}
	decode := attendRows{name: "decoding", decode: true, m: 6000}
	n := 0
	for i := range between(3, 9) {
		prefix := 300 * i
		if i%2 == 0 { // two prompts of one length
			n = between(1, 290)
		}
		for range between(1, 8) {
			decode.spans = append(decode.spans, Span{Q: decode.n, QLen: 1, Prefix: prefix, PrefixLen: n, Own: 3000 + 40*decode.n,
				OwnLen: between(1, 40), Causal: true})
			decode.n++
		}
	}
	biased, both := causal, windows
	biased.name, biased.reach, both.name, both.reach = "causal with a bias", 200, "windows with a bias", 64
	all := []attendRows{causal, windows, groups, cross, mixed, prefill, decode, biased, both}
	for i := range all {
		all[i].hq, all[i].hk, all[i].d = hq, hk, d
	}
	return all
}

// values of q, k, v and the gradient of the output, which bfloat16 holds exactly.
func (c attendRows) values() (shapes [][]int, x [][]float64) {
	shapes = [][]int{{c.n, c.hq, c.d}, {c.m, c.hk, c.d}, {c.m, c.hk, c.d}, {c.n, c.hq, c.d}}
	if c.reach > 0 {
		shapes = append(shapes, []int{c.hq, 2*c.reach + 1})
	}
	x = operands(c.name, shapes...)
	for i := range x {
		x[i] = From(x[i], shapes[i]...).To(BFloat16).Floats()
	}
	return shapes, x
}

// attend returns the output and, where there are some, the gradients of q, k, v and the bias.
func (c attendRows) attend(dtype DType, device string) (out [][]float64) {
	defer Scope()()
	shapes, x := c.values()
	in := make([]Tensor, len(x))
	for i := range x {
		in[i] = From(x[i], shapes[i]...).To(dtype).ToDevice(device)
		if i == 4 && dtype != Float64 {
			in[i] = in[i].To(Float32)
		}
		if i != 3 && !c.decode {
			in[i] = RequireGrad(in[i])
		}
	}
	var bias Tensor
	if c.reach > 0 {
		bias = in[4]
	}
	y := AttendBiased(in[0], in[1], in[2], c.spans, 1/math.Sqrt(float64(c.d)), bias, c.reach)
	out = append(out, y.Floats())
	if c.decode {
		return out
	}
	Backward(Sum(Mul(y.To(Float64), in[3].To(Float64))))
	for i, t := range in {
		if i != 3 {
			out = append(out, Grad(t).Floats())
		}
	}
	return out
}

// distance returns ‖got - want‖/‖want‖ and says where they differ most.
func distance(got, want []float64, width int) (ratio float64, worst string) {
	var d, norm, most float64
	at := 0
	for i, w := range want {
		e := got[i] - w
		d, norm = d+e*e, norm+w*w
		if !(math.Abs(e) <= most) {
			most, at = math.Abs(e), i
		}
	}
	return math.Sqrt(d / norm), fmt.Sprintf("row %d, column %d: %.6g, want %.6g", at/width, at%width, got[at], want[at])
}

func needsCUDA(t testing.TB) {
	if !CUDAAvailable() {
		t.Skip("this libtorch sees no CUDA device")
	}
	Attach(4)
}

var attendBounds = map[DType]float64{Float32: 1e-5, BFloat16: 1e-2, Float16: 2e-3}

// TestAttendOnCUDA compares every kind of batch with float64 on the CPU.
func TestAttendOnCUDA(t *testing.T) {
	needsCUDA(t)
	for _, heads := range [][3]int{{12, 2, 128}, {4, 4, 80}, {8, 1, 32}, {6, 2, 8}} {
		for _, c := range randomSpans(fmt.Sprint(heads), heads[0], heads[1], heads[2]) {
			want := c.attend(Float64, "cpu")
			for _, dtype := range []DType{BFloat16, Float16, Float32} {
				t.Run(fmt.Sprintf("%s, %d heads of %d, %d key heads, %v", c.name, c.hq, c.d, c.hk, dtype), func(t *testing.T) {
					got := c.attend(dtype, "cuda:0")
					for i, part := range []string{"output", "gradient of q", "gradient of k", "gradient of v", "gradient of the bias"}[:len(got)] {
						ratio, worst := distance(got[i], want[i], c.hq*c.d)
						t.Logf("%s: %.2g", part, ratio)
						if !(ratio <= attendBounds[dtype]) {
							t.Errorf("%s: off by %.3g of its norm, want at most %g; %s; spans %+v", part, ratio, attendBounds[dtype], worst, c.spans)
						}
					}
				})
			}
		}
	}
}

// TestAttendOnCUDAIsTheSameAgain: deterministic algorithms give the same bits.
func TestAttendOnCUDAIsTheSameAgain(t *testing.T) {
	needsCUDA(t)
	SetDeterministic(true)
	defer SetDeterministic(false)
	for _, c := range randomSpans("again", 12, 2, 128) {
		for _, dtype := range []DType{BFloat16, Float32} {
			first := c.attend(dtype, "cuda:0")
			for range 3 {
				for i, x := range c.attend(dtype, "cuda:0") {
					if !slices.Equal(x, first[i]) {
						ratio, worst := distance(x, first[i], c.hq*c.d)
						t.Errorf("%s, %v: result %d differs the next time by %.3g; %s", c.name, dtype, i, ratio, worst)
					}
				}
			}
		}
	}
}

// TestAttendDecodeOnCUDA: starts and lengths on the device, changed between replays of a graph.
func TestAttendDecodeOnCUDA(t *testing.T) {
	needsCUDA(t)
	const prompts, samples, hq, hk, d, m = 5, 3, 12, 2, 128, 3000
	n := prompts * samples
	shapes := [][]int{{n, hq, d}, {m, hk, d}, {m, hk, d}}
	x := operands("graph", shapes...)
	for i := range x {
		x[i] = From(x[i], shapes[i]...).To(BFloat16).Floats()
	}
	lengths := func(step int) (prefix, prefixLen, own, ownLen []int32, spans []Span) {
		for i := range prompts {
			prefix, prefixLen = append(prefix, int32(150*i)), append(prefixLen, int32(20+31*i))
		}
		for i := range n {
			own, ownLen = append(own, int32(1000+100*i)), append(ownLen, int32(step+1+i%4))
			spans = append(spans, Span{Q: i, QLen: 1, Prefix: 150 * (i / samples), PrefixLen: 20 + 31*(i/samples), Own: 1000 + 100*i,
				OwnLen: step + 1 + i%4})
		}
		return prefix, prefixLen, own, ownLen, spans
	}
	for _, dtype := range []DType{BFloat16, Float16, Float32} {
		for _, shared := range []bool{true, false} {
			end := Scope()
			on := func(v []int32) Tensor { return From(v, len(v)).ToDevice("cuda:0") }
			in, ref := make([]Tensor, 3), make([]Tensor, 3)
			for i := range in {
				ref[i] = From(x[i], shapes[i]...)
				in[i] = ref[i].To(dtype).ToDevice("cuda:0")
			}
			prefix, prefixLen, own, ownLen, _ := lengths(0)
			keys := &DecodeSpans{Own: on(append(own, 0)), OwnLen: on(ownLen), MaxOwn: 100}
			if shared {
				keys.Prefix, keys.PrefixLen, keys.MaxPrefix = on(prefix), on(prefixLen), 200
			}
			out := FullLike(in[0], 0, dtype, n, hq, d)
			step := func() { Copy(out, AttendDecode(in[0], in[1], in[2], keys, 0.1)) }
			look := func(name string, at int) {
				_, _, _, _, spans := lengths(at)
				for i := range spans {
					if !shared {
						spans[i].PrefixLen = 0
					}
				}
				ratio, worst := distance(out.Floats(), Attend(ref[0], ref[1], ref[2], spans, 0.1).Floats(), hq*d)
				t.Logf("%v, prefixes %v, %s, step %d: %.2g", dtype, shared, name, at, ratio)
				if !(ratio <= attendBounds[dtype]) {
					t.Errorf("%v, prefixes %v, %s, step %d: off by %.3g of its norm; %s", dtype, shared, name, at, ratio, worst)
				}
			}
			side := OnSideStream(in[0])
			func() { defer Scope()(); step() }()
			look("as it is", 0)
			graph := Capture(nil, step)
			for _, at := range []int{0, 1, 40, 96} {
				_, _, _, ownLen, _ := lengths(at)
				Copy(keys.OwnLen, on(ownLen))
				graph.Replay()
				look("replayed", at)
			}
			graph.Free()
			side()
			end()
		}
	}
}

// BenchmarkAttendOnCUDA has the shapes of Qwen2.5-1.5B: an update of 64 prompts of 512 tokens with 8 completions of 256 each,
// and a step of decoding for 512 of these.
func BenchmarkAttendOnCUDA(b *testing.B) {
	needsCUDA(b)
	const hq, hk, d, prompts, samples, long, own = 12, 2, 128, 64, 8, 512, 256
	g := NewGenerator(1, "cuda:0")
	defer g.Free()
	like := Zeros(1).ToDevice("cuda:0")
	defer like.Free()
	draw := func(n, h int) Tensor { return g.Normal(like, 0, 1, n, h, d).To(BFloat16) }
	timed := func(b *testing.B, f func()) {
		f()
		Synchronize()
		b.ResetTimer()
		for range b.N {
			f()
		}
		Synchronize()
	}
	b.Run("update", func(b *testing.B) {
		defer Scope()()
		var spans []Span
		n, pairs := 0, 0
		for range prompts {
			prompt := n
			spans = append(spans, Span{Q: n, QLen: long, Own: n, OwnLen: long, Causal: true})
			n, pairs = n+long, pairs+long*long/2
			for range samples {
				spans = append(spans, Span{Q: n, QLen: own, Prefix: prompt, PrefixLen: long, Own: n, OwnLen: own, Causal: true})
				n, pairs = n+own, pairs+own*long+own*own/2
			}
		}
		q, k, v := RequireGrad(draw(n, hq)), RequireGrad(draw(n, hk)), RequireGrad(draw(n, hk))
		flops := 4 * float64(pairs) * hq * d
		rate := func(b *testing.B, times float64) {
			b.ReportMetric(times*flops*float64(b.N)/b.Elapsed().Seconds()/1e12, "TFLOP/s")
		}
		for _, deterministic := range []bool{false, true} {
			b.Run(fmt.Sprint("forward and backward, deterministic ", deterministic), func(b *testing.B) {
				SetDeterministic(deterministic)
				defer SetDeterministic(false)
				timed(b, func() {
					defer Scope()()
					Backward(Sum(Attend(q, k, v, spans, 0.1)))
				})
				rate(b, 3.5)
			})
		}
		b.Run("forward", func(b *testing.B) {
			defer NoGrad()()
			timed(b, func() { defer Scope()(); Attend(q, k, v, spans, 0.1) })
			rate(b, 1)
		})
	})
	b.Run("decode", func(b *testing.B) {
		defer Scope()()
		n := prompts * samples
		var prefix, prefixLen, at, length []int32
		for i := range prompts {
			prefix, prefixLen = append(prefix, int32(i*long)), append(prefixLen, long)
		}
		for i := range n {
			at, length = append(at, int32(prompts*long+i*own)), append(length, own)
		}
		on := func(v []int32) Tensor { return From(v, len(v)).ToDevice("cuda:0") }
		rows := prompts*long + n*own
		q, k, v := draw(n, hq), draw(rows, hk), draw(rows, hk)
		spans := &DecodeSpans{Prefix: on(append(prefix, 0)), PrefixLen: on(prefixLen), Own: on(append(at, 0)), OwnLen: on(length),
			MaxPrefix: long, MaxOwn: own}
		rate := func(b *testing.B, times float64) {
			b.ReportMetric(times*float64(2*2*rows*hk*d)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
		}
		step := func() { defer Scope()(); AttendDecode(q, k, v, spans, 0.1) }
		for _, spans.Fast = range []bool{false, true} {
			name := map[bool]string{false: "exact", true: "fast"}[spans.Fast]
			b.Run(name+", as it is", func(b *testing.B) {
				timed(b, step)
				rate(b, 1)
			})
			b.Run(name+", 28 layers, recorded", func(b *testing.B) {
				defer OnSideStream(q)()
				step()
				graph := Capture(nil, func() {
					for range 28 {
						step()
					}
				})
				defer graph.Free()
				timed(b, graph.Replay)
				rate(b, 28)
			})
		}
	})
}

// TestAttendInParts: float64 takes the parts that the fused kernels take, here against loops, and float32 takes none.
func TestAttendInParts(t *testing.T) {
	scoped(t)
	for _, c := range randomSpans("parts", 4, 2, 16) {
		t.Run(c.name, func(t *testing.T) {
			_, x := c.values()
			got := c.attend(Float64, "cpu")
			want := plainAttend(x[0], x[1], x[2], c.hq, c.hk, c.d, c.spans, 0.25, func(h, distance int) float64 {
				if c.reach == 0 {
					return 0
				}
				return x[4][h*(2*c.reach+1)+c.reach+distance]
			})
			golden.Close(t, got[0], want, 1e-12)
			for i, single := range c.attend(Float32, "cpu") {
				if ratio, worst := distance(single, got[i], c.hq*c.d); !(ratio <= 1e-6) {
					t.Errorf("result %d in float32: off by %.3g; %s", i, ratio, worst)
				}
			}
		})
	}
}
