package experiments_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// worked is the processor time that a process has taken: a loaded machine does not change when it is at its work.
func worked(p *process) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Cmd.Process.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / 100 // USER_HZ
}

// bigRun is a copy of a run with so many rows that every command that reads them is at it for seconds.
func bigRun(t *testing.T) string {
	t.Helper()
	dir := folder(t)
	if err := os.CopyFS(dir, os.DirFS(undrawn(t))); err != nil {
		t.Fatal(err)
	}
	metrics := filepath.Join(dir, "metrics.jsonl")
	text := read(t, metrics)
	at := strings.Index(text, `{"kind":"step"`)
	step, _, _ := strings.Cut(text[at:], "\n")
	write(t, metrics, text+strings.Repeat(step+"\n", (100<<20)/len(step)))
	return dir
}

// bigBeams is a beam file that takes more than a second to read: each record has its first trajectory 40,000 times.
func bigBeams(t *testing.T) []string {
	t.Helper()
	rs := records()
	for i := range rs {
		rs[i].Candidates = rs[i].Candidates[:1]
	}
	first := regexp.MustCompile(`"pointer_candidates":\[(\{[^}]*\})\]`)
	return beamText(t, first.ReplaceAllStringFunc(beamLines(t, rs), func(s string) string {
		one := first.FindStringSubmatch(s)[1]
		return `"pointer_candidates":[` + one + strings.Repeat(","+one, 39_999) + "]"
	}))
}

// TestFirstSignalEnds: a command that has no state to save ends at the first signal, at once, with 143 or 130 and one
// line, and leaves nothing temporary. What it reads, plans or prints would go on six times as long at least.
func TestFirstSignalEnds(t *testing.T) {
	t.Parallel()
	run0, data := bigRun(t), bigBeams(t)
	file := strings.TrimPrefix(data[1], "data.beams=")
	out := filepath.Join(filepath.Dir(folder(t)), "out.csv")
	temporary := filepath.Dir(folder(t))
	planned, reading := folder(t), folder(t)
	grid := func(more ...string) []string {
		return tiny(append([]string{"-m", "seed=range(20000)", "report.plots=false", "hydra.sweep.dir=" + planned}, more...)...)
	}
	for i, tc := range []struct {
		name string
		args []string
		want string // the one line
	}{
		{"export to a file", []string{"export", run0, "--what", "metrics", "--out", out}, ""},
		{"export to a pipe", []string{"export", run0, "--what", "metrics"}, ""},
		{"report", []string{"report", run0}, ""},
		{"report of two", []string{"report", run0, undrawn(t)}, ""},
		{"verify", []string{"verify", run0}, ""},
		{"status", []string{"status", run0}, ""},
		{"watch", []string{"watch", run0}, ""},
		{"data inspect", []string{"data", "inspect", file}, ""},
		{"a dry run", small(data, "dry_run=true", "hydra.run.dir="+folder(t)), ""},
		{"data of a run", small(data, "hydra.run.dir="+reading), "nothing is saved yet, start again with: `run resume " + reading + "`"},
		{"planning", grid(), ""},
		{"planning dry runs", grid("dry_run=true"), ""},
		{"listing jobs", grid("--cfg", "sweep"), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stop, code := syscall.SIGTERM, 143
			if i%2 == 1 {
				stop, code = syscall.SIGINT, 130
			}
			p := startWith(t, "", []string{"TMPDIR=" + temporary}, tc.args...)
			p.Until(func() bool { return worked(p) > 200*time.Millisecond })
			p.Signal(stop)
			before := worked(p)
			r := p.Wait()
			want := "run: interrupted by " + map[int]string{143: "SIGTERM", 130: "SIGINT"}[code]
			if tc.want != "" {
				want += "; " + tc.want
			}
			lines := strings.Split(strings.TrimSpace(r.Stderr), "\n")
			if r.Code != code || lines[len(lines)-1] != want || strings.Contains(r.Stderr, "saving") {
				t.Errorf("exit code %d after %v of work, want %d and %q:\n%s", r.Code, before, code, want, r.Stderr)
			}
		})
	}
	for _, path := range []string{out, planned} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s was written", path)
		}
	}
	if left, _ := os.ReadDir(temporary); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(out), ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if s := read(t, filepath.Join(reading, "summary.json")); !strings.Contains(s, `"interrupted"`) {
		t.Errorf("the run says of its end\n%s", s)
	}
}

// TestSignalAtAFullPipe: nobody reads what a command prints, nor its last words.
func TestSignalAtAFullPipe(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if _, err := unix.FcntlInt(writer.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Skip("a pipe stays as it is here: ", err)
	}
	cmd := exec.Command(program(t), "--cfg", "all")
	cmd.Stdout, cmd.Stderr = writer, writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	if _, err := reader.Read(make([]byte, 1)); err != nil { // it prints, and there is more than the pipe takes
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 143 {
		t.Errorf("it ends with %v, want exit code 143", cmd.ProcessState)
	}
}
