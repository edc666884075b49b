package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// inside makes the test's own program bench, as its measuring processes are of the same program.
const inside = "FULCRUM_TEST_AS_BENCH"

func TestMain(m *testing.M) {
	if os.Getenv(inside) != "" {
		main()
	}
	os.Exit(m.Run())
}

// result is a process that has ended.
type result struct {
	stdout, stderr string
	code           int
}

// run calls bench in a process of its own.
func run(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), inside+"=1"), &stdout, &stderr
	var ended *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	if strings.Contains(stderr.String(), "goroutine ") {
		t.Errorf("%v shows a stack trace:\n%s", args, stderr.String())
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

func TestCommandLine(t *testing.T) {
	for args, want := range map[string]result{
		"":                                 {"bench losses --help", "", 0},
		"workloads --help":                 {"rl_k64_b32         800 queries, K=64, 5 to 16 candidates, batch 32\n", "", 0},
		"losses -h":                        {"--device string", "", 0},
		"workload":                         {"", `unknown command "workload"`, 2},
		"losses cpu":                       {"", `want no word "cpu"`, 2},
		"losses --devic cpu":               {"", "bench losses: unknown flag --devic (did you mean --device?)", 2},
		"workloads --repeats x":            {"", "bench workloads: --repeats x: want a whole number", 2},
		"measure":                          {"", "want one argument", 2},
		"workloads --format csv":           {"", "--format=csv: want table", 2},
		"workloads --format specs":         {"", "give --dir", 2},
		"workloads legacy_k64":             {"", "legacy_k64_b32", 1},
		"workloads legacy_k64_b32 g.k.b=1": {"", "g.k.b", 1},
	} {
		got := run(t, strings.Fields(args)...)
		if got.code != want.code || !strings.Contains(got.stdout, want.stdout) || !strings.Contains(got.stderr, want.stderr) ||
			strings.Count(got.stderr, "bench: ") > 1 {
			t.Errorf("bench %s: exit code %d, %q, %q; want %+v", args, got.code, got.stdout, got.stderr, want)
		}
	}
}
