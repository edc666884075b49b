package main_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"fulcrum/internal/testkit/runtest"
)

// terminal is a program on a terminal of 80 columns and 24 lines.
type terminal struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd
	ended  chan struct{}

	mu   sync.Mutex
	text bytes.Buffer // all that was written
}

func onTerminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
	}
	slave, oerr := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil || oerr != nil {
		t.Skip("no terminals here: ", err, oerr)
	}
	defer slave.Close()
	p := &terminal{t: t, master: master, cmd: exec.Command(program(t), args...), ended: make(chan struct{})}
	p.cmd.Args[0], p.cmd.Env = "run", append(os.Environ(), "TERM=xterm")
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = slave, slave, slave
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		buffer := make([]byte, 1<<14)
		for {
			n, err := master.Read(buffer)
			p.mu.Lock()
			p.text.Write(buffer[:n])
			p.mu.Unlock()
			if err != nil { // nobody has the terminal any more
				_ = p.cmd.Wait() // the exit code is in ProcessState
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		master.Close()
	})
	return p
}

func (p *terminal) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// until waits for a text, and returns how long that took.
func (p *terminal) until(text string) time.Duration {
	p.t.Helper()
	for begin := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		if strings.Contains(p.said(), text) {
			return time.Since(begin)
		}
		if time.Since(begin) > patience {
			p.t.Fatalf("%q does not come:\n%s", text, p.said())
		}
	}
}

// screen is what stands on the terminal at last, and the width of its widest line: what a terminal would break is one line here.
func screen(text string) (lines []string, widest int) {
	lines = []string{""}
	row, column := 0, 0
	for _, m := range regexp.MustCompile(`\x1b\[(\d*)([A-Za-z])|\x1b\[[\d;]*m|\r|\n|[^\x1b]`).FindAllStringSubmatch(text, -1) {
		switch {
		case m[2] == "A":
			n, _ := strconv.Atoi(m[1]) // none is 0
			row = max(row-max(n, 1), 0)
		case m[2] == "J":
			lines = append(lines[:row], string([]rune(lines[row])[:min(column, utf8.RuneCountInString(lines[row]))]))
		case m[2] == "K":
			lines[row] = string([]rune(lines[row])[:min(column, utf8.RuneCountInString(lines[row]))])
		case m[0] == "\r":
			column = 0
		case m[0] == "\n":
			if row++; row == len(lines) {
				lines = append(lines, "")
			}
		case m[0][0] != 0x1b:
			line := []rune(lines[row])
			for len(line) <= column {
				line = append(line, ' ')
			}
			line[column] = []rune(m[0])[0]
			lines[row], column = string(line), column+1
			widest = max(widest, column)
		}
	}
	return lines, widest
}

// A sweep shows one table, which changes in place; nothing that the main commands print is broken by a terminal of 80 columns.
func TestTerminal(t *testing.T) {
	t.Parallel()
	dir, other := folder(t), folder(t)
	sweep := tiny("-m", "seed=1,2,3", "report.plots=false", "hydra/launcher=local", "hydra.launcher.n_jobs=1", "hydra.sweep.dir="+dir)
	run0, _ := trained(t)
	for name, args := range map[string][]string{"sweep": sweep, "run": tiny("hydra.run.dir="+other, "report.plots=false"), "overview": {},
		"help": {"--help"}, "doctor": {"doctor"}, "status": {"status", run0}, "explain": {"explain", "grpo.kl.beta"},
		"report": {"report", run0, run0 + "/."}, "verify": {"verify", run0}, "mistake": {"exp=okvqa_v33"}, "refused": tiny("rce.lr=-1")} {
		if runtest.Core && (name == "report" || name == "verify") {
			continue
		}
		p := onTerminal(t, args...)
		select {
		case <-p.ended:
		case <-time.After(patience):
			t.Fatalf("%s does not end:\n%s", name, p.said())
		}
		lines, widest := screen(p.said())
		if name == "run" { // commands are not broken: they fit with the folder that a run takes by itself
			widest = 0
			for _, line := range lines {
				widest = max(widest, utf8.RuneCountInString(strings.ReplaceAll(line, other, "outputs/2026-11-26/10-30-59")))
			}
		}
		if code := p.cmd.ProcessState.ExitCode(); widest > 80 || (code != 0) != (name == "mistake" || name == "refused") {
			for _, line := range lines {
				if utf8.RuneCountInString(line) > 80 {
					t.Logf("too wide: %s", line)
				}
			}
			t.Errorf("%s ends with %d and is %d columns wide:\n%s", name, code, widest, strings.Join(lines, "\n"))
		}
		if name != "sweep" {
			continue
		}
		last := strings.Join(lines, "\n")
		if !strings.Contains(p.said(), "\x1b[J") || !strings.Contains(p.said(), "3 jobs: 1 done") && !strings.Contains(p.said(), "1 running") {
			t.Errorf("the table is not drawn while the sweep runs:\n%s", p.said())
		}
		if strings.Count(last, " job  state") != 1 || strings.Count(last, " done ") != 3 || strings.Contains(last, "#0 ") {
			t.Errorf("the last screen:\n%s", last)
		}
	}
}

