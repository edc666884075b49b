package main

import (
	"strings"

	"github.com/spf13/pflag"

	"fulcrum/internal/registry"
)

// usageError is a fault in how the program was called.
type usageError struct{ msg string }

func (e *usageError) Error() string { return e.msg }

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

var infoKinds = [...]string{"all", "config", "defaults", "defaults-tree", "plugins", "searchpath"}

// flagSet declares the flags; the usages are what --hydra-help prints.
func flagSet(inv *invocation) *pflag.FlagSet {
	f := pflag.NewFlagSet("run", pflag.ContinueOnError)
	f.SortFlags = false
	f.Usage = func() {}
	f.BoolVarP(&inv.help, "help", "h", false, "Application's help")
	f.BoolVar(&inv.hydraHelp, "hydra-help", false, "Hydra's help")
	f.BoolVar(&inv.version, "version", false, "Show the version and exit")
	f.StringVarP(&inv.cfg, "cfg", "c", "", "Show config instead of running [job|hydra|all|sweep]")
	f.BoolVar(&inv.resolve, "resolve", false, "Used in conjunction with --cfg, resolve config interpolations before printing")
	f.StringVarP(&inv.pkg, "package", "p", "", "Config package to show")
	f.BoolVarP(&inv.run, "run", "r", false, "Run a job")
	f.BoolVarP(&inv.multirun, "multirun", "m", false, "Run multiple jobs with the configured launcher and sweeper")
	f.BoolVar(&inv.detach, "detach", false, "Leave a sweep to a process of its own; see run attach and run status")
	f.BoolVar(&inv.completion, "shell-completion", false, "Install or uninstall shell completion: install=bash|fish, uninstall=bash|fish (short: -sc)")
	f.StringVar(&inv.configPath, "config-path", "", "Overrides the directory of the primary config (short: -cp)")
	f.StringVar(&inv.configName, "config-name", "", "Overrides the name of the primary config (short: -cn)")
	f.StringVar(&inv.configDir, "config-dir", "", "Adds a config dir to the config search path (short: -cd)")
	f.StringVar(&inv.rerun, "rerun", "", "Run the config of a finished run's folder again")
	f.StringVarP(&inv.info, "info", "i", "", "Print Hydra information [all|config|defaults|defaults-tree|plugins|searchpath]")
	f.Lookup("info").NoOptDefVal = "all"
	return f
}

// normalize turns what pflag does not know into what it knows: -cp, and --info KIND.
func normalize(args []string) []string {
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
		if (a == "--info" || a == "-i") && i+1 < len(args) {
			for _, k := range infoKinds {
				if args[i+1] == k {
					a = "--info=" + k
					i++
					break
				}
			}
		}
		out = append(out, a)
	}
	return out
}

func parseArgs(args []string) (*invocation, error) {
	inv := &invocation{}
	f := flagSet(inv)
	if err := f.Parse(normalize(args)); err != nil {
		return nil, &usageError{unknownFlag(f, err)}
	}
	inv.args = f.Args()
	if inv.info != "" && !contains(infoKinds[:], inv.info) {
		return nil, &usageError{registry.Unknown("--info", inv.info, infoKinds[:]).Error()}
	}
	commands := 0
	for _, given := range []bool{inv.run, inv.multirun && inv.cfg != "sweep", inv.cfg != "", inv.info != "", inv.completion} {
		if given {
			commands++
		}
	}
	switch {
	case commands > 1:
		return nil, &usageError{"only one of --run, --multirun, --cfg, --info and --shell-completion can be specified"}
	case inv.resolve && inv.cfg == "" && !inv.help:
		return nil, &usageError{"--resolve works only with --cfg or --help"}
	case inv.cfg != "" && !contains([]string{"job", "hydra", "all", "sweep"}, inv.cfg):
		return nil, &usageError{registry.Unknown("--cfg", inv.cfg, []string{"all", "hydra", "job", "sweep"}).Error()}
	case inv.cfg == "sweep" && !inv.multirun:
		return nil, &usageError{"--cfg sweep prints the jobs of a sweep: add --multirun"}
	}
	return inv, nil
}

// unknownFlag adds the nearest flag to pflag's message.
func unknownFlag(f *pflag.FlagSet, err error) string {
	msg := err.Error()
	if name, ok := strings.CutPrefix(msg, "unknown flag: --"); ok {
		var names []string
		f.VisitAll(func(fl *pflag.Flag) { names = append(names, fl.Name) })
		if near, ok := registry.Nearest(name, names); ok {
			msg += " (did you mean --" + near + "?)"
		}
	}
	return msg
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// flagsHelp is the text of $FLAGS_HELP.
func flagsHelp() string {
	var b strings.Builder
	flagSet(&invocation{}).VisitAll(func(f *pflag.Flag) {
		b.WriteString("--" + f.Name)
		if f.Shorthand != "" {
			b.WriteString(",-" + f.Shorthand)
		}
		for _, s := range shortNames {
			if s[1] == "--"+f.Name {
				b.WriteString("," + s[0])
			}
		}
		usage, _, _ := strings.Cut(f.Usage, " (short:")
		b.WriteString(" : " + usage + "\n")
	})
	return strings.TrimRight(b.String(), "\n")
}
