package configs

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestHydraGroupsInDefaults(t *testing.T) {
	for _, tc := range []struct{ config, args, key, want string }{
		{"hydraover", "", "hydra.help.app_name", "mine"},
		{"hydraover", "hydra/help=default", "hydra.help.app_name", "${hydra.job.name}"},
		{"base", "+exp=wantshelp", "hydra.help.app_name", "mine"},
		{"exp/primary", "", "hydra.help.app_name", "mine"},
		{"hydranew", "", "hydra.run.dir", "mine"},
		{"nestpkg", "", "hydra.runtime.choices.shape/edge@shape.p", "hard"},
		{"base", "", "hydra.job.config_name", "base"},
	} {
		c, err := Compose(formsRequest(tc.config, tc.args))
		if err != nil {
			t.Errorf("%s %s: %v", tc.config, tc.args, err)
			continue
		}
		n := c.tree
		if key, ok := strings.CutPrefix(tc.key, "hydra.runtime.choices."); ok {
			n = n.Find("hydra.runtime.choices").Get(key)
		} else {
			n = n.Find(tc.key)
		}
		if n == nil || n.Text != tc.want {
			t.Errorf("%s %s: %s = %v, want %s", tc.config, tc.args, tc.key, n, tc.want)
		}
	}
}

// A sweep may choose a group that is ??? and that other items interpolate.
func TestSweepOverOpenGroup(t *testing.T) {
	files := "--- config\ndefaults:\n- a: ???\n- b: ${a}_x\n--- a/p\nk: p\n--- a/q\nk: q\n--- b/p_x\nw: px\n--- b/q_x\nw: qx\n"
	req := request(files, "a=p,q")
	jobs, err := ExpandSweep(req)
	if err != nil || len(jobs) != 2 {
		t.Fatalf("%v, %v", jobs, err)
	}
	if got := flow(t, request(files, jobs[1]...), false); got != "{'a': {'k': 'q'}, 'b': {'w': 'qx'}}" {
		t.Error(got)
	}
	if _, err := ExpandSweep(request(files, "a=p,z")); err == nil || !strings.Contains(err.Error(), "Could not find 'a/z'") {
		t.Errorf("a bad option: %v", err)
	}
}

// A user's tree may have a launcher of a name that this program has too; Hydra's own files stand first.
func TestUsersHydraConfigs(t *testing.T) {
	c, err := Compose(request(`--- config
defaults:
  - override hydra/launcher: slurm
  - override hydra/job_logging: colorlog
--- hydra/launcher/slurm
defaults: [submitit_slurm]
mine: 1
--- hydra/job_logging/colorlog
mine: 2
--- hydra/job_logging/default
mine: 3
--- hydra/output/default
mine: 4
`))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"hydra.launcher.mine": "1", "hydra.launcher.timeout_min": "60", "hydra.job_logging.mine": "2"} {
		if n := c.tree.Find(key); n == nil || n.Text != want {
			t.Errorf("%s: got %v, want %s", key, n, want)
		}
	}
	if n := c.tree.Find("hydra.mine"); n != nil {
		t.Error("the user's hydra/output/default hides Hydra's")
	}
}

// All open choices are named, the last item first.
func TestOpenChoicesTogether(t *testing.T) {
	got := flow(t, request("--- config\ndefaults:\n  - a: ???\n  - b: other\n  - c: ???\n--- a/p\n--- b/q\n--- c/r\n"), false)
	want := `error: configs/conf/config.yaml:4:5: You must specify 'c', e.g, c=<OPTION>. Available options: r
configs/conf/config.yaml:3:5: In 'config': Could not find 'b/other'. Available options in 'b': q
configs/conf/config.yaml:2:5: You must specify 'a', e.g, a=<OPTION>. Available options: p`
	if got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// FuzzCompose: whatever a config and the command line hold, composing ends with a config or a message.
func FuzzCompose(f *testing.F) {
	for _, seed := range [][2]string{
		{"defaults: [{color: red}, _self_]\nx: 1\n", "color=blue x=2"},
		{"# @package a.b\ndefaults:\n- override /color@_global_: blue\n", "+color@_global_=red"},
		{"defaults: [optional shape: '${color}', color: [red, blue], /shape/edge@_here_: hard]\n", "~color/red"},
		{"defaults: [shape: edge/hard, override shape: edge/soft]\nhydra: {job: {name: x}, searchpath: [y]}\n",
			"shape/edge=soft hydra.job.num=3"},
		{"hydra: {help: {template: $CONFIG$$}}\n", "hydra/launcher=joblib"},
		{"defaults: [color@p:q: red, hydra/run: mine]\n", "~hydra/output color@p=[]"},
	} {
		f.Add(seed[0], seed[1])
	}
	base := tree(forms)
	f.Fuzz(func(t *testing.T, config, args string) {
		files := fstest.MapFS{}
		for k, v := range base {
			files[k] = v
		}
		files["fuzzed.yaml"] = &fstest.MapFile{Data: []byte(config)}
		for _, multirun := range []bool{false, true} {
			req := Request{Library: files, ConfigName: "fuzzed", Overrides: strings.Fields(args), Multirun: multirun,
				Getenv: func(string) (string, bool) { return "", false }}
			c, err := Compose(req)
			if err != nil {
				if err.Error() == "" {
					t.Fatal("an error without a message")
				}
				continue
			}
			for _, which := range []string{"all", "plugins"} {
				if _, err := c.Info(which); err != nil {
					t.Fatalf("info: %v", err)
				}
			}
			for _, text := range []func() (string, error){
				func() (string, error) { return c.YAML("all", true, "") },
				func() (string, error) { return c.Help("", false) },
				func() (string, error) { return c.Explain("hydra.job.name") },
				func() (string, error) { return c.Explain("color") },
			} {
				if _, err := text(); err != nil && err.Error() == "" {
					t.Fatal("an error without a message")
				}
			}
			var o struct {
				Dir string `koanf:"dir"`
			}
			if err := c.DecodeHydra("run", &o); err != nil && err.Error() == "" {
				t.Fatal("an error without a message")
			}
		}
		Complete(Request{Library: files, ConfigName: "fuzzed"}, args)
		CompleteKey(Request{Library: files, ConfigName: "fuzzed"}, args)
	})
}
