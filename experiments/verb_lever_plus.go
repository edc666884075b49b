package experiments

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"fulcrum/configs"
	"fulcrum/experiments/leverplus"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
)

// verbLeverPlus runs exp=lever_plus_compat as the Python reference's command line asks.
func verbLeverPlus(ctx context.Context, a App, args []string) error {
	values, rest, err := leverplus.Parse(leverplus.Switches(), args)
	if err != nil {
		return usage.Errorf("lever-plus: %v", err)
	}
	if values == nil {
		stdout.Print(leverplus.Help())
		return nil
	}
	overrides, notices, err := leverplus.Overrides(values)
	if err != nil {
		return err
	}
	for _, arg := range rest {
		if !strings.Contains(arg, "=") && !strings.HasPrefix(arg, "~") {
			return usage.Errorf("lever-plus: %q is neither a switch of the reference nor an override key=value", arg)
		}
	}
	schema, err := a.Schema()
	if err != nil {
		return err
	}
	overrides = append(overrides, rest...)
	c, err := configs.Compose(configs.Request{Library: configs.Library(), Schema: schema, Overrides: overrides, Now: time.Now(), AppName: "run",
		Warn: func(message string) { fmt.Fprintln(os.Stderr, "warning: "+message) }})
	if err != nil {
		return err
	}
	for _, notice := range notices {
		fmt.Fprintln(os.Stderr, "lever-plus: "+notice)
	}
	stdout.Println(leverplus.ShellLine(append([]string{"run"}, overrides...)))
	return a.Run(ctx, c)
}
