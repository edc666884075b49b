package sweep

import (
	"errors"
	"testing"

	"fulcrum/configs"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/experiments/sweep/sweeper"
)

// asked is a search that says what it was asked.
type asked struct{ history []sweeper.Trial }

var errAsked = errors.New("asked")

func (a *asked) Next(history []sweeper.Trial) ([]string, error) {
	a.history = history
	return nil, errAsked
}

// A trial that was given up as lost takes no place, and its search does not wait for it.
func TestSearchGoesOnBehindALostTrial(t *testing.T) {
	search := &asked{}
	c := &controller{plan: &plan{search: search, options: sweeper.Options{NJobs: 1, NTrials: 3},
		dims: []configs.Dimension{{Choices: []string{"a", "b", "c"}}}}, jobs: []ledger.Job{{State: launcher.Lost}}}
	if err := c.propose(); !errors.Is(err, errAsked) {
		t.Errorf("the search is not asked for a trial: %v", err)
	} else if search.history[0].State != launcher.Failed {
		t.Errorf("the search sees a trial that is %s", search.history[0].State)
	}
}

// A search learns from trials by one metric.
func TestSearchOfOwnMetrics(t *testing.T) {
	job := func(num int, metric string) ledger.Job {
		return ledger.Job{Num: num, Objectives: []ledger.Objective{{Name: metric}}}
	}
	c := &controller{plan: &plan{search: &asked{}}, jobs: []ledger.Job{job(0, "val_reward"), {Num: 1}}}
	for metric, want := range map[string]string{"val_reward": "", "val_loss": "its own metric is val_loss, that of job 0 val_reward"} {
		c.jobs[1] = job(1, metric)
		got := ""
		if err := c.alike(&c.jobs[1]); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", metric, got, want)
		}
	}
	c.plan.search = nil
	if err := c.alike(&c.jobs[1]); err != nil {
		t.Errorf("jobs that are known from the start: %v", err)
	}
}
