package main

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"fulcrum/internal/list"
	"fulcrum/internal/registry"
	"fulcrum/internal/usage"
)

// invocation is the parsed command line.
type invocation struct {
	help, hydraHelp, version bool
	cfg, info, pkg           string
	resolve, run, multirun   bool
	completion, detach       bool
	configPath, configName   string
	configDir, rerun         string
	args                     []string // overrides, or a verb and its arguments
}

// shortNames are Hydra's one-dash flags of two letters, which pflag does not know.
var shortNames = [...][2]string{{"-cp", "--config-path"}, {"-cn", "--config-name"}, {"-cd", "--config-dir"}, {"-sc", "--shell-completion"}}

// experimentalRerun is Hydra's name of --rerun. Its argument may also be a file of the run folder.
const experimentalRerun = "--experimental-rerun"

var cfgKinds = [...]string{"all", "hydra", "job", "sweep"}

var infoKinds = [...]string{"all", "config", "defaults", "defaults-tree", "plugins", "searchpath"}

// flagSet declares the flags; --hydra-help prints their usages.
func flagSet(inv *invocation) *pflag.FlagSet {
	f := usage.Flags()
	f.BoolVarP(&inv.help, "help", "h", false, "Application's help")
	f.BoolVar(&inv.hydraHelp, "hydra-help", false, "Hydra's help")
	f.BoolVar(&inv.version, "version", false, "Show the version and exit")
	f.StringVarP(&inv.cfg, "cfg", "c", "", "Show config instead of running [job|hydra|all|sweep]")
	f.BoolVar(&inv.resolve, "resolve", false, "Used in conjunction with --cfg, resolve config interpolations before printing")
	f.StringVarP(&inv.pkg, "package", "p", "", "Config package to show")
	f.BoolVarP(&inv.run, "run", "r", false, "Run a job")
	f.BoolVarP(&inv.multirun, "multirun", "m", false, "Run multiple jobs with the configured launcher and sweeper")
	f.BoolVar(&inv.detach, "detach", false, "Leave a sweep to a process of its own; the commands attach and status show it")
	f.BoolVar(&inv.completion, "shell-completion", false,
		"Install or uninstall shell completion: install=bash|zsh|fish, uninstall=bash|zsh|fish (short: -sc)")
	f.StringVar(&inv.configPath, "config-path", "", "Overrides the directory of the primary config (short: -cp)")
	f.StringVar(&inv.configName, "config-name", "", "Overrides the name of the primary config (short: -cn)")
	f.StringVar(&inv.configDir, "config-dir", "", "Adds a config dir to the config search path (short: -cd)")
	f.StringVar(&inv.rerun, "rerun", "", "Run the config of a finished run's folder again")
	f.StringVar(&inv.rerun, experimentalRerun[2:], "", "Hydra's name of --rerun")
	f.StringVarP(&inv.info, "info", "i", "", "Print Hydra information [all|config|defaults|defaults-tree|plugins|searchpath]")
	f.Lookup("info").NoOptDefVal = "all"
	return f
}

// normalize rewrites three forms that pflag does not know: -cp, --info KIND, and a flag's name cut short, if it fits one flag
// only.
func normalize(f *pflag.FlagSet, args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			return append(out, args[i:]...)
		}
		for _, s := range shortNames {
			if a == s[0] {
				a = s[1]
			} else if rest, ok := strings.CutPrefix(a, s[0]+"="); ok {
				a = s[1] + "=" + rest
			}
		}
		a = unabbreviated(f, a)
		if (a == "--info" || a == "-i") && i+1 < len(args) && isWord(args[i+1]) {
			a = "--info=" + args[i+1]
			i++
		}
		out = append(out, a)
	}
	return out
}

// unabbreviated completes --mult to --multirun.
func unabbreviated(f *pflag.FlagSet, a string) string {
	name, value, valued := strings.Cut(a, "=")
	if !strings.HasPrefix(name, "--") || len(name) < 3 || f.Lookup(name[2:]) != nil || name == "--exp" { // exp=… is meant
		return a
	}
	full, fits := "", 0
	f.VisitAll(func(fl *pflag.Flag) {
		if strings.HasPrefix("--"+fl.Name, name) {
			full, fits = "--"+fl.Name, fits+1
		}
	})
	switch {
	case fits != 1:
		return a
	case valued:
		return full + "=" + value
	}
	return full
}

