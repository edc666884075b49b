package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"

	"fulcrum/configs"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/usage"
)

type storyOptions struct {
	Seed int     `koanf:"seed" help:"of everything"`
	LR   float64 `koanf:"lr" help:"learning rate" range:"(0,1)"`
}

// story runs one command line in a folder with a small tree of the user's own.
func story(t *testing.T, app fakeApp, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	dir := t.TempDir()
	golden.Write(t, dir, map[string]string{
		"conf/config.yaml":  "defaults: [{net: mlp}, _self_]\nseed: 1\nlr: 0.1\n",
		"conf/net/mlp.yaml": "w: 1\n", "conf/net/cnn.yaml": "k: 3\n",
		"conf/typed.yaml": "lr: 0.2\n",
	})
	t.Chdir(dir)
	var out, errOut bytes.Buffer
	ctx := context.Background()
	err := sessionOf(app, &out, &errOut).call(args)
	text := errOut.String()
	if err != nil {
		text += err.Error()
	}
	return out.String(), text, exitCode(ctx, err)
}

func TestCommandLine(t *testing.T) {
	schema, err := configs.SchemaOf(&storyOptions{LR: 0.5}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, args     string
		stdout, stderr string // contained; = for equal
		code           int
		calls          string
	}{
		{"flags and overrides alternate", "seed=2 -cp conf --cfg job net=cnn", "=net:\n  k: 3\nseed: 2\nlr: 0.1\n", "", 0, ""},
		{"a flag with an equals sign", "--config-path=conf --cfg=job -p net", "=# @package net\nw: 1\n", "", 0, ""},
		{"a scalar package is bare", "-cp conf -c job -p seed", "=1\n", "", 0, ""},
		{"a sweep's jobs", "-cp conf -m net=glob(*) --cfg sweep", "=- - net=cnn\n- - net=mlp\n", "", 0, ""},
		{"the version", "--version", "run ", "", 0, ""},
		{"help names the groups", "-cp conf --help", "net: cnn, mlp", "", 0, ""},
		{"hydra's help names the flags", "-cp conf --hydra-help", "--multirun,-m : ", "", 0, ""},
		{"info", "-cp conf --info defaults-tree", "    net: mlp\n", "", 0, ""},
		{"info of a kind", "-cp conf --info=searchpath", "| main     | file://", "", 0, ""},
		{"info before an override", "-cp conf --info defaults net=cnn", "| net/cnn", "", 0, ""},
		{"all info", "-cp conf -i", "Hydra 1.4", "", 0, ""},
		{"info config shows the job", "-cp conf -i config seed=2", "Config\n******\nnet:\n  w: 1\nseed: 2\n", "", 0, ""},
		{"the start of a flag's name", "--config-pa conf --cfg=job --pack net", "=# @package net\nw: 1\n", "", 0, ""},
		{"help with a template of one's own", "-cp conf --help hydra.help.template=$APP_CONFIG_GROUPS$$", "=net: cnn, mlp\n$\n", "", 0, ""},
		{"help resolves", "-cp conf --help --resolve +x=${seed}", "x: 1\n", "", 0, ""},
		{"_global_ is everything", "-cp conf --cfg job -p _global_", "=net:\n  w: 1\nseed: 1\nlr: 0.1\n", "", 0, ""},
		{"the hydra node", "-cp conf --cfg hydra -p hydra.job.config_name", "=config\n", "", 0, ""},
		{"a primary config deeper down", "-cp conf -cn net/cnn --cfg job", "=net:\n  k: 3\n", "", 0, ""},
		{"a config dir beside", "-cp conf -cd conf/net -cn cnn --cfg job", "=k: 3\n", "", 0, ""},
		{"the search path", "-cp conf hydra.searchpath=[conf/net] -cn cnn --cfg job", "=k: 3\n", "", 0, ""},
		{"a missing entry of the search path", "-cp conf hydra.searchpath=[file:///no/where] --cfg job -p seed", "=1\n",
			"path=file:///no/where is not available", 0, ""},
		{"Hydra's rerun takes a file of the folder", "--experimental-rerun DIR/.hydra/config.yaml", "", "", 0, "rerun DIR"},
		{"explain", "-cp conf explain lr lr=3", "=lr: 3\n  set by lr=3\n  over 0.1 set by conf/config.yaml:3:5\n", "", 0, ""},
		{"explain before its flags", "explain net.w -cp conf", "set by conf/net/mlp.yaml:1:4", "", 0, ""},
		{"explain has a help", "explain --help", "run explain KEY", "", 0, ""},
		{"help before a verb is the verb's", "--help status", "run status SWEEP_OR_RUN_FOLDER [--json]\n", "", 0, ""},
		{"help behind a verb is the verb's", "status -h DIR", "run status SWEEP_OR_RUN_FOLDER [--json]\n", "", 0, ""},
		{"completion", "-sc install=bash", "complete -o nospace", "", 0, ""},
		{"a run", "-cp conf -cn typed seed=3", "", "", 0, "run seed=3"},
		{"a sweep", "-cp conf -cn typed -m seed=1,2", "", "", 0, "sweep [[seed=1] [seed=2]]"},
		{"the config can ask for a sweep", "-cp conf -cn typed hydra.mode=MULTIRUN seed=1,2", "", "", 0, "sweep [[seed=1] [seed=2]]"},
		{"a verb gets its arguments", "toy x --loud DIR", "", "", 0, "toy loudly [x DIR]"},
		{"a verb behind a run's flags", "-cp conf toy x", "", "", 0, "toy [x]"},
		{"a verb has a help", "toy --help", "=run toy [--loud] WORD…\nSays the words.\n", "", 0, ""},
		{"a verb's flags are known", "toy --luod x", "",
			"=run toy: unknown flag --luod (did you mean --loud?); `run toy --help` says what it takes", 2, ""},
		{"a verb without flags", "attach --json x", "", "=run attach: unknown flag --json (it has none); `run attach --help` says " +
			"what it takes", 2, ""},
		{"rerun", "--rerun DIR seed=1", "", "", 0, "rerun DIR seed=1"},
		{"rerun prints nothing", "--rerun DIR seed=1 --cfg job", "", "=--rerun does one run again: want no --cfg or --info with it; the " +
			"configuration that it takes is DIR/.hydra/config.yaml", 2, ""},

		{"a tree of one's own is typed when it runs", "-cp conf seed=3", "", "conf/net/mlp.yaml:1:1: unknown key net", 2, ""},
		{"another program's tree is printed with what a run refuses", "-cp conf --cfg job seed=3", "=net:\n  w: 1\nseed: 3\nlr: 0.1\n",
			"a run refuses this configuration, which is shown as Hydra composes it: conf/net/mlp.yaml:1:1: unknown key net", 0, ""},
		{"a tree of one's own is printed as it runs", "-cp conf -cn typed --cfg job seed=3", "=seed: 3\nlr: 0.2\n", "=", 0, ""},
		{"and explained as it runs", "-cp conf -cn typed explain seed", "=seed: 0\n  set by default\n  of everything (an integer)\n", "=", 0, ""},
		{"and refused as it runs", "-cp conf -cn typed --cfg job +seed=3", "", "+seed=3: Could not append to config. An item is",
			2, ""},
		{"a range in an override", "-cp conf -cn typed lr=2", "", "=lr=2: want a number in (0, 1), got 2", 2, ""},
		{"an unknown flag", "--mutlirun", "", "=unknown flag: --mutlirun (did you mean --multirun?)", 2, ""},
		{"a setting as a flag", "-cp conf --seed 3", "",
			"=unknown flag: --seed: settings are written without dashes (did you mean seed=3?)", 2, ""},
		{"a setting as a flag with one dash", "-seed 3", "",
			"=unknown flag: -seed: settings are written without dashes (did you mean seed=3?)", 2, ""},
		{"a flag that means nothing", "--xyzzy", "",
			"=unknown flag: --xyzzy: `run --help` lists groups and keys, `run --hydra-help` the flags", 2, ""},
		{"a group without =", "-cp conf net cnn", "", "=\"net\" is neither an override key=value nor a command (did you mean net=cnn?)", 2, ""},
		{"an option alone", "-cp conf cnn", "", "=\"cnn\" is neither an override key=value nor a command (did you mean net=cnn?)", 2, ""},
		{"an unknown command", "reprot x", "", "=\"reprot\" is neither a command nor an override key=value (did you mean report?)", 2, ""},
		{"an unknown --cfg", "--cfg jbo", "", "=unknown --cfg \"jbo\" (did you mean job?): want one of all, hydra, job, sweep", 2, ""},
		{"an unknown --info", "-cp conf --info defalts", "",
			"=unknown --info \"defalts\" (did you mean defaults?): want one of all, config, defaults, defaults-tree, plugins, searchpath", 2, ""},
		{"an unknown variable of a template", "-cp conf --help hydra.help.template=$CONFG", "", "unknown $CONFG (did you mean $CONFIG?)", 2, ""},
		{"an unknown shell", "-sc install=tcsh", "", "want install=, uninstall= or query= with bash, zsh or fish", 2, ""},
		{"a file for a folder", "-cp conf/config.yaml --cfg job", "", "conf/config.yaml is a file: want a directory", 2, ""},
		{"a group for a key", "-cp conf nett=mlp --cfg job", "", "Key 'nett' is not in struct (did you mean net?)", 2, ""},
		{"two commands", "--run --cfg job", "", "only one of --run", 2, ""},
		{"--resolve alone", "--resolve", "", "--resolve works only with --cfg", 2, ""},
		{"a sweep without -m", "-cp conf net=cnn,mlp", "", "Ambiguous value for argument 'net=cnn,mlp'", 2, ""},
		{"an absent folder", "-cp nowhere --cfg job", "", "'nowhere'", 2, ""},
		{"an absent package", "-cp conf --cfg job -p x.y", "", "=package 'x.y' not found in config", 2, ""},
		{"explain without a key", "explain -cp conf", "", "want a key", 2, ""},
		{"explain of an unknown key", "explain sede -cp conf", "", "unknown key sede (did you mean seed?)", 2, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var calls []string
			stdout, stderr, code := story(t, fakeApp{schema: schema, calls: &calls}, strings.Fields(tc.args)...)
			check := func(what, got, want string) {
				if exact, ok := strings.CutPrefix(want, "="); ok && got != exact || !ok && !strings.Contains(got, want) {
					t.Errorf("%s\n got %q\nwant %q", what, got, want)
				}
			}
			check("stdout", stdout, tc.stdout)
			check("stderr", stderr, tc.stderr)
			if code != tc.code {
				t.Errorf("exit code %d, want %d (%s)", code, tc.code, stderr)
			}
			if got := strings.Join(calls, "; "); got != tc.calls {
				t.Errorf("calls %q, want %q", got, tc.calls)
			}
		})
	}
}

