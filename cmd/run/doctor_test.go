package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestScriptsReadTheDoctor: what the scripts of the kit look for in the doctor's text is there with a device that works.
func TestScriptsReadTheDoctor(t *testing.T) {
	with := &machineJSON{Libtorch: "2.11.0", Products: true,
		CUDA: []deviceJSON{{Name: "NVIDIA H100", BFloat16: true, Flash: true, NVRTC: true}}}
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
