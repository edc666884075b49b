package option

import "testing"

// TestTags: the tags of a struct made in Go are read through embedded structs, pointers and lists.
func TestTags(t *testing.T) {
	type Inner struct {
		Name string `koanf:"name" enum:"one,two"`
	}
	type outer struct {
		Inner
		N     int       `koanf:"n" range:"[1,inf)"`
		Share *float64  `koanf:"share" range:"(0,1]"`
		Kinds *[]string `koanf:"kinds" enum:"a,b"`
		List  []float64 `koanf:"list" range:"[0,5)"`
		Bare  float64
	}
	good := outer{Inner: Inner{"one"}, N: 1}
	for _, tc := range []struct {
		change func(*outer)
		want   string
	}{
		{func(*outer) {}, ""},
		{func(o *outer) {
			o.Share, o.Kinds, o.List, o.Bare = new(1.0), &[]string{"a", "b"}, []float64{0, 4.9}, -1
		}, ""},
		{func(o *outer) { o.Name = "tow" }, `name: want one of one, two, got "tow" (did you mean two?)`},
		{func(o *outer) { o.N = 0 }, "n: want a number in [1, inf), got 0"},
		{func(o *outer) { o.Share = new(0.0) }, "share: want a number in (0, 1], got 0"},
		{func(o *outer) { o.Kinds = &[]string{"a", "c"} }, `kinds: want one of a, b, got "c" (did you mean a?)`},
		{func(o *outer) { o.N, o.List = -2, []float64{1, 5} }, "n: want a number in [1, inf), got -2\nlist: want a number in [0, 5), got 5"},
	} {
		o, got := good, ""
		tc.change(&o)
		if err := Tags(o); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%+v: got %q, want %q", o, got, tc.want)
		}
	}
}
