package pruner

import (
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/registry"
)

// withToy is the table with one rule more.
func withToy() *registry.Table[func(sweeper.PrunerOptions) rule] {
	t := table()
	t.Add("toy", newToy)
	return t
}

// The names of the option are those of the table.
func TestNames(t *testing.T) {
	field, _ := reflect.TypeFor[sweeper.PrunerOptions]().FieldByName("Name")
	want := append([]string{sweeper.NoPruner}, table().Names()...)
	if got := strings.Split(field.Tag.Get("enum"), ","); !slices.Equal(got, want) {
		t.Errorf("hydra.sweeper.pruner.name takes %v, the table has %v", got, want)
	}
	opt := sweeper.DefaultPrunerOptions()
	opt.Name = "ahsa"
	if _, err := New(opt, t.TempDir(), 0, 9); err == nil || !strings.Contains(err.Error(), "did you mean asha?") {
		t.Errorf("an unknown name: %v", err)
	}
}

// Whatever the rule: a run alone goes on, and so does the best of many; of many bad ones some end, and say by which rule and
// metric; nobody ends at the last epoch, and NaN loses to every number.
func TestConformance(t *testing.T) {
	names := withToy().Names()
	if len(names) < 3 {
		t.Fatalf("rules: %v", names)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			opt := sweeper.DefaultPrunerOptions()
			opt.Name, opt.StartupTrials = name, 3
			const runs, epochs = 16, 4
			for _, minimize := range []bool{true, false} {
				dir, ended := t.TempDir(), 0
				for num := range runs {
					p := open(t, opt, dir, num, epochs)
					value := float64(num) // each is worse than all before it
					if !minimize {
						value = -value
					}
					if num == runs-2 {
						value = math.NaN()
					} else if num == runs-1 {
						value = math.Inf(1)
						if minimize {
							value = math.Inf(-1)
						}
					}
					for epoch := 1; epoch <= epochs; epoch++ {
						reason, err := p.Report(epoch, "val_loss", value, minimize)
						if err != nil {
							t.Fatal(err)
						}
						if reason == "" {
							continue
						}
						if num == 0 || num == runs-1 || epoch == epochs {
							t.Errorf("run %d ends at epoch %d: %s", num, epoch, reason)
						}
						if !strings.HasPrefix(reason, name+": ") || !strings.Contains(reason, "val_loss") {
							t.Errorf("the reason names neither rule nor metric: %s", reason)
						}
						ended++
						break
					}
					if num == runs-2 && ended < num/3 {
						t.Errorf("%d of %d ever worse runs have ended", ended, num)
					}
				}
			}
		})
		t.Run(name+" resumed", func(t *testing.T) { resumedTellsTheSame(t, name) })
	}
}

// resumedTellsTheSame: a run that is killed and resumed comes to the same decisions and leaves the same file.
func resumedTellsTheSame(t *testing.T, name string) {
	opt := sweeper.DefaultPrunerOptions()
	opt.Name = name
	losses := []float64{5, 4, math.NaN(), 3, 3.5}
	play := func(killed int) string {
		dir := t.TempDir()
		told := ""
		p := open(t, opt, dir, 0, len(losses))
		for e, v := range losses {
			if e == killed {
				p = open(t, opt, dir, 0, len(losses))
				for before, v := range losses[:e] {
					if err := p.Seed(before+1, "val_loss", v, true); err != nil {
						t.Fatal(err)
					}
				}
			}
			reason, err := p.Report(e+1, "val_loss", v, true)
			if err != nil {
				t.Fatal(err)
			}
			told += reason + ";"
		}
		text, err := os.ReadFile(rungFile(dir, 0))
		if err != nil {
			t.Fatal(err)
		}
		return told + string(text)
	}
	want := play(-1)
	for killed := range losses {
		if got := play(killed); got != want {
			t.Errorf("killed after epoch %d:\n got %s\nwant %s", killed, got, want)
		}
	}
}
