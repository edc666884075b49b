package job

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"fulcrum/phases"
	"fulcrum/selector"
)

// noted notes which queries a phase asks for.
type noted struct{ what string }

func (n *noted) Beams(string) (selector.Source, error) {
	n.what = "beams"
	return nil, errors.New("none")
}
func (n *noted) Demos(phase string) (selector.Source, error) { return n.Beams(phase) }
func (n *noted) Records(string) (selector.Source, error) {
	n.what = "records"
	return nil, errors.New("none")
}
func (n *noted) Online(string) (selector.Source, error) {
	n.what = "online"
	return nil, errors.New("none")
}

// Every kind of phase has a section of its name, says what it learns from as it asks for it, passes on the error of its
// data, and is tried on a copy of its options.
func TestPhaseKinds(t *testing.T) {
	c := DefaultConfig(Entries{})
	for _, kind := range PhaseKinds() {
		p, err := c.Phases().Get(kind.Name)
		if err != nil {
			t.Fatal(err)
		}
		if kind.Help == "" || reflect.TypeOf(p) != reflect.TypeOf(kind.New()) {
			t.Errorf("%s: its section holds a %T, want a %T, with help", kind.Name, p, kind.New())
		}
	}
	for _, name := range c.Phases().Names() {
		p, err := c.Phases().Get(name)
		if err != nil {
			t.Fatal(err)
		}
		from := &noted{}
		if _, err := p.Build(name, c.setup(), from); err == nil {
			t.Errorf("%s: an error of its data is lost", name)
		}
		traits := c.Traits(p)
		want := map[phases.Learns][]string{phases.FromSamples: {"online"}, phases.FromBest: {"beams"}, phases.FromRewards: {"beams"},
			phases.FromGroups: {"records"}}[traits.Learns]
		if !slices.Contains(want, from.what) || (traits.Learns == phases.FromSamples) != (from.what == "online") {
			t.Errorf("%s asks for %s, but its traits are %+v", name, from.what, traits)
		}
		before := reflect.ValueOf(p).Elem().Interface()
		trial := c.ForTrial(2)
		if !reflect.DeepEqual(reflect.ValueOf(p).Elem().Interface(), before) {
			t.Errorf("%s: a trial changes the run's own options", name)
		}
		if own, err := trial.Phases().Get(name); err != nil || own == p {
			t.Errorf("%s: a trial shares the run's options (%v)", name, err)
		}
	}
	if c.Optim.WeightDecay == 0 || c.ForTrial(0).Optim.WeightDecay != 0 {
		t.Error("a trial moves tensors without a gradient: weight decay")
	}
}
