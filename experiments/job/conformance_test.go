package job

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/rce"
	"fulcrum/selector"
)

// oneSource gives every phase one source.
type oneSource struct{ src selector.Source }

func (s oneSource) Beams(string) (selector.Source, error)   { return s.src, nil }
func (s oneSource) Demos(string) (selector.Source, error)   { return s.src, nil }
func (s oneSource) Records(string) (selector.Source, error) { return s.src, nil }
func (s oneSource) Online(string) (selector.Source, error)  { return s.src, nil }

// lossOfKind is a kind of phase with one of its losses; "" is its default.
type lossOfKind struct {
	phases.Kind
	loss string
}

// TestPhasesConform runs the suite of phases over the catalog.
func TestPhasesConform(t *testing.T) {
	if err := torchx.Load(); err != nil {
		t.Fatal(err)
	}
	known, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := PhaseKinds()
	if len(kinds) < 3 {
		t.Fatalf("%d kinds of phases", len(kinds))
	}
	var tried []lossOfKind
	for _, kind := range kinds {
		tried = append(tried, lossOfKind{kind, ""})
	}
	for _, loss := range rce.Losses()[1:] {
		tried = append(tried, lossOfKind{rce.Kind(), loss.Name})
	}
	for _, kind := range tried {
		t.Run(strings.TrimSuffix(kind.Name+" "+kind.loss, " "), func(t *testing.T) {
			build := func(src selector.Source, s suiteSettings) (phases.Phase, error) {
				options := kind.New()
				set := func(key string, value any) bool {
					f := reflect.ValueOf(options).Elem().FieldByName(key)
					if f.IsValid() {
						f.Set(reflect.ValueOf(value))
					}
					return f.IsValid()
				}
				if kind.loss != "" {
					set("Loss", kind.loss)
				}
				if !set("Epochs", s.Epochs) || !set("LR", s.LR) {
					t.Fatalf("%s has no Epochs or LR", kind.Name)
				}
				if len(s.Freeze) > 0 && !set("Freeze", s.Freeze) {
					return nil, nil
				}
				c := DefaultConfig(Entries{})
				c.Data.BatchSize = 16
				return options.Build(kind.Name, c.setup(), oneSource{src})
			}
			phaseSuite(t, build, func(metric string) bool { return strings.Contains(string(known), "`"+metric+"`") })
		})
	}
}
