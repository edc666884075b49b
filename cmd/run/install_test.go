package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
)

// What is installed works without the folder that it was built in: it looks for its libraries beside itself alone, loads
// libtorch, and bash completes its commands.
func TestInstall(t *testing.T) {
	root := golden.RepoRoot()
	if _, err := os.Stat(filepath.Join(root, "bin", "run")); err != nil {
		t.Skip("bin/run is not built (make build)")
	}
	prefix := filepath.Join(t.TempDir(), "usr")
	command := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	for range 2 { // over itself too
		command(filepath.Join(root, "scripts", "install.sh"), prefix)
	}
	installed := filepath.Join(prefix, "bin", "run")
	f, err := elf.Open(installed)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if path, err := f.DynString(elf.DT_RUNPATH); err != nil || len(path) != 1 || path[0] != "$ORIGIN/lib" {
		t.Errorf("RUNPATH %q (%v)", path, err)
	}
	if out := command(installed, "doctor"); !strings.Contains(out, "product is right") {
		t.Errorf("run doctor: %s", out)
	}
	script := "source " + filepath.Join(prefix, "share", "bash-completion", "completions", "run") + "; PATH=" + filepath.Dir(installed) +
		":$PATH; COMP_LINE='run expl' COMP_POINT=8 COMP_WORDS=(run expl) COMP_CWORD=1; hydra_bash_completion; echo ${COMPREPLY[*]}"
	if out := command("bash", "-c", script); strings.TrimSpace(out) != "explain" {
		t.Errorf("bash completes run expl to %q", out)
	}
	if listed := command("find", prefix, "-name", ".new"); listed != "" {
		t.Errorf("left behind: %s", listed)
	}
}
