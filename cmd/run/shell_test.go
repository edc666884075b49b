package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"fulcrum/configs"
	"fulcrum/internal/testkit/runtest"
)

// TestMain lets the tests call this program as a shell does: a link to the test binary answers as run.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_ANSWERS_AS_RUN") == "" {
		os.Exit(runtest.Main(m))
	}
	schema, err := configs.SchemaOf(&shellOptions{Mode: "fast"}, nil)
	if err == nil {
		err = sessionOf(fakeApp{schema: schema}, os.Stdout, os.Stderr).call(os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// shellOptions types our own tree in these tests, where most keys are free.
type shellOptions struct {
	Mode string `koanf:"mode" enum:"fast,fine,slow"`
}

// shellFolder has a program called run in bin and a small tree in conf.
func shellFolder(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{
		"conf/config.yaml":  "defaults: [{net: mlp}, _self_]\nlr: 0.1\nflag: true\nopt: {betas: 1, eps: 2}\n",
		"conf/net/mlp.yaml": "w: 1\n", "conf/net/cnn.yaml": "k: 3\n",
		"conf/exp/a/x.yaml": "", "conf/other.yaml": "",
		"done/run.log": "", "data/beams.jsonl": "",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "bin/run")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// shellCases are what the user has typed, and the whole words that are offered for the last one.
var shellCases = []struct{ line, want string }{
	{"run -cp conf n", "net. net="},
	{"run -cp conf net=", "net=cnn net=mlp"},
	{"run -cp conf net=c", "net=cnn"},
	{"run -m -cp conf net=mlp,c", "net=mlp,cnn"},
	{"run -cp conf net=[mlp,", "net=[mlp,cnn net=[mlp,mlp"},
	{"run -cp conf +n", "+net. +net="},
	{"run -cp conf ++net.", "++net.w="},
	{"run -cp conf net=cnn net.", "net.k="},
	{"run -cp conf ex", "exp/"},
	{"run -cp conf exp/", "exp/a="},
	{"run -cp conf opt.b", "opt.betas="},
	{"run -cp conf lr=", "lr=0.1"},
	{"run -cp conf +out=./da", "+out=./data/"},
	{"run -cp conf +out=data/b", "+out=data/beams.jsonl"},
	{"run -cp co", "conf/"},
	{"run --config-path=co", "--config-path=conf/"},
	{"run -cp conf -cn ot", "other"},
	{"run -cp conf -p opt.e", "opt.eps"},
	{"run --cfg ", "all hydra job sweep"},
	{"run --info def", "defaults defaults-tree"},
	{"run --multi", "--multirun"},
	{"run res", "resume"},
	{"run resume do", "done/"},
	{"run checkpoint ", "export inspect verify"},
	{"run explain -cp conf l", "lr"},
	{"run -sc install=", "install=bash install=fish install=zsh"},
	{"run -cp conf hydra.mode=", "hydra.mode=MULTIRUN hydra.mode=RUN hydra.mode=null"},
	{"run -cp nowhere n", ""},
	{"run -cp conf bad==x n", "net. net="},
}

// runShell evaluates a script in a shell that has our program on its path.
func runShell(t *testing.T, dir, shell string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(shell)
	if err != nil {
		t.Skipf("%s is not installed: its completion is not tested here", shell)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "RUN_ANSWERS_AS_RUN=1", "LC_ALL=C", "HOME="+dir, "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", shell, err, out, errOut.String())
	}
	switch {
	case errOut.Len() == 0:
	case shell == "bash":
		t.Errorf("%s: stderr: %s", shell, errOut.String())
	default: // fish and zsh also remark on the terminal
		t.Logf("%s: stderr: %s", shell, errOut.String())
	}
	return string(out)
}

// replies checks the answers to shellCases, one line each.
func replies(t *testing.T, out string) {
	t.Helper()
	got := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(got) != len(shellCases) {
		t.Fatalf("%d answers to %d lines:\n%s", len(got), len(shellCases), out)
	}
	for i, tc := range shellCases {
		words, want := strings.Fields(got[i]), strings.Fields(tc.want)
		sort.Strings(words) // shells show them in an order of their own
		sort.Strings(want)
		if strings.Join(words, " ") != strings.Join(want, " ") {
			t.Errorf("%s\n got %q\nwant %q", tc.line, got[i], tc.want)
		}
	}
}

func TestBashCompletion(t *testing.T) {
	dir := shellFolder(t)
	// With = among the word breaks, which is bash's way unless told otherwise, the key is not part of
	// the word that bash replaces; the answer must leave it out.
	for _, breaks := range []string{"", "="} {
		var b strings.Builder
		b.WriteString("set -u\neval \"$(run -sc install=bash)\"\ncomplete -p run >/dev/null || exit 1\n")
		for _, tc := range shellCases {
			words := strings.Fields(tc.line)
			if strings.HasSuffix(tc.line, " ") {
				words = append(words, "")
			}
			last := words[len(words)-1]
			keep := ""
			if i := strings.LastIndexByte(last, '='); i >= 0 && breaks != "" {
				keep = last[:i+1]
				words = append(words[:len(words)-1], last[:i], "=")
				if last[i+1:] != "" {
					words = append(words, last[i+1:])
				}
			}
			fmt.Fprintf(&b, "COMP_LINE=%q COMP_POINT=%d COMP_CWORD=%d COMP_WORDS=(", tc.line, len(tc.line), len(words)-1)
			for _, w := range words {
				fmt.Fprintf(&b, " %q", w)
			}
			fmt.Fprintf(&b, ")\nCOMPREPLY=(); hydra_bash_completion\nfor i in \"${!COMPREPLY[@]}\"; do "+
				"COMPREPLY[$i]=%q\"${COMPREPLY[$i]}\"; done; echo \"${COMPREPLY[*]}\"\n", keep)
		}
		b.WriteString("eval \"$(run -sc uninstall=bash)\"\n! complete -p run 2>/dev/null\n")
		replies(t, runShell(t, dir, "bash", "--norc", "-c", b.String()))
	}
}

func TestZshCompletion(t *testing.T) {
	dir := shellFolder(t)
	var b strings.Builder
	b.WriteString("compdef() { : }\ncompadd() { print -r -- $replies }\neval \"$(run -sc install=zsh)\"\n")
	for _, tc := range shellCases {
		words := strings.Fields(tc.line)
		if strings.HasSuffix(tc.line, " ") {
			words = append(words, "")
		}
		fmt.Fprintf(&b, "words=(")
		for _, w := range words {
			fmt.Fprintf(&b, " %q", w)
		}
		fmt.Fprintf(&b, ") CURRENT=%d PREFIX=%q\nhydra_zsh_completion\n", len(words), words[len(words)-1])
	}
	b.WriteString("eval \"$(run -sc uninstall=zsh)\"\n")
	replies(t, runShell(t, dir, "zsh", "-f", "-c", b.String()))
}

// zsh also runs the script for bash, under bashcompinit.
func TestBashScriptInZsh(t *testing.T) {
	dir := shellFolder(t)
	var b strings.Builder
	b.WriteString("autoload -Uz compinit bashcompinit; compinit -u; bashcompinit\neval \"$(run -sc install=bash)\"\nemulate -L sh\n")
	for _, tc := range shellCases {
		words := strings.Fields(tc.line)
		if strings.HasSuffix(tc.line, " ") {
			words = append(words, "")
		}
		fmt.Fprintf(&b, "COMP_LINE=%q COMP_POINT=%d COMP_CWORD=%d; COMP_WORDS=(", tc.line, len(tc.line), len(words)-1)
		for _, w := range words {
			fmt.Fprintf(&b, " %q", w)
		}
		b.WriteString(")\nhydra_bash_completion; echo \"${COMPREPLY[*]}\"\n")
	}
	replies(t, runShell(t, dir, "zsh", "-f", "-c", b.String()))
}

func TestFishCompletion(t *testing.T) {
	dir := shellFolder(t)
	var b strings.Builder
	b.WriteString("run -sc install=fish | source\n")
	for _, tc := range shellCases {
		fmt.Fprintf(&b, "echo (complete -C '%s')\n", tc.line)
	}
	b.WriteString("run -sc uninstall=fish | source\n")
	replies(t, runShell(t, dir, "fish", "--no-config", "-c", b.String()))
}

// A schema's enum is offered for our own tree.
func TestCompletionOfOptions(t *testing.T) {
	lib := configs.Request{Library: os.DirFS(t.TempDir())}
	if got := configs.Complete(lib, "mode="); len(got) != 0 {
		t.Errorf("an empty tree offers %v", got)
	}
	schema, err := configs.SchemaOf(&shellOptions{Mode: "fast"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	req := configs.Request{ConfigPath: dir, Schema: schema}
	for word, want := range map[string]string{
		"mode=": "mode=fast mode=fine mode=slow", "mode=fi": "mode=fine", "mode=fast,s": "mode=fast,slow", "mo": "mode=",
	} {
		if got := strings.Join(configs.Complete(req, word), " "); got != want {
			t.Errorf("%s: got %q, want %q", word, got, want)
		}
	}
}
