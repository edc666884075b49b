package preflight

import (
	"strings"
	"testing"

	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// asked is a source of n prompts of a kind, each with one completion of two tokens.
type asked struct {
	kind string
	n    int
}

func (a asked) Name() string   { return a.kind }
func (a asked) Len() int       { return a.n }
func (a asked) ID(i int) int64 { return int64(i) }

func (a asked) Recorded(queries []int) *selector.Batch {
	b := selector.NewBatch(a, queries, 1, 2)
	for i := range queries {
		b.Set(i, 0, []int64{1, 2}, 0)
	}
	return b
}

// reader is a policy that gives prompt i of a kind the log-probability of(kind, i).
type reader struct {
	selector.Policy
	of func(kind string, i int) float64
}

func (r reader) Forward(b *selector.Batch, _ selector.ForwardOptions) selector.Output {
	var v []float32
	for _, q := range b.Queries {
		v = append(v, float32(r.of(b.Source.Name(), q)), -1)
	}
	return selector.Output{LogP: torchx.From(v, b.B(), 1, 2)}
}

func TestReads(t *testing.T) {
	all := Senses{Own: asked{"own", 10}, OtherImage: asked{"other image", 10}, BlankImage: asked{"grey", 10},
		OtherText: asked{"other text", 10}}
	for _, tc := range []struct {
		name string
		same []string // kinds that the model does not tell from its own
		want string   // checks
	}{
		{"a model that reads", nil, ""},
		{"blind", []string{"other image", "grey"}, "images_ignored images_ignored"},
		{"all images look alike", []string{"other image"}, "images_ignored"},
		{"deaf", []string{"other text"}, "text_ignored"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := New(Checks(), 1)
			r.Reads(reader{of: func(kind string, i int) float64 {
				if strings.Contains(strings.Join(append(tc.same, "own"), ","), kind) {
					return -float64(i)
				}
				return -float64(i) - 0.01
			}}, all)
			var got []string
			for _, f := range r.Findings() {
				got = append(got, f.Check)
			}
			if strings.Join(got, " ") != tc.want || r.Checks() != 3 {
				t.Errorf("got %v in %d checks, want %q in 3", got, r.Checks(), tc.want)
			}
		})
	}
}

func TestImagesHelp(t *testing.T) {
	uniform := make([]float64, 32)
	for i := range uniform {
		uniform[i] = -12
	}
	noise := func(i int) float64 { return float64((i*7919)%11-5) / 5 }
	for _, tc := range []struct {
		name string
		of   func(kind string, i int) float64
		want string
		mild bool
	}{
		{"images help", func(kind string, i int) float64 {
			if kind == "own" {
				return -2
			}
			return -4 + noise(i)
		}, "", false},
		{"images are shuffled", func(kind string, i int) float64 {
			if kind == "own" {
				return -3
			}
			return -3 + noise(i)
		}, "images_do_not_help", false},
		{"nothing is known yet", func(string, int) float64 { return -15 }, "images_do_not_help", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := New(Checks(), 1)
			r.ImagesHelp(reader{of: tc.of}, asked{"own", 32}, asked{"other", 32}, uniform)
			got := r.Findings()
			if tc.want == "" && len(got) > 0 || tc.want != "" &&
				(len(got) != 1 || got[0].Check != tc.want || (got[0].Severity == "note") != tc.mild) {
				t.Errorf("got %+v", got)
			}
		})
	}
	r := New(Checks(), 1)
	r.ImagesHelp(reader{of: func(string, int) float64 { return -3 }}, asked{"own", 10}, asked{"other", 10}, uniform)
	if len(r.Findings()) > 0 {
		t.Errorf("10 pairs: %+v", r.Findings())
	}
}
