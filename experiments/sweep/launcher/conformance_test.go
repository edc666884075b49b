package launcher_test

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"fulcrum/configs"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/slurm"
	"fulcrum/internal/registry"
	"fulcrum/internal/testkit/slurmtest"
)

// buildStandin builds the program that stands in for ours.
func buildStandin(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "standin")
	if out, err := exec.Command("go", "build", "-o", path, "../slurm/testdata/standin").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// withToy is the table with one launcher more.
func withToy() *registry.Table[func(launcher.Request) (launcher.Open, error)] {
	t := launcher.Table(slurm.Open)
	t.Add("toy", launcher.Toy)
	return t
}

func defaults(any) error { return nil }

// openNamed opens a launcher with the options of the library's hydra/launcher=NAME.
func openNamed(t *testing.T, name, sweep, program string) launcher.Launcher {
	t.Helper()
	r := launcher.Request{Name: name, Sweep: sweep, Cwd: t.TempDir(), Options: defaults}
	if name != "toy" {
		c, err := configs.Compose(configs.Request{Library: configs.Library(), Overrides: []string{"hydra/launcher=" + name}, AppName: "run"})
		if err != nil {
			t.Fatal(err)
		}
		r.Options = func(dst any) error { return c.DecodeHydra("launcher", dst) }
	}
	open, err := launcher.PrepareFrom(withToy(), r)
	if err != nil {
		t.Fatal(err)
	}
	l, err := open(program)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestConformance(t *testing.T) { conformance(t, false) }

func TestOnSlurmConformance(t *testing.T) {
	slurmtest.Start(t)
	conformance(t, true)
}

// conformance runs over every launcher of the table that hands jobs to a cluster, or over every other.
func conformance(t *testing.T, cluster bool) {
	names := withToy().Names()
	if len(names) < 7 {
		t.Fatalf("launchers: %v", names)
	}
	program := buildStandin(t)
	for _, name := range names {
		if strings.HasSuffix(name, "slurm") == cluster {
			t.Run(name, func(t *testing.T) { endsAreTold(t, name, program) })
			t.Run(name+" stopped", func(t *testing.T) { stopIsObeyed(t, name, program) })
		}
	}
}

// endsAreTold: a launcher tells of each job's start and end once, in that order, whatever becomes of the job, leaves the
// record of its attempts, and closes its events when it is stopped.
func endsAreTold(t *testing.T, name, program string) {
	sweep := filepath.Join(t.TempDir(), "sweep")
	l := openNamed(t, name, sweep, program)
	kinds := []string{"count", "fail", "count", "kill", "count"}
	var jobs []launcher.Job
	for num, kind := range kinds {
		dir := filepath.Join(sweep, strconv.Itoa(num))
		jobs = append(jobs, launcher.Job{Num: num, Sweep: sweep, Dir: dir, Cwd: t.TempDir(), Threads: 1, Args: []string{"2", kind, dir}})
	}
	if adopted, err := l.Adopt(t.Context(), jobs); err != nil || len(adopted) > 0 {
		t.Errorf("jobs that nobody has seen are adopted: %v, %v", adopted, err)
	}
	for _, batch := range [][]launcher.Job{jobs[:3], jobs[3:]} {
		if err := l.Submit(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	told := map[int]string{}
	for ended := 0; ended < len(jobs); {
		a, more := nextEvent(t, l)
		if !more || a.Err != nil {
			t.Fatalf("events end after %v: %v", told, a.Err)
		}
		told[a.Num] += fmt.Sprintf("%s %d,", a.State, a.Try)
		if a.State != launcher.Running {
			ended++
		}
	}
	for num, kind := range kinds {
		end := launcher.Failed
		if kind == "count" {
			end = launcher.Done
		}
		if want := "running 1," + end + " 1,"; told[num] != want {
			t.Errorf("job %d (%s): told %q, want %q", num, kind, told[num], want)
		}
		all, err := launcher.Attempts(jobs[num].Dir)
		if err != nil || len(all) != 1 || all[0].State != end {
			t.Errorf("job %d (%s): recorded %+v, %v", num, kind, all, err)
		}
	}
	l.Stop(false)
	if a, more := nextEvent(t, l); more {
		t.Errorf("an event behind the last: %+v", a)
	}
}

// stopIsObeyed: a launcher that is told to cancel ends what it runs and says so.
func stopIsObeyed(t *testing.T, name, program string) {
	sweep := filepath.Join(t.TempDir(), "sweep")
	l := openNamed(t, name, sweep, program)
	dir := filepath.Join(sweep, "0")
	job := launcher.Job{Num: 0, Sweep: sweep, Dir: dir, Cwd: t.TempDir(), Threads: 1, Args: []string{"6000", "count", dir}}
	if err := l.Submit(t.Context(), []launcher.Job{job}); err != nil {
		t.Fatal(err)
	}
	if a, _ := nextEvent(t, l); a.State != launcher.Running {
		t.Fatalf("the first event: %+v", a)
	}
	l.Stop(true)
	last := ""
	for a, more := nextEvent(t, l); more; a, more = nextEvent(t, l) {
		last = a.State
	}
	if last != launcher.Interrupted {
		t.Errorf("the last event said %q, want interrupted", last)
	}
}

// nextEvent waits for an event; more is false behind the last.
func nextEvent(t *testing.T, l launcher.Launcher) (a launcher.Attempt, more bool) {
	t.Helper()
	select {
	case a, more = <-l.Events():
		return a, more
	case <-time.After(2 * time.Minute):
		t.Fatal("no event for two minutes")
	}
	return a, false
}

// A name that is not in the table is refused with the nearest one, one of an annex that is not built in with the annex, and options
// that a launcher refuses end it before anything is opened.
func TestPrepare(t *testing.T) {
	_, err := launcher.Prepare(launcher.Request{Name: "lokal", Options: defaults})
	if err == nil || !strings.Contains(err.Error(), "did you mean local?") {
		t.Errorf("an unknown launcher: %v", err)
	}
	_, err = launcher.Prepare(launcher.Request{Name: "slurm", Options: defaults})
	if err == nil || err.Error() != `hydra/launcher=slurm: this program is built without the annex "Slurm"` {
		t.Errorf("a launcher that is not built in: %v", err)
	}
	bad := errors.New("hydra.launcher.x: unknown key")
	for _, name := range withToy().Names() {
		r := launcher.Request{Name: name, Sweep: t.TempDir(), Options: func(any) error { return bad }}
		if _, err := launcher.PrepareFrom(withToy(), r); !errors.Is(err, bad) {
			t.Errorf("%s: options that are wrong: %v", name, err)
		}
	}
}
