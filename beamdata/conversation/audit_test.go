package conversation

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"fulcrum/beamdata/shapes"
	"fulcrum/internal/chat"
)

// listed is a source of samples in memory.
type listed []Sample

func (l *listed) Sample(row int64) (Sample, error) { return (*l)[row], nil }
func (l *listed) Fingerprint() string              { return "listed" }

func (l *listed) set(name string) *Set {
	s := &Set{Name: name, source: l}
	for i := range *l {
		s.rows = append(s.rows, int64(i))
	}
	return s
}

// questions makes n samples, each about its own picture.
func questions(n int, of string) *listed {
	var out listed
	for i := range n {
		name := of + string(rune('a'+i%26)) + string(rune('a'+i/26))
		out = append(out, Sample{ID: int64(i), Name: name, Reference: "yes", Completions: []Recorded{{"yes", 1}, {"no", 0}},
			Messages: []chat.Message{{Role: "user", Parts: []chat.Part{{Type: chat.Image, Path: name + ".png"},
				{Type: chat.Text, Text: "what is " + name}}}}})
	}
	return &out
}

func TestAudit(t *testing.T) {
	for _, tc := range []struct {
		name  string
		plant func(b *Bundle, train, val *listed)
		want  []string // checks, and parts of the message
	}{
		{"sound", func(*Bundle, *listed, *listed) {}, nil},
		{"the same file twice", func(b *Bundle, train, _ *listed) { b.Val = train.set("val") }, []string{"split_leak"}},
		{"the same questions in another file", func(_ *Bundle, train, val *listed) {
			for i := range *val {
				(*val)[i].Messages = (*train)[i+3].Messages
			}
		}, []string{"split_leak", "query vaa is query tda,"}},
		{"demonstrations of validation questions", func(b *Bundle, _, val *listed) { b.Demos = val.set("demos").First(5) },
			[]string{"split_leak"}},
		{"NaN", func(_ *Bundle, train, _ *listed) {
			(*train)[4].Completions = []Recorded{{"a", math.NaN()}, {"b", 1}}
		}, []string{"nonfinite_rewards"}},
		{"equal rewards", func(_ *Bundle, train, _ *listed) {
			for i := range *train {
				(*train)[i].Completions = []Recorded{{"a", 0.5}, {"b", 0.5}}
			}
		}, []string{"constant_rewards"}},
		{"one completion each", func(_ *Bundle, train, _ *listed) {
			for i := range *train {
				(*train)[i].Completions = (*train)[i].Completions[:1]
			}
		}, []string{"small_groups"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			train, val := questions(100, "t"), questions(30, "v")
			b := &Bundle{Train: train.set("train"), Val: val.set("val")}
			tc.plant(b, train, val)
			faults, err := b.Audit(nil, b.Train, 0)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range faults {
				if !f.Mild {
					got = append(got, f.Check)
				}
			}
			if n := min(1, len(tc.want)); !slices.Equal(got, tc.want[:n]) || !strings.Contains(fmt.Sprint(faults), strings.Join(tc.want[n:], "")) {
				t.Errorf("got %v, want %v: %+v", got, tc.want, faults)
			}
		})
	}
}

// The built-in questions are sound, captions and few demonstrations included.
func TestAuditShapes(t *testing.T) {
	sizes := shapes.DefaultOptions()
	demos := 200
	opt := DefaultOptions()
	opt.Demos, opt.Captions = &demos, true
	b := Shapes(sizes, opt)
	faults, err := b.Audit(nil, b.Train, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		if !f.Mild && f.Check != "small_groups" { // offline GRPO is not what their one to four answers are for
			t.Errorf("%+v", f)
		}
	}
}
