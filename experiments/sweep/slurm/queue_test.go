package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"fulcrum/experiments/sweep/launcher"
)

// A cluster that does not answer is asked again for so long and no longer, and a command that hangs is killed.
func TestSlurmSilent(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	install := func(name, script string) {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	silent := "echo asked >> " + filepath.Join(bin, "log") +
		"; echo 'slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)' >&2; exit 1"
	for _, name := range []string{"sbatch", "squeue", "scancel", "scontrol"} {
		install(name, silent)
	}
	warned := 0
	q := &queue{warn: func(string) { warned++ }, patience: 100 * time.Millisecond}
	_, err := q.arraySize(context.Background())
	var e *SilentError
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "scontrol") ||
		!strings.Contains(err.Error(), "Unable to contact") || !strings.Contains(err.Error(), "run resume") {
		t.Errorf("got %v", err)
	}
	if asked, _ := os.ReadFile(filepath.Join(bin, "log")); strings.Count(string(asked), "\n") < 2 || warned != 1 {
		t.Errorf("asked %q, warned %d times, want more than one question and one warning", asked, warned)
	}

	begin := time.Now()
	err = runCommand(slurmCommand("sleep", "600"), 50*time.Millisecond)
	var s *slurmError
	if !errors.As(err, &s) || !s.unreachable() || !strings.Contains(err.Error(), "sleep: no answer: it did not end within 50ms") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("killed after %v", took)
	}

	t.Run("while jobs are watched", func(t *testing.T) {
		r := newRig(t, nil)
		r.l.queue.patience = 60 * time.Millisecond
		sub := &submission{path: filepath.Join(slurmFolder(r.sweep), "000001"), Nums: []int{0}, Tries: []int{0}}
		r.l.take(sub, "7", []launcher.Job{r.job(0, 1, "count")})
		r.ended()
		if len(r.events) != 1 || !errors.As(r.events[0].Err, &e) {
			t.Errorf("told %+v", r.events)
		}
	})

	install("scontrol", "echo 'scontrol: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host' >&2; echo 'fatal: "+
		"Could not establish a configuration source' >&2; exit 1")
	if _, err := q.arraySize(context.Background()); err == nil || !strings.Contains(err.Error(), "hydra/launcher=local") ||
		!strings.Contains(err.Error(), "Could not establish") {
		t.Errorf("got %v", err)
	}
}

// A sweep started where there is no Slurm says so.
func TestSlurmMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Open(launcher.Request{Sweep: t.TempDir(), Cwd: t.TempDir(), Options: func(any) error { return nil }})
	if err == nil || !strings.Contains(err.Error(), "this machine has no Slurm (there is no command sbatch)") ||
		!strings.Contains(err.Error(), "hydra/launcher=local") {
		t.Errorf("got %v", err)
	}
}

func TestSlurmOptions(t *testing.T) {
	o := DefaultOptions()
	o.Partition, o.CPUsPerTask, o.GPUsPerNode, o.MemGB, o.Name, o.QOS = ptr("gpu"), ptr(4), ptr(1), ptr(8.0), "my run", ptr("high")
	o.AdditionalParameters = map[string]any{"mail_type": "END", "exclusive": true, "requeue_me": false, "nice": 5,
		"w": "node1", "reservation": nil}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	want := []string{"--job-name=my run", "--nodes=1", "--ntasks-per-node=1", "--time=60", "--partition=gpu", "--cpus-per-task=4",
		"--gpus-per-node=1", "--mem=8G", "--qos=high",
		"--exclusive", "--mail-type=END", "--nice=5", "-wnode1"}
	if got := o.resources(); !slices.Equal(got, want) {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
	for _, tc := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.Python = ptr("python3") }, "python: want null"},
		{func(o *Options) { o.SubmititFolder = ptr("/x") }, "submitit_folder: want null"},
		{func(o *Options) { o.SubmititFolder = ptr("/x/.submitit/%j") }, ""},
		{func(o *Options) { o.TimeoutMin = 2 }, "signal_delay_s: want fewer seconds than the 120"},
		{func(o *Options) { o.AdditionalParameters = map[string]any{"cpus_per_task": 3} },
			"additional_parameters.cpus_per_task: use hydra.launcher.cpus_per_task"},
		{func(o *Options) { o.AdditionalParameters = map[string]any{"p": "gpu"} }, "additional_parameters.p: use hydra.launcher.partition"},
		{func(o *Options) { o.AdditionalParameters = map[string]any{"array": "0-3"} },
			"additional_parameters.array: cannot be set: the launcher sets it"},
		{func(o *Options) { o.AdditionalParameters = map[string]any{"ntasks": 2} }, "cannot be set: use nodes and tasks_per_node"},
		{func(o *Options) { o.AdditionalParameters = map[string]any{"nice": []any{1}} }, "additional_parameters.nice: want a text"},
	} {
		o := DefaultOptions()
		tc.change(&o)
		err := o.Validate()
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("got %v, want %s", err, tc.want)
		}
	}
}

