package main

import (
	"fmt"
	"io"

	"fulcrum/configs"
	"fulcrum/internal/usage"
)

// explain prints which file or override set a key, and what that replaced.
func (s *session) explain(inv *invocation) error {
	if inv.help {
		_, err := io.WriteString(s.out, "run explain KEY [flags] [overrides]\nSays which file or override set a key, and what that replaced.\n")
		return err
	}
	if len(inv.args) == 0 {
		return usage.Errorf("%s", "explain: want a key, as in: run explain grpo.kl.beta exp=okvqa_v3")
	}
	key := inv.args[0]
	inv.args = inv.args[1:]
	req, err := s.request(inv, false)
	if err != nil {
		return err
	}
	c, err := configs.Compose(req)
	if err != nil {
		return err
	}
	text, err := c.Explain(key)
	if err != nil {
		return fmt.Errorf("explain: %w", err)
	}
	_, err = io.WriteString(s.out, text)
	return err
}
