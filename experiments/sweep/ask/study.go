package ask

import (
	"fmt"
	"slices"
	"strings"

	"fulcrum/configs"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/list"
	"fulcrum/internal/usage"
)

// maxArms is how many arms have a letter for their name.
const maxArms = 26

// studyOf turns a request whose overrides sweep some keys into that of a study: each point of the grid is an arm, the first one the
// baseline, and each other arm is a question. The study owns the seeds. An effect beyond what two rewards can differ by is refused.
func studyOf(req configs.Request, effect float64, rewards Rewards) (configs.Request, error) {
	req.Multirun = true
	composer, err := configs.NewComposer(req)
	if err != nil {
		return req, err
	}
	master, err := composer.Compose()
	if err != nil {
		return req, err
	}
	if name := master.Choice("hydra/sweeper"); name != sweeper.Basic {
		return req, usage.Errorf("ask: hydra/sweeper=%s chooses the jobs itself, and so does a question: want values, as in grpo.lr=1e-5,1e-4, "+
			"and no sweeper", name)
	}
	dims, fixed, err := composer.Space(master)
	if err != nil {
		return req, err
	}
	seed := func(override string) bool { return strings.HasPrefix(strings.TrimLeft(override, "+"), "seed=") }
	if slices.ContainsFunc(req.Overrides, seed) || slices.ContainsFunc(dims, func(d configs.Dimension) bool { return seed(d.Key + "=") }) {
		return req, usage.Errorf("ask: it chooses the seeds itself, 0, 1, … as many as the question needs: leave seed out")
	}
	points, err := composer.Jobs(master)
	if err != nil {
		return req, err
	}
	if len(points) < 2 {
		return req, usage.Errorf("ask: one arm is no question: give some key several values, as in 'schedule=[rce],[rce,grpo]'")
	}
	if len(points) > maxArms {
		return req, usage.Errorf("ask: %d arms: want at most %d, the first of which the others are held against; among more, search: "+
			"hydra/sweeper=tpe", len(points), maxArms)
	}
	if baseline, err := composer.Job(master, 0, points[0]); err == nil { // else the plan refuses it
		if least, greatest, ok := rewards(baseline); ok && effect >= greatest-least {
			return req, usage.Errorf("--effect %g: rewards lie between %g and %g here: want a difference worth having below %g, as in "+
				"--effect %g", effect, least, greatest, greatest-least, (greatest-least)/50)
		}
	}
	swept := func(override string) bool {
		return slices.ContainsFunc(dims, func(d configs.Dimension) bool { return strings.HasPrefix(override, d.Key+"=") })
	}
	var arms, questions, labels []string
	for i, point := range points {
		own := list.Filter(point, swept)
		labels = append(labels, strings.Join(own, ", "))
		arms = append(arms, fmt.Sprintf("%c: {label: %s, overrides: [%s]}", 'A'+i, configs.Quote(labels[i]),
			strings.Join(list.Map(own, configs.Quote), ", ")))
		if i > 0 {
			questions = append(questions, fmt.Sprintf("{ask: %s, arm: %c, against: A}", configs.Quote("Is "+labels[i]+" better than "+labels[0]),
				'A'+i))
		}
	}
	req.Overrides = slices.Concat(master.HydraOverrides(), fixed, []string{"seed=range(0,2)", "hydra/sweeper=" + sweeper.Study,
		"hydra.sweeper.params=null", "+hydra.sweeper.arms={" + strings.Join(arms, ", ") + "}",
		"hydra.sweeper.questions=[" + strings.Join(questions, ", ") + "]"})
	return req, nil
}