func TestRanges(t *testing.T) {
	for want, numbers := range map[string][]int{"": nil, "5": {5}, "0-2": {0, 1, 2}, "0,2-3,7": {0, 2, 3, 7}} {
		if got := ranges(numbers); got != want {
			t.Errorf("%v: got %s, want %s", numbers, got, want)
		}
	}
}

// Every end that Slurm knows, with each record that a supervisor may have left, and what it means.
func TestVerdict(t *testing.T) {
	s := &slurm{sweep: t.TempDir(), opt: DefaultOptions()}
	for _, tc := range []struct{ slurm, record, want, cause string }{
		{"CANCELLED", launcher.Interrupted, launcher.Failed, "cancelled"},
		{"CANCELLED", launcher.Running, launcher.Failed, "cancelled"},
		{"CANCELLED", launcher.Queued, launcher.Failed, "cancelled"},
		{"TIMEOUT", launcher.Running, launcher.Failed, "timeout_min"},
		{"TIMEOUT", launcher.Interrupted, launcher.Failed, "timeout_min"},
		{"OUT_OF_MEMORY", launcher.Running, launcher.Failed, "mem_gb"},
		{"DEADLINE", launcher.Running, launcher.Failed, "DEADLINE"},
		{"PREEMPTED", launcher.Interrupted, launcher.Interrupted, "PREEMPTED"},
		{"PREEMPTED", launcher.Running, launcher.Lost, "PREEMPTED"},
		{"NODE_FAIL", launcher.Running, launcher.Lost, "NODE_FAIL"},
		{"BOOT_FAIL", launcher.Queued, launcher.Lost, "BOOT_FAIL"},
		{"FAILED", launcher.Running, launcher.Lost, "supervisor died"},
		{"FAILED", launcher.Queued, launcher.Failed, "before the program started"},
		{"COMPLETED", launcher.Queued, launcher.Lost, "COMPLETED"},
		{"COMPLETED", launcher.Interrupted, launcher.Interrupted, ""},
		{"", launcher.Running, launcher.Lost, "without a word"},
		{"", launcher.Interrupted, launcher.Interrupted, ""},
	} {
		a := s.verdict(launcher.Attempt{State: tc.record}, slurmTask{state: tc.slurm}, false)
		if a.State != tc.want || !strings.Contains(a.Cause, tc.cause) {
			t.Errorf("%s, %s: got %s (%s), want %s (%s)", tc.slurm, tc.record, a.State, a.Cause, tc.want, tc.cause)
		}
	}
	for _, state := range []string{"PENDING", "SPECIAL_EXIT", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "something new"} {
		if (slurmTask{state: state}).kind() == slurmOver {
			t.Errorf("%s is not the end", state)
		}
	}
}

func ptr[T any](v T) *T { return &v }

// parent is the process that started pid.
func parent(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	n, err := strconv.Atoi(f[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
