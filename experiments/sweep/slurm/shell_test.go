package slurm

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/experiments/sweep/launcher"
)

// nasty are texts that leave a careless script: ends of a line, of a quote and of a word.
var nasty = []string{
	"a\ntouch pwned", "a\r\ntouch pwned\n", "'; touch pwned; '", `"; touch pwned; "`, "$(touch pwned)", "`touch pwned`",
	"; touch pwned", "& touch pwned &", "| touch pwned",
	"> pwned", "${IFS}", "-x", "--wrap=touch pwned", "a b", "*", "~", "#", "\\", `\'`, "!!", "", "\t", "\x1b[31m", "\u2028x",
	"\u0085", "\xff\xfe'", "\n#SBATCH --export=NONE", "\n'\\$(touch pwned)",
}

// A shell reads a quoted text as that text, and a comment that holds it stays one line.
func TestShellQuote(t *testing.T) {
	t.Setenv("LC_ALL", "C") // of a locale that is not installed bash warns
	for _, text := range nasty {
		word := shellQuote(text)
		if strings.ContainsAny(word, "\n\r") {
			t.Errorf("%q: more than one line: %q", text, word)
		}
		cmd := exec.Command("bash", "-c", "# "+word+"\nprintf %s "+word)
		cmd.Dir = t.TempDir()
		if got, err := cmd.CombinedOutput(); err != nil || string(got) != text {
			t.Errorf("%q: bash reads %q, %v", text, got, err)
		}
		if names, _ := os.ReadDir(cmd.Dir); len(names) > 0 {
			t.Errorf("%q: bash made %s", text, names[0].Name())
		}
	}
}

// A batch script runs what it should with every nasty text in every place, even where Validate would refuse it.
func TestSlurmScriptRunsNothingElse(t *testing.T) {
	t.Setenv("LC_ALL", "C")
	for _, text := range nasty {
		dir := t.TempDir()
		print := filepath.Join(dir, "print "+strings.NewReplacer("/", "", "\x00", "").Replace(text))
		if err := os.WriteFile(print, []byte("#!/bin/sh\nprintf '%s\\n' \"$@\"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		opt := DefaultOptions()
		opt.Name, opt.Comment, opt.Partition = text, &text, &text
		opt.AdditionalParameters, opt.SrunArgs = map[string]any{"mail_type": text, text: true}, &[]string{text}
		s := &slurm{sweep: dir + "/sweep" + text, program: print, opt: opt}
		sub := &submission{path: dir + "/sub" + text, Sbatch: append([]string{"--output=" + text}, opt.resources()...)}
		cmd := exec.Command("bash", "-c", s.script(sub))
		cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "SLURM_ARRAY_TASK_ID=7")
		got, err := cmd.CombinedOutput()
		srun := "srun\n--nodes=1\n--ntasks-per-node=1\n--kill-on-bad-exit=1\n"
		if want := launcher.TaskVerb + "\n" + s.sweep + "\n7\n" + srun + text + "\n"; err != nil || string(got) != want {
			t.Errorf("%q: %v: got %q, want %q\n%s", text, err, got, want, s.script(sub))
		}
		if names, _ := os.ReadDir(cmd.Dir); len(names) > 0 {
			t.Errorf("%q: the script made %s", text, names[0].Name())
		}
		if n := strings.Count(s.script(sub), "\n#SBATCH"); n > 0 {
			t.Errorf("%q: %d lines that sbatch would read", text, n)
		}
	}
}

// Texts that Slurm's commands show on several lines are refused by key, and so are options that sbatch reads as others.
func TestSlurmOptionsRefuseWhatBreaksOut(t *testing.T) {
	bad := "a\ntouch pwned"
	for i, key := range []string{"name", "partition", "account", "qos", "constraint", "exclude", "gres", "mem_per_gpu", "mem_per_cpu",
		"comment"} {
		o := DefaultOptions()
		pointers := []**string{nil, &o.Partition, &o.Account, &o.QOS, &o.Constraint, &o.Exclude, &o.Gres, &o.MemPerGPU, &o.MemPerCPU, &o.Comment}
		if i == 0 {
			o.Name = bad
		} else {
			*pointers[i] = &bad
		}
		if err := o.Validate(); err == nil || !strings.HasPrefix(err.Error(), key+": want one line") {
			t.Errorf("%s: %v", key, err)
		}
	}
	for _, tc := range []struct {
		key   string
		value any
		want  string // "" = accepted
	}{
		{"mail_type", "END", ""}, {"--gres-flags", "disable-binding", ""}, {"gpus", 2, ""}, {"Q", true, ""}, {"w", "n1",
			""}, {"mail_type", "a b;$(x)", ""}, {"nodelist", "n[1-3]", ""},
		{"mail_type", bad, "want one line"}, {"export=NONE", true, "names of sbatch's options"}, {"a b", true,
			"names of sbatch's options"}, {"x\ny", nil, "names of sbatch's options"},
		{"", "x", "names of sbatch's options"}, {"arr", "0-3", "--array, which cannot be set"}, {"wra", "ls",
			"--wrap, which cannot be set"}, {"jo", "n", "use hydra.launcher.name"},
		{"Q", "a0-3", "takes no value"}, {"w", "", "want a value"}, {"Wa", true, "names of sbatch's options"},
	} {
		o := DefaultOptions()
		o.AdditionalParameters = map[string]any{tc.key: tc.value}
		if err := o.Validate(); tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%q: %v: got %v, want %q", tc.key, tc.value, err, tc.want)
		}
	}
	o := DefaultOptions()
	o.SrunArgs = &[]string{"--mpi=none", bad}
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "srun_args: item 2") {
		t.Errorf("srun_args: %v", err)
	}
	o = DefaultOptions()
	o.Setup = &[]string{"module load cuda\nmodule load x", "$(hostname)"}
	if err := o.Validate(); err != nil || !slices.Contains(strings.Split((&slurm{opt: o}).script(&submission{}), "\n"), "$(hostname)") {
		t.Errorf("setup lines are shell: %v", err)
	}
	if err := slurmPath("/tmp/a\nb"); err == nil {
		t.Error("a folder with a line break is accepted")
	}
}
