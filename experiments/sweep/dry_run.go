package sweep

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"fulcrum/experiments/runfolder"
	"fulcrum/internal/interrupt"
	"fulcrum/internal/program"
	"fulcrum/internal/stdout"
	"fulcrum/reports/page"
)

// dryRun makes the dry run of each job, one after another in processes of their own on this machine, and writes nothing. Of a search,
// whose jobs nobody knows yet, it takes the corners of the space. A job that starts from what another one trains cannot be tried.
func (p *plan) dryRun(ctx context.Context, jobs []planned) error {
	if err := runfolder.Usable(p.dir); err != nil {
		return err
	}
	if p.search != nil {
		for i, point := range corners(p.dims) {
			if one, err := p.compose(i, p.overrides(point), strconv.Itoa(i)); err == nil { // checkSpace has named the others
				jobs = append(jobs, one)
			}
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	defer interrupt.Hold(nil).Release() // a signal goes on to the job that is tried
	tried := 0
	var failed []string
	for _, j := range jobs {
		name := fmt.Sprintf("#%d", j.row.Num)
		stdout.Printf("%s %s\n", name, strings.Join(j.row.Overrides, " "))
		if j.row.Parent != nil {
			stdout.Printf("starts from what #%d trains: only its configuration was checked\n", *j.row.Parent)
			continue
		}
		cmd := exec.CommandContext(ctx, self, j.start.Args...)
		cmd.Args[0] = program.Called()
		cmd.Env = slices.Concat(os.Environ(), expecting(j.start, j.row.Fingerprint).Env)
		cmd.Stdout, cmd.Stderr = stdout.Writer(), os.Stderr
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		err := cmd.Run()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if tried++; err != nil {
			failed = append(failed, name)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %s would not start (%s), as said above", len(failed), page.Plural(tried, "job"), strings.Join(failed, ", "))
	}
	stdout.Printf("%s tried, nothing was trained or written\n", page.Plural(tried, "job"))
	return nil
}
