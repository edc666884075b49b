//go:build !core

package main

import (
	"math"
	"os"
	"slices"
	"strings"

	"fulcrum/configs"
	"fulcrum/experiments/job"
	"fulcrum/experiments/sweep"
	"fulcrum/experiments/sweep/ask"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/internal/program"
	"fulcrum/internal/usage"
	"fulcrum/reports/sweeps"
)

// askVerb answers a question about a recipe by a study that grows until it is settled.
func askVerb() *verb {
	f := usage.Flags()
	var inv invocation
	var rule sweeps.Ask
	f.Float64Var(&rule.Effect, "effect", 0.02, "the smallest difference of scores that is worth having")
	f.IntVar(&rule.MaxSeeds, "max-seeds", 10, "seeds of each arm at most")
	f.DurationVar(&rule.Budget, "budget", 0, "job time at most, beyond the first two seeds")
	f.BoolVar(&rule.Agreed, "yes", false, "run what the plan says without asking")
	f.StringVar(&inv.configPath, "config-path", "", "as of a run")
	f.StringVar(&inv.configName, "config-name", "", "as of a run")
	f.StringVar(&inv.configDir, "config-dir", "", "as of a run")
	return &verb{
		usage: `run ask exp=okvqa_v3 grpo.kl.target_max=0.12,0.15
run ask exp=okvqa_v3 'schedule=[rce],[rce,grpo]' --effect 0.05 --budget 2h --yes

run ask OVERRIDES… [--effect X] [--max-seeds N] [--budget TIME] [--yes]
    [--config-path DIR] [--config-name NAME] [--config-dir DIR]
run ask SWEEP_FOLDER [--budget TIME] [--yes]
Says whether a change is better, worse or smaller than X (0.02). The values of the swept keys are arms, the first of them the baseline. It
states the question, trains two seeds of each arm, says how many seeds or held-out questions would settle a difference of X and what they
cost, and asks whether to run them (--yes: it does). It adds seeds beyond the first two, at most N (10) of each arm and TIME of job time in
all (90m, 2h), until the question is settled or hopeless by a rule fixed before (docs/sweeps.md), and answers in a sentence, a figure and
rows of LaTeX: answer.md of the sweep folder. Without --yes and a terminal it ends with the plan; with the folder it goes on, as the
command resume does.
`,
		flags:     f,
		overrides: true,
		run: func(s *session, args []string) error {
			switch {
			case len(args) == 0:
				return usage.Errorf("want a question: `run ask exp=okvqa_v3 'schedule=[rce],[rce,grpo]'`")
			case !(rule.Effect > 0 && rule.Effect < math.MaxFloat64):
				return usage.Errorf("--effect %g: want a difference worth having, above 0, as in --effect 0.02", rule.Effect)
			case rule.MaxSeeds < 3 || rule.MaxSeeds > 100:
				return usage.Errorf("--max-seeds %d: want from 3 to 100: two seeds cannot tell what others would do", rule.MaxSeeds)
			case rule.Budget < 0 || rule.Budget == 0 && f.Changed("budget"):
				return usage.Errorf("--budget %s: want a time above 0, as in --budget 2h", rule.Budget)
			}
			if len(args) == 1 && ledger.Exists(args[0]) {
				for _, name := range []string{"config-path", "config-name", "config-dir"} {
					if f.Changed(name) {
						return usage.Errorf("%s: --%s: a question keeps its configuration: leave it out", args[0], name)
					}
				}
				err := sweep.Agree(args[0], func(kept *sweeps.Ask) error {
					if f.Changed("effect") && rule.Effect != kept.Effect || f.Changed("max-seeds") && rule.MaxSeeds != kept.MaxSeeds {
						return usage.Errorf("%s: its rule, fixed before its first run, has --effect %g --max-seeds %d: ask again in another "+
							"hydra.sweep.dir", args[0], kept.Effect, kept.MaxSeeds)
					}
					if f.Changed("budget") {
						kept.Budget = rule.Budget
					}
					kept.Agreed = kept.Agreed || rule.Agreed
					return nil
				})
				if err != nil {
					return err
				}
				return ask.GoOn(s.ctx, s.app, args[0])
			}
			for _, arg := range args {
				if !strings.Contains(arg, "=") && !strings.HasPrefix(arg, "~") {
					return usage.Errorf("%s: neither an override, as in 'schedule=[rce],[rce,grpo]', nor alone and a folder with a question; to go on "+
						"with a run or sweep: %s", arg, program.OnFolder("resume", arg))
				}
			}
			inv.args, inv.multirun = args, true
			req, err := s.request(&inv)
			if err != nil {
				return err
			}
			rewards := func(c *configs.Composed) (least, greatest float64, ok bool) {
				if config, err := job.Decode(c); err == nil {
					least, greatest, ok = config.RewardRange()
				}
				return least, greatest, ok
			}
			return ask.Start(s.ctx, s.app, req, rule, rewards, slices.Concat([]string{program.Called()}, os.Args[1:]))
		},
	}
}
