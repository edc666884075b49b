package sweeper

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"fulcrum/internal/option"
	"fulcrum/internal/registry"
	"fulcrum/reports/sweeps"
)

// Study is the sweeper of arms: named settings, crossed with whatever else is swept, of which one may start
// from the checkpoint that another has trained with the same seed. Its jobs are known before the first starts.
const Study = "study"

// ArmOptions is one arm of a study.
type ArmOptions struct {
	// arm whose finished run, of the same seed and the same other swept values, this one starts from
	// (init.checkpoint); null = fresh weights
	From *string `koanf:"from"`
	// which of that run's checkpoints; null = last: every step of the stage before is behind the next one, as
	// in a schedule of both
	Checkpoint *string `koanf:"checkpoint" enum:"last,best"`
	// key that names that checkpoint to this arm; null = init.checkpoint, which goes on with what was trained
	// there; vl.path and seq2seq.path start from the model that came of it, adapters merged
	As *string `koanf:"as" enum:"init.checkpoint,vl.path,seq2seq.path"`
	// what the arm sets; the command line comes after it
	Overrides []string `koanf:"overrides"`
	// what reports call it; null = its name
	Label *string `koanf:"label"`
}

// QuestionOptions is one comparison that a study is made for.
type QuestionOptions struct {
	// the question, as the report prints it
	Ask string `koanf:"ask"`
	// arm that is judged
	Arm string `koanf:"arm"`
	// arm, or one of init, random, similarity, majority, best_beam, oracle
	Against string `koanf:"against"`
	// val or the name of the held-out set; null = held-out where there is one
	Split *string `koanf:"split"`
	// reward or accuracy; null = reward
	Metric *string `koanf:"metric" enum:"reward,accuracy"`
}

// startKey is the key by which an arm is told where to start, unless it says otherwise.
const startKey = "init.checkpoint"

func (a ArmOptions) as() string { return option.Or(a.As, startKey) }

// study checks arms and questions: names, parents, circles.
func (o Options) study() error {
	var errs []error
	names := slices.Sorted(maps.Keys(o.Arms))
	for _, name := range names {
		arm := o.Arms[name]
		// It may stand as a key, a value of the override grammar and a word in a table.
		if !regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]*$`).MatchString(name) {
			errs = append(errs, option.Errorf("arms."+name, "want a name of letters, digits, _ and -, got %q", name))
		}
		if slices.Contains(sweeps.StudyBaselines(), name) {
			errs = append(errs, option.Errorf("arms."+name, "%s is a baseline that every study has: want another name", name))
		}
		for i, override := range arm.Overrides {
			key, _, ok := strings.Cut(override, "=")
			if !ok && !strings.HasPrefix(override, "~") {
				errs = append(errs, option.Errorf(fmt.Sprintf("arms.%s.overrides.%d", name, i), "want key=value, got %s", override))
			}
			if key = strings.TrimLeft(key, "+~"); arm.From != nil && key == arm.as() || key == "seed" || strings.HasPrefix(key, "hydra") {
				errs = append(errs, option.Errorf(fmt.Sprintf("arms.%s.overrides.%d", name, i), "%s: the study itself sets %s", override, key))
			}
		}
		switch {
		case arm.From == nil && arm.Checkpoint != nil:
			errs = append(errs, option.Errorf("arms."+name+".checkpoint", "want from as well: the arm that the checkpoint is of"))
		case arm.From == nil && arm.As != nil:
			errs = append(errs, option.Errorf("arms."+name+".as", "want from as well: the arm that it starts from"))
		case arm.From == nil:
		case !has(o.Arms, *arm.From):
			errs = append(errs, option.Errorf("arms."+name+".from", "%v", registry.Unknown("arm", *arm.From, names)))
		default:
			if circle := o.circle(name); circle != nil && circle[0] == slices.Min(circle) { // once, not from each of its arms
				errs = append(errs, option.Errorf("arms."+name+".from",
					"the arms %s start from each other: one of them must start from fresh weights", strings.Join(append(circle, name), " ← ")))
			}
		}
	}
	against := append(slices.Clone(names), sweeps.StudyBaselines()...)
	for i, q := range o.Questions {
		key := fmt.Sprintf("questions.%d.", i)
		if !has(o.Arms, q.Arm) {
			errs = append(errs, option.Errorf(key+"arm", "%v", registry.Unknown("arm", q.Arm, names)))
		}
		if !slices.Contains(against, q.Against) {
			errs = append(errs, option.Errorf(key+"against", "%v", registry.Unknown("arm or baseline", q.Against, against)))
		} else if q.Against == q.Arm {
			errs = append(errs, option.Errorf(key+"against", "want another arm than %s, or a baseline", q.Arm))
		}
		if strings.TrimSpace(q.Ask) == "" {
			errs = append(errs, option.Errorf(key+"ask", "want the question in words"))
		}
	}
	return errors.Join(errs...)
}

func has(arms map[string]ArmOptions, name string) bool { _, ok := arms[name]; return ok }

// circle returns the arms from name back to name, nil where the way back ends at fresh weights, elsewhere or nowhere.
func (o Options) circle(name string) []string {
	way := []string{name}
	for at := o.Arms[name]; at.From != nil && len(way) <= len(o.Arms); at = o.Arms[*at.From] {
		if *at.From == name {
			return way
		}
		way = append(way, *at.From)
	}
	return nil
}

// StudyOf returns the study that the options declare, its arms in the order of their names in the file, an arm
// behind the one that it starts from.
func (o Options) StudyOf(order []string) *sweeps.Study {
	s := &sweeps.Study{}
	placed := map[string]bool{}
	var place func(name string)
	place = func(name string) {
		opt, ok := o.Arms[name]
		if !ok || placed[name] {
			return
		}
		placed[name] = true
		arm := sweeps.StudyArm{Name: name, Label: option.Or(opt.Label, name), Overrides: opt.Overrides}
		if opt.From != nil {
			place(*opt.From)
			arm.From, arm.Checkpoint = *opt.From, option.Or(opt.Checkpoint, "last")
			if key := opt.as(); key != startKey {
				arm.As = key
			}
		}
		s.Arms = append(s.Arms, arm)
	}
	for _, name := range append(slices.Clone(order), slices.Sorted(maps.Keys(o.Arms))...) {
		place(name)
	}
	for _, q := range o.Questions {
		s.Questions = append(s.Questions, sweeps.StudyQuestion{Ask: q.Ask, Arm: q.Arm, Against: q.Against,
			Split: option.Or(q.Split, ""), Metric: option.Or(q.Metric, "")})
	}
	return s
}
