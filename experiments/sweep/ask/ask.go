// Package ask answers one question about a recipe: it makes the values that overrides name the arms of a study, trains two seeds of each,
// says what it takes to settle the question, and adds seeds until it is settled or hopeless by a rule that was fixed before
// (sweeps.Ask). It is a front of the sweep: all its state is the study's ledger.
//
//	err := ask.Start(ctx, app, request, sweeps.Ask{Effect: 0.02, MaxSeeds: 10}, rewards, command)
package ask

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/term"

	"fulcrum/configs"
	"fulcrum/experiments/sweep"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/internal/program"
	"fulcrum/internal/stdout"
	"fulcrum/reports/page"
	"fulcrum/reports/sweeps"
)

// Rewards returns what rewards lie between; ok is false where the configuration does not decide it.
type Rewards func(c *configs.Composed) (least, greatest float64, ok bool)

// Start asks what the overrides of a request ask, in a new sweep folder. command repeats it.
func Start(ctx context.Context, runs sweep.Runs, req configs.Request, rule sweeps.Ask, rewards Rewards, command []string) error {
	study, err := studyOf(req, rule.Effect, rewards)
	if err != nil {
		return err
	}
	dir, err := sweep.Create(ctx, runs, study, rule, command)
	if err != nil || !ledger.Exists(dir) { // a dry run leaves no sweep
		return err
	}
	return GoOn(ctx, runs, dir)
}

// GoOn goes on with the question of a sweep folder; it leaves alone a sweep that asks none.
func GoOn(ctx context.Context, runs sweep.Runs, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for told := false; ; told = true {
		q, err := read(dir)
		if err != nil || q == nil {
			return err
		}
		if !told {
			stdout.Printf("%s%s\n%s", q.asked(page.PlainText), q.rule.Rule(), q.first())
		}
		if !q.trained() {
			if err := sweep.Own(dir, q.unanswered); err != nil {
				return err
			}
			if err := sweep.Resume(ctx, runs, dir, sweep.Resumption{Retry: true}); err != nil {
				return err
			}
			continue
		}
		now, err := q.judge()
		if err != nil {
			return err
		}
		if now.ended {
			if err := sweep.End(dir); err != nil {
				return err
			}
		}
		waits := now.seeds > 0 && !q.rule.Agreed
		if now.seeds > 0 {
			now.state += " " + q.plan(now.seeds)
		}
		if stdout.Width() == 0 && (now.seeds == 0 || waits) { // a terminal has the table already
			stdout.Print(q.table)
		}
		for _, a := range q.answers {
			stdout.Printf("%s\n", page.PlainText(page.Markup(a.Sentence)))
		}
		stdout.Printf("%s\n", now.state)
		if waits && agreed() {
			if err := sweep.Agree(dir, func(rule *sweeps.Ask) error { rule.Agreed = true; return nil }); err != nil {
				return err
			}
			waits = false
		}
		if waits {
			how := "To run them: " + program.OnFolder("ask", dir, "--yes")
			stdout.Printf("%s\n", how)
			now.state += " " + how
		}
		if err := q.write(now.state); err != nil {
			return err
		}
		if now.seeds == 0 || waits {
			stdout.Printf("answer: %s, figures/answers.pdf, %s\n", filepath.Join(dir, sweeps.AnswerFile), rowFile)
			return nil
		}
		if err := sweep.Grow(runs, dir, now.seeds); err != nil {
			return err
		}
	}
}

// agreed asks on a terminal whether to follow the plan above. Elsewhere nobody can say yes.
func agreed() bool {
	if stdout.Width() == 0 || !term.IsTerminal(int(os.Stdin.Fd())) {
		return false
	}
	stdout.Print("Run them? [y/N] ")
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n') // an end of the input is a no
	return strings.HasPrefix(strings.ToLower(strings.TrimSpace(line)), "y")
}
