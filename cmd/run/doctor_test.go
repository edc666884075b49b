package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"fulcrum/internal/testkit/golden"
)

// deviceThatWorks is what the doctor finds on a machine with a GPU.
func deviceThatWorks() *machineJSON {
	return &machineJSON{Libtorch: "2.11.0", Products: true, NCCL: "2.28.9",
		CUDA: []deviceJSON{{Name: "NVIDIA H100", BFloat16: true, Flash: true, NVRTC: true}}}
}

// TestScriptsReadTheDoctor: what the scripts of the kit look for in the doctor's text is there with a device that works.
func TestScriptsReadTheDoctor(t *testing.T) {
	with := deviceThatWorks()
	without := &machineJSON{Libtorch: "2.11.0"}
	asked := regexp.MustCompile(`(&& ! )?grep -q '([^']*)' "\$out/doctor.log"`)
	for script, least := range map[string]int{"gpu_check.sh": 3, "kit_check.sh": 1} {
		text, err := os.ReadFile("../../scripts/" + script)
		if err != nil {
			t.Fatal(err)
		}
		questions := asked.FindAllStringSubmatch(string(text), -1)
		if len(questions) < least {
			t.Errorf("%s asks the doctor %d times, want %d", script, len(questions), least)
		}
		for _, q := range questions {
			found := regexp.MustCompile("(?m)" + q[2]).MatchString
			if yes := found(with.text(false)); yes == (q[1] != "") {
				t.Errorf("%s: %q in the doctor's text of a device: %v\n%s", script, q[2], yes, with.text(false))
			}
			if strings.HasPrefix(q[2], "^cuda") && found(without.text(false)) {
				t.Errorf("%s: %q without a device", script, q[2])
			}
		}
	}
}

// TestGPUCheckEnds: a part that takes too long is cut, those behind it are named, and the table and result.json come, after a signal too.
// The program is a script that says what the doctor says and sleeps for everything else.
func TestGPUCheckEnds(t *testing.T) {
	for _, tc := range []struct {
		name, seconds string
		signal        bool
		want          []string // part, verdict and a pattern of the note; none: there is no device
	}{
		{name: "no device", seconds: "600"},
		{"no time", "0", false, []string{"losses not run no time left", "oom not run no time left", "shapes not run no time left"}},
		{"a part that hangs", "3", false, []string{"losses (FAILED|not run) (cut after [1-3] s|no time left)", "oom not run no time left",
			"shapes not run no time left"}},
		{"SIGTERM", "600", true, []string{"losses FAILED stopped", "oom not run stopped", "shapes not run stopped"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			kit := t.TempDir()
			script, err := os.ReadFile("../../scripts/gpu_check.sh")
			if err != nil {
				t.Fatal(err)
			}
			begun, machine := filepath.Join(kit, "begun"), deviceThatWorks()
			if tc.want == nil {
				machine.CUDA = nil
			}
			for name, text := range map[string]string{"gpu_check.sh": string(script), "doctor.txt": machine.text(false),
				"bin/run":   "#!/bin/sh\n[ \"$1\" = doctor ] && exec cat " + kit + "/doctor.txt\nexec sleep 1000\n",
				"bin/bench": "#!/bin/sh\ntouch " + begun + "\nexec sleep 1000\n"} {
				path := filepath.Join(kit, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			var out bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // only a script that hangs is stopped by it
			defer cancel()
			check := exec.CommandContext(ctx, filepath.Join(kit, "gpu_check.sh"), "losses", "oom", "shapes")
			check.Env, check.Stdout, check.Stderr = append(os.Environ(), "GPU_CHECK_SECONDS="+tc.seconds), &out, &out
			check.WaitDelay = time.Second
			if err := check.Start(); err != nil {
				t.Fatal(err)
			}
			for tc.signal && ctx.Err() == nil {
				if _, err := os.Stat(begun); err == nil {
					if err := check.Process.Signal(syscall.SIGTERM); err != nil {
						t.Fatal(err)
					}
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			err = check.Wait()
			if tc.want == nil {
				const line = "gpu_check: nothing can be checked: libtorch 2.11.0 sees no CUDA device\n"
				if check.ProcessState.ExitCode() != 2 || out.String() != line {
					t.Errorf("%v\n%s, want exit code 2 and\n%s", err, out.String(), line)
				}
				return
			}
			if check.ProcessState.ExitCode() != 1 {
				t.Errorf("%v, want exit code 1", err)
			}
			var result struct {
				Parts []struct{ Part, Verdict, Note string }
			}
			golden.JSON(t, filepath.Join(kit, "gpu_check", "result.json"), &result)
			if len(result.Parts) != len(tc.want) {
				t.Fatalf("%v, want %d parts\n%s", result.Parts, len(tc.want), out.String())
			}
			for i, p := range result.Parts {
				if got := p.Part + " " + p.Verdict + " " + p.Note; !regexp.MustCompile("^" + tc.want[i] + "$").MatchString(got) {
					t.Errorf("%q, want %q\n%s", got, tc.want[i], out.String())
				}
				if !regexp.MustCompile("(?m)^" + p.Part + " +" + p.Verdict).MatchString(out.String()) {
					t.Errorf("no line of %s in the table:\n%s", p.Part, out.String())
				}
			}
		})
	}
}
