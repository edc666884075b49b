package configs

import (
	"strings"
	"testing"

	"fulcrum/internal/option"
)

type launcherOptions struct {
	Jobs    int                `koanf:"jobs" range:"[1,inf)"`
	Minutes float64            `koanf:"timeout_min" range:"(0,inf)"`
	Prefer  string             `koanf:"prefer" enum:"processes,threads"`
	Setup   []string           `koanf:"setup"`
	Extra   map[string]any     `koanf:"extra"`
	Limit   *int               `koanf:"limit"`
	Retry   *launcherRetry     `koanf:"retry"`
	Weights map[string]float64 `koanf:"weights"`
}

type launcherRetry struct {
	Times int     `koanf:"times"`
	Wait  float64 `koanf:"wait"`
}

func (o *launcherOptions) Validate() error {
	if o.Jobs == 13 {
		return option.Errorf("jobs", "want another number than 13")
	}
	return nil
}

const launcherTree = `--- config
defaults:
  - override hydra/launcher: mine
name: x
--- hydra/launcher/mine
_target_: some.Launcher
jobs: 4
folder: ${hydra.job.name}
setup: [a, '${oc.env:SET}']
retry: {_target_: a.Retry, times: 2}
`

func TestDecodeHydra(t *testing.T) {
	five := 5
	defaults := func() launcherOptions {
		return launcherOptions{Jobs: 1, Minutes: 60, Prefer: "processes", Limit: &five, Retry: &launcherRetry{1, 0.5}}
	}
	files := strings.Replace(launcherTree, "folder: ${hydra.job.name}\n", "", 1)
	c, err := Compose(request(files, "+hydra.launcher.timeout_min=90", "+hydra.launcher.extra={partition:gpu}"))
	if err != nil {
		t.Fatal(err)
	}
	got := defaults()
	if err := c.DecodeHydra("launcher", &got); err != nil {
		t.Fatal(err)
	}
	if got.Jobs != 4 || got.Minutes != 90 || got.Prefer != "processes" || *got.Limit != 5 || got.Extra["partition"] != "gpu" ||
		strings.Join(got.Setup, " ") != "a from SET" || *got.Retry != (launcherRetry{2, 0.5}) {
		t.Errorf("got %+v, retry %+v", got, got.Retry)
	}
	if err := c.DecodeHydra("absent", &got); err != nil {
		t.Errorf("an absent node: %v", err)
	}
	if err := c.DecodeHydra("launcher", got); err == nil {
		t.Error("a value is no place to decode into")
	}

	for _, tc := range []struct{ name, files, override, want string }{
		{"an unknown key", launcherTree, "", "hydra/launcher/mine.yaml:3:9: unknown key hydra.launcher.folder"},
		{"the nearest key", files, "+hydra.launcher.timout_min=3",
			"+hydra.launcher.timout_min=3: unknown key hydra.launcher.timout_min (did you mean hydra.launcher.timeout_min?)"},
		{"a type", files, "hydra.launcher.jobs=x", `hydra.launcher.jobs=x: want an integer in [1, inf), got the text "x"`},
		{"a range", files, "hydra.launcher.jobs=0", "hydra.launcher.jobs=0: want an integer in [1, inf), got 0"},
		{"an enum", files, "+hydra.launcher.prefer=thread", "want one of processes, threads, got thread (did you mean threads?)"},
		{"???", files, "hydra.launcher.jobs=???", "hydra.launcher.jobs must be given: set it with hydra.launcher.jobs=VALUE"},
		{"Validate", files, "hydra.launcher.jobs=13", "hydra.launcher.jobs=13: want another number than 13"},
		{"no section", files, "hydra.launcher=3", "hydra.launcher=3: want a section, got 3"},
		{"two faults", launcherTree, "hydra.launcher.jobs=0", "\nhydra.launcher.jobs=0: want"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var args []string
			if tc.override != "" {
				args = []string{tc.override}
			}
			c, err := Compose(request(tc.files, args...))
			if err != nil {
				t.Fatal(err)
			}
			got := defaults()
			if err = c.DecodeHydra("launcher", &got); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("\n got %v\nwant %s", err, tc.want)
			}
			if got.Jobs != 1 || got.Retry.Times != 1 {
				t.Errorf("a failed decode changed the value: %+v", got)
			}
		})
	}
}

// A launcher without options accepts a node that only names Hydra's class.
func TestDecodeHydraWithoutFields(t *testing.T) {
	c, err := Compose(request("--- config\ndefaults:\n  - override hydra/launcher: mine\n--- hydra/launcher/mine\n_target_: some.Launcher\n"))
	if err != nil {
		t.Fatal(err)
	}
	var none struct{}
	if err := c.DecodeHydra("launcher", &none); err != nil {
		t.Error(err)
	}
	var sweeper struct{}
	if err := c.DecodeHydra("sweeper", &sweeper); err == nil || !strings.Contains(err.Error(), "unknown key hydra.sweeper.max_batch_size") {
		t.Errorf("a key that is not asked for: %v", err)
	}
}