func TestExitCodes(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(&interrupted{syscall.SIGTERM})
	for _, tc := range []struct {
		name string
		err  error
		want int
	}{
		{"done", nil, 0},
		{"a failed run", errors.New("loss is nan"), 1},
		{"a config error", &configs.Error{Msg: "x"}, 2},
		{"a usage error", usage.Errorf("%s", "x"), 2},
		{"SIGINT", &interrupted{syscall.SIGINT}, 130},
		{"SIGHUP", &interrupted{syscall.SIGHUP}, 129},
		{"a run stopped by its context", context.Canceled, 143},
	} {
		if stop, ok := errors.AsType[*interrupted](tc.err); ok && !errors.Is(stop, context.Canceled) {
			t.Errorf("%s is a failure to the other processes of its run, which may still be saving", tc.name)
		}
		if got := exitCode(ctx, tc.err); got != tc.want {
			t.Errorf("%s: exit code %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestCompletion(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{"run -cp conf n", "net. net="},
		{"run -cp conf net=", "net=cnn net=mlp"},
		{"run -cp conf net=c", "net=cnn"},
		{"run -cp conf lr=", "lr=0.1"},
		{"run -cp conf +net.", "+net.w="},
		{"run -cp conf bad=[ n", "net. net="},
		{"run --multi", "--multirun"},
		{"run report --j", "--json"},
		{"run help resu", "resume"},
		{"run -cp nowhere n", ""},
	} {
		t.Run(tc.line, func(t *testing.T) {
			t.Setenv("COMP_LINE", tc.line)
			got, _, _ := story(t, fakeApp{}, "-sc", "query=bash")
			if strings.TrimSpace(got) != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// What measures is a program of its own, whatever stands behind its old name.
func TestBenchIsAnotherProgram(t *testing.T) {
	for _, line := range []string{"bench", "bench rl_k64_b1 --phases rce", "selftest --device cpu", "bench --help"} {
		err := sessionOf(fakeApp{}, nil, nil).call(strings.Fields(line))
		if err == nil || !strings.Contains(err.Error(), "`bin/bench workloads`") || strings.Contains(err.Error(), "\n") ||
			exitCode(t.Context(), err) != 2 {
			t.Errorf("run %s: %v, want one line that names bin/bench", line, err)
		}
	}
}