// Ctrl-C is answered, on a machine that does nothing else within a fifth of a second: while data is read and while the policy trains,
// of a run and of a sweep.
func TestInterruptIsAnswered(t *testing.T) {
	t.Parallel()
	fastest := time.Minute
	for i, args := range [][]string{tiny("rce.epochs=500", "hydra.run.dir="+folder(t)), tiny("rce.epochs=500", "hydra.run.dir="+folder(t)),
		tiny("-m", "seed=1,2", "rce.epochs=500", "hydra.sweep.dir="+folder(t))} {
		p := onTerminal(t, args...)
		p.until([]string{"reading ", "rce  ", "running"}[i])
		if _, err := p.master.Write([]byte{3}); err != nil {
			t.Fatal(err)
		}
		fastest = min(fastest, p.until("SIGINT"))
		<-p.ended
		if code := p.cmd.ProcessState.ExitCode(); code != 130 {
			t.Errorf("exit code %d, want 130:\n%s", code, p.said())
		}
		if _, widest := screen(p.said()); widest > 80 {
			t.Errorf("%d columns wide:\n%s", widest, p.said())
		}
	}
	if !testing.Short() && fastest > 200*time.Millisecond {
		t.Errorf("the fastest answer took %v, want at most 0.2 s", fastest)
	}
}

// run resume never waits for input, at a terminal or beside an open pipe: not where the board would ask first, because the folder names a
// program (on_end.command).
func TestResumeAsksNothing(t *testing.T) {
	t.Parallel()
	interrupted := func() (dir string, resumes int) {
		dir = folder(t)
		p := start(t, tiny("hydra.run.dir="+dir, "on_end.command=date", "rce.epochs=8", "report.plots=false")...)
		p.Until(func() bool { return exists(filepath.Join(dir, "checkpoints/rce_epoch1.state")) })
		return dir, p.KillRun(dir)
	}
	resumed := func(dir string, resumes, code int, said string) {
		if strings.Count(read(t, filepath.Join(dir, "metrics.jsonl")), `"event":"resume"`) != resumes || code != 0 {
			t.Errorf("exit code %d:\n%s", code, said)
		}
	}
	dir, resumes := interrupted()
	p := onTerminal(t, "resume", dir)
	select {
	case <-p.ended:
		resumed(dir, resumes, p.cmd.ProcessState.ExitCode(), p.said())
	case <-time.After(patience):
		t.Fatalf("at a terminal it does not end:\n%s", p.said())
	}

	dir, resumes = interrupted()
	never, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer never.Close()
	defer writer.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(t), "resume", dir)
	cmd.Stdin = never
	said, _ := cmd.CombinedOutput()
	resumed(dir, resumes, cmd.ProcessState.ExitCode(), string(said))
}

// Commands stand whole on lines of their own, and a shell reads the words that were meant from each, also those of folders with
// blanks and quotes.
func TestPrintedCommands(t *testing.T) {
	t.Parallel()
	root := filepath.Join(filepath.Dir(folder(t)), "it's `a` folder "+strings.Repeat("with blanks ", 6)+"$x")
	path := func(name string) string { return filepath.Join(root, name) }
	set := func(key, value string) string { return key + "='" + strings.ReplaceAll(value, "'", `\'`) + "'" }
	once := tiny(set("hydra.run.dir", path("run")), "schedule=[rce]", "rce.epochs=1", "report.plots=false")
	many := append([]string{"-m", set("hydra.sweep.dir", path("sweep")), "hydra/launcher=basic"}, once...)
	many = slices.DeleteFunc(many, func(arg string) bool { return strings.HasPrefix(arg, "hydra.run.dir") })
	mustRun(t, once...)
	mustRun(t, many...)
	for _, from := range []string{"run", "sweep"} {
		if err := os.CopyFS(path(from+"2"), os.DirFS(path(from))); err != nil {
			t.Fatal(err)
		}
	}
	for _, gone := range []string{"run2/summary.json", "sweep2/sweep.jsonl"} {
		if err := os.Remove(path(gone)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		args []string
		want [][]string // commands, as words
	}{
		{once, [][]string{{"resume", path("run")}, {"--rerun", path("run"), "hydra.run.dir=NEW_FOLDER"}}},
		{many, [][]string{{"resume", path("sweep")}}},
		{[]string{"status", path("run2")}, [][]string{{"resume", path("run2")}}},
		{[]string{"watch", path("run2")}, [][]string{{"resume", path("run2")}}},
		{[]string{"status", path("sweep2")}, [][]string{{"report", path("sweep2/0")}, {"resume", path("sweep2/0")}}},
		{[]string{"status", root}, [][]string{{"ls", root}}},
		{[]string{"resume", path("run"), "seed=4"}, [][]string{{"help", "resume"}, {"--rerun", path("run"), "seed=4"}}},
		{[]string{"checkpoint", "export", path("run"), path("x.pt")}, [][]string{{"checkpoint", "export", path("run"), "--format", "pt",
			"--out", path("x.pt")}}},
	} {
		if runtest.Core && tc.args[0] == "watch" {
			continue
		}
		p := onTerminal(t, tc.args...)
		<-p.ended
		lines, _ := screen(p.said())
		var got [][]string
		for _, line := range lines {
			if isCommand := strings.HasPrefix(line, "    run "); isCommand && !strings.Contains(line, "[--") { // a form is no command
				out, err := exec.Command("sh", "-c", `run() { printf '%s\n' "$@"; }; `+line).Output()
				if err != nil {
					t.Errorf("%s: %v", line, err)
				}
				got = append(got, strings.Split(strings.TrimSuffix(string(out), "\n"), "\n"))
			} else if !isCommand && utf8.RuneCountInString(line) > 80 && !strings.Contains(line, root[:20]) {
				t.Errorf("too wide: %s", line)
			}
		}
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%q prints the commands %q, want %q:\n%s", tc.args, got, tc.want, p.said())
		}
	}
}
