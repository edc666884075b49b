package torchx

import (
	"fmt"
	"slices"
	"testing"

	"fulcrum/internal/rng"
)

// drawnDecoding draws where rows of decoding see their keys, in a cache with gaps.
func drawnDecoding(name string, prompts, samples int) (prefix, prefixLen, own, ownLen []int32, keys int) {
	r := rng.New(23, name)
	stretch := func(starts, lengths *[]int32, most int) {
		n := 1 + r.IntN(most)
		keys += r.IntN(3)
		*starts, *lengths = append(*starts, int32(keys)), append(*lengths, int32(n))
		keys += n
	}
	for range prompts {
		stretch(&prefix, &prefixLen, 300)
	}
	for range prompts * samples {
		stretch(&own, &ownLen, 90)
	}
	return prefix, prefixLen, own, ownLen, keys
}

// TestFastDecodeOnCUDA: our kernel for a step of decoding against float64, over heads, groups of completions and lengths; twice the same
// bits.
func TestFastDecodeOnCUDA(t *testing.T) {
	needsCUDA(t)
	for _, heads := range [][3]int{{12, 2, 128}, {16, 2, 128}, {14, 2, 64}, {9, 3, 64}, {8, 8, 64}, {32, 1, 128}, {40, 2, 128}, {4, 4, 128}} {
		hq, hk, d := heads[0], heads[1], heads[2]
		for _, rows := range [][2]int{{1, 1}, {3, 1}, {2, 8}, {5, 3}, {1, 37}} {
			name := fmt.Sprint(heads, rows)
			prefix, prefixLen, own, ownLen, m := drawnDecoding(name, rows[0], rows[1])
			n := len(own)
			x := operands(name, []int{n, hq, d}, []int{m, hk, d}, []int{m, hk, d})
			for _, dtype := range []DType{BFloat16, Float16} {
				for _, shared := range []bool{true, false} {
					end := Scope()
					on := func(v []int32) Tensor { return From(v, len(v)).ToDevice("cuda:0") }
					spans := &DecodeSpans{Own: on(append(slices.Clone(own), 0)), OwnLen: on(ownLen), MaxOwn: 90, Fast: true}
					if shared {
						spans.Prefix, spans.PrefixLen, spans.MaxPrefix = on(append(slices.Clone(prefix), 0)), on(prefixLen), 300
					}
					var see []Span
					for i := range n {
						s := Span{Q: i, QLen: 1, Own: int(own[i]), OwnLen: int(ownLen[i])}
						if shared {
							s.Prefix, s.PrefixLen = int(prefix[i/rows[1]]), int(prefixLen[i/rows[1]])
						}
						see = append(see, s)
					}
					in, ref := make([]Tensor, 3), make([]Tensor, 3)
					for i, shape := range [][]int{{n, hq, d}, {m, hk, d}, {m, hk, d}} {
						in[i] = From(x[i], shape...).To(dtype).ToDevice("cuda:0")
						ref[i] = in[i].ToDevice("cpu").To(Float64)
					}
					got := AttendDecode(in[0], in[1], in[2], spans, 0.3).Floats()
					ratio, worst := distance(got, Attend(ref[0], ref[1], ref[2], see, 0.3).Floats(), hq*d)
					if !(ratio <= attendBounds[dtype]) {
						t.Errorf("%s, %v, prefixes %v: off by %.3g of its norm; %s", name, dtype, shared, ratio, worst)
					}
					if again := AttendDecode(in[0], in[1], in[2], spans, 0.3).Floats(); !slices.Equal(got, again) {
						t.Errorf("%s, %v, prefixes %v: other bits the second time", name, dtype, shared)
					}
					end()
				}
			}
		}
	}
}

// TestFastDecodeSaysWhatItTakes: other types, heads and devices are refused where there is a GPU.
func TestFastDecodeSaysWhatItTakes(t *testing.T) {
	needsCUDA(t)
	defer Scope()()
	on := func(x Tensor) Tensor { return x.ToDevice("cuda:0") }
	spans := &DecodeSpans{Own: on(From([]int32{0, 0}, 2)), OwnLen: on(From([]int32{3}, 1)), MaxOwn: 3, Fast: true}
	for name, x := range map[string]Tensor{"float32": Zeros(3, 2, 64), "heads of 32": Zeros(3, 2, 32).To(BFloat16)} {
		k := on(x)
		if err := Try(func() error { AttendDecode(Narrow(k, 0, 0, 1), k, k, spans, 1); return nil }); err == nil {
			t.Errorf("%s passed", name)
		}
	}
}