// isWord reports whether an argument is neither a flag nor an override.
func isWord(s string) bool {
	return s != "" && !strings.ContainsAny(s, "=") && !strings.ContainsAny(s[:1], "-~+")
}

func parseArgs(args []string) (*invocation, error) {
	inv := &invocation{}
	f := flagSet(inv)
	if err := f.Parse(normalize(f, args)); err != nil {
		return nil, unknownFlag(f, err)
	}
	if dir := filepath.Dir(inv.rerun); filepath.Base(dir) == ".hydra" { // a file of the run's
		inv.rerun = filepath.Dir(dir)
	}
	inv.args = f.Args()
	if inv.info != "" && !slices.Contains(infoKinds[:], inv.info) {
		return nil, usage.Errorf("%v", registry.Unknown("--info", inv.info, infoKinds[:]))
	}
	commands := list.Tally([]bool{inv.run, inv.multirun && inv.cfg != "sweep", inv.cfg != "", inv.info != "", inv.completion})[true]
	switch {
	case commands > 1:
		return nil, usage.Errorf("%s", "only one of --run, --multirun, --cfg, --info and --shell-completion can be specified")
	case inv.resolve && inv.cfg == "" && !inv.help:
		return nil, usage.Errorf("%s", "--resolve works only with --cfg or --help")
	case inv.pkg != "" && inv.cfg == "" && !inv.help:
		return nil, usage.Errorf("%s", "--package works only with --cfg or --help")
	case inv.cfg != "" && !slices.Contains(cfgKinds[:], inv.cfg):
		return nil, usage.Errorf("%v", registry.Unknown("--cfg", inv.cfg, cfgKinds[:]))
	case inv.cfg == "sweep" && !inv.multirun:
		return nil, usage.Errorf("%s", "--cfg sweep prints the jobs of a sweep: add --multirun")
	}
	return inv, nil
}

// unknownFlag adds the nearest flag to pflag's message.
func unknownFlag(f *pflag.FlagSet, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return usage.Errorf("%v", err)
	}
	name := unknown.GetSpecifiedName()
	e := &flagError{msg: "unknown flag: --" + name, name: "--" + name}
	if short := unknown.GetSpecifiedShortnames(); short != "" { // -seed
		e.msg, e.name = "unknown flag: -"+short, "-"+short
		return e
	}
	var names, longer []string
	f.VisitAll(func(fl *pflag.Flag) {
		if names = append(names, fl.Name); strings.HasPrefix(fl.Name, name) && "--"+fl.Name != experimentalRerun {
			longer = append(longer, "--"+fl.Name)
		}
	})
	if len(longer) > 1 {
		e.msg, e.near = e.msg+" (did you mean "+strings.Join(longer, " or ")+"?)", true
	} else if near, ok := registry.Nearest(name, names); ok {
		e.msg, e.near = e.msg+" (did you mean --"+near+"?)", true
	}
	return e
}

// namesOf returns a flag's names with their dashes, the long one first.
func namesOf(f *pflag.Flag) []string {
	names := []string{"--" + f.Name}
	if f.Shorthand != "" {
		names = append(names, "-"+f.Shorthand)
	}
	for _, s := range shortNames {
		if s[1] == names[0] {
			names = append(names, s[0])
		}
	}
	return names
}

// flagsHelp returns the text of $FLAGS_HELP.
func flagsHelp() string {
	var b strings.Builder
	flagSet(&invocation{}).VisitAll(func(f *pflag.Flag) {
		text, _, _ := strings.Cut(f.Usage, " (short:")
		b.WriteString(strings.Join(namesOf(f), ",") + " : " + text + "\n")
	})
	b.WriteString("Overrides : Any key=value arguments to override config values (use dots for.nested=overrides)")
	return b.String()
}
