package main

import (
	"fmt"
	"strings"

	"fulcrum/configs"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
)

// explainName is the verb that takes the flags of a run too.
const explainName = "explain"

// explainVerb prints which file or override set a key, and what that replaced.
func explainVerb() *verb {
	return &verb{
		usage: `run explain grpo.kl.beta exp=okvqa_v3
run explain grpo

run explain KEY [flags] [overrides]
Says what a key means, which file or override set it, and what that replaced; of
a section, all its keys with their meanings; of a group, its options.
`,
		run: func(s *session, args []string) error {
			inv, err := parseArgs(args)
			if err != nil {
				return err
			}
			if len(inv.args) == 0 {
				return usage.Errorf("explain: want a key, as in: `run explain grpo.kl.beta exp=okvqa_v3`")
			}
			key := inv.args[0]
			inv.args = inv.args[1:]
			if group, _, ok := strings.Cut(key, "="); ok {
				return usage.Errorf("explain: %s is an override: want a key before it, as in: `run explain %s %[1]s`", key, group)
			}
			return s.shown(inv, func(req configs.Request) error {
				c, err := configs.Compose(req)
				if err != nil {
					return err
				}
				text, err := c.Explain(key)
				if err != nil {
					return fmt.Errorf("explain: %w", err)
				}
				return s.write(stdout.Folded(text), nil)
			})
		},
	}
}
