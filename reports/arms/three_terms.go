package arms

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
)

// threeTerms splits the gain of an arm over its initial policy (arXiv:2606.05932 eq. 3, "true minus random" and what it hides):
//
//	null         what training does whatever is rewarded: the placebo over its initial policy
//	elicitation  what agreeing with itself adds: majority minus placebo
//	reward       what the true rewards add: none minus majority
//
// Their sum is the gain. Each is a comparison of the table's family, so that no question has two intervals on a page.
type threeTerms struct {
	none, placebo armRow
	terms         []term
}

// term is one of three, and what it is the difference of. turned: c compares the two arms the other way round.
type term struct {
	of     string
	c      *ArmComparison
	turned bool
}

// controlOf is what the training rewards of a run were subject to.
func controlOf(run *record.Run) string {
	if control, ok := run.Setting("control").(string); ok {
		return control
	}
	return "none" // of an older program
}

// controlled finds arms that differ in control alone: the places of one with none, one with a placebo and one with majority.
func controlled(runs []*record.Run) (triples [][3]int) {
	others := func(of int, begins string) (at []int) {
		want := settingOf(runs[of])
		want["control"] = ""
		for i, run := range runs {
			setting := settingOf(run)
			setting["control"] = ""
			if strings.HasPrefix(controlOf(run), begins) && maps.Equal(want, setting) {
				at = append(at, i)
			}
		}
		return at
	}
	for none, run := range runs {
		if majority := others(none, "majority"); controlOf(run) == "none" && len(majority) > 0 {
			for _, placebo := range others(none, "placebo") {
				triples = append(triples, [3]int{none, placebo, majority[0]})
			}
		}
	}
	return triples
}

// Controls reports whether some of the arms split a gain in three terms; if controls differ and none do, missing says what is wanted.
func Controls(arms []ComparedArm) (split bool, missing string) {
	var runs []*record.Run
	found := map[string]bool{}
	for _, a := range arms {
		runs, found[controlOf(a.Runs[0])] = append(runs, a.Runs[0]), true
	}
	if split = len(controlled(runs)) > 0; split || len(found) == 1 {
		return split, ""
	}
	return false, fmt.Sprintf("The gain is split in null, elicitation and reward over runs that differ in `control` alone and have none, a "+
		"placebo and majority; here are %s.", page.Joined(slices.Sorted(maps.Keys(found))))
}

// splitGains makes the terms of a table's arms; opt is that of its comparisons.
func (t *ArmTable) splitGains(opt stats.Options) {
	runs := list.Map(t.Rows, func(r armRow) *record.Run { return r.Runs[0] })
	own := t.gain() >= 0 && t.yards[t.gain()].Policy == record.PolicyInit
	for _, at := range controlled(runs) {
		g := threeTerms{none: t.Rows[at[0]], placebo: t.Rows[at[1]]}
		elicitation, reward := t.between(at[2], at[1], opt), t.between(at[0], at[2], opt)
		if !own || g.none.Gain == nil || g.placebo.Gain == nil || elicitation.c == nil || reward.c == nil {
			t.unsplit = "The gain is not split in null, elicitation and reward: some of its arms, or their initial policies, were not scored on " +
				"the same questions."
			continue
		}
		g.terms = []term{{of: g.placebo.Name + " over its initial policy", c: g.placebo.Gain}, elicitation, reward}
		if sum := g.sum(); math.Abs(sum-g.none.Gain.Mean) > 1e-6 {
			t.unsplit = "The gain is not split in null, elicitation and reward: the arms began with different policies. Give them the same seeds."
			continue
		}
		t.split = append(t.split, g)
	}
}

// between compares two arms, by the table's own comparison where it makes one.
func (t *ArmTable) between(i, k int, opt stats.Options) term {
	a, b := t.Rows[i], t.Rows[k]
	of := term{of: a.Name + " minus " + b.Name}
	switch {
	case k == 0 && a.Difference != nil:
		of.c = a.Difference
	case i == 0 && b.Difference != nil:
		of.c, of.turned = b.Difference, true
	default:
		for _, g := range t.split {
			for _, other := range g.terms {
				if other.of == of.of {
					return other
				}
			}
		}
		if c, err := a.unsettled(b.Arm, opt); err == nil {
			of.c = &c
		}
	}
	return of
}

// sum returns what the terms add up to.
func (g threeTerms) sum() (sum float64) {
	for _, one := range g.terms {
		if c := one.c; one.turned {
			sum -= c.Mean
		} else {
			sum += c.Mean
		}
	}
	return sum
}

// own returns the comparisons that only the terms make.
func (g threeTerms) own(rows []armRow) []*ArmComparison {
	all := list.Map(g.terms, func(one term) *ArmComparison { return one.c })
	return list.Filter(all, func(c *ArmComparison) bool {
		return !slices.ContainsFunc(rows, func(r armRow) bool { return slices.Contains(r.Made(), c) })
	})
}

// reversed is the comparison of the same arms the other way round.
func (c ArmComparison) reversed() *ArmComparison {
	c.Mean, c.Effect, c.Interval = -c.Mean, -c.Effect, stats.Interval{Low: -c.Interval.High, High: -c.Interval.Low}
	switch c.Verdict {
	case stats.Better:
		c.Verdict = stats.Worse
	case stats.Worse:
		c.Verdict = stats.Better
	}
	return &c
}

func (g threeTerms) write(d *page.Document, metric string) {
	var rows [][]string
	var found []string
	for i, what := range []string{"null: whatever is rewarded", "elicitation: agreeing with itself", "reward: the true rewards"} {
		c := g.terms[i].c
		if g.terms[i].turned {
			c = c.reversed()
		}
		gain, p, _, verdict := c.Cells()
		rows = append(rows, []string{what, g.terms[i].of, gain, p, verdict})
		if name, _, _ := strings.Cut(what, ":"); c.Changed > 0 && c.Verdict != stats.NotSeparable {
			mean, _, _ := c.Texts()
			found = append(found, fmt.Sprintf("%s (%s)", name, mean))
		}
	}
	d.Table([]string{"term of the gain", "difference", ">" + results.MetricName(metric), ">p (Holm)", "verdict"}, rows)
	said := "No term can be told from 0."
	if len(found) > 0 {
		said = fmt.Sprintf("Told from 0: %s.", page.Joined(found))
	}
	sum, _, _ := g.none.Gain.Texts()
	d.Paragraph("Null + elicitation + reward is the gain of %s over its initial policy, %s (arXiv:2606.05932). %s", g.none.Name,
		sum, said)
}
