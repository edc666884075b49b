package torchx

import (
	"slices"
	"testing"
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
		"lengths of other rows":      {Own: keys.Own, OwnLen: of(1, 1), MaxOwn: 8},
		"int64":                      {Own: From([]int64{1, 1, 1, 1, 1, 1}, n), OwnLen: keys.OwnLen, MaxOwn: 8},
		"no longest":                 {Own: keys.Own, OwnLen: keys.OwnLen},
		"4 prefixes of 6 rows":       {Prefix: of(0, 0, 0, 0), PrefixLen: of(1, 1, 1, 1), Own: keys.Own, OwnLen: keys.OwnLen, MaxOwn: 8, MaxPrefix: 1},
		"prefixes without a length":  {Prefix: keys.Prefix, Own: keys.Own, OwnLen: keys.OwnLen, MaxOwn: 8, MaxPrefix: 1},
		"prefixes without a longest": {Prefix: keys.Prefix, PrefixLen: keys.PrefixLen, Own: keys.Own, OwnLen: keys.OwnLen, MaxOwn: 8},
	} {
		if err := Try(func() error { AttendDecode(q, k, v, bad, 1); return nil }); err == nil {
			t.Errorf("%s passed", name)
		}
	}
}
