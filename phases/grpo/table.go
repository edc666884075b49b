package grpo

import (
	"strings"

	"fulcrum/internal/option"
	"fulcrum/internal/registry"
)

// The choices of grpo.loss, grpo.kl.estimator, grpo.old_policy, grpo.rollout and grpo.zero_variance are tables: a
// function lists the entries of each, in the order of the messages. What may be named, its help and its check follow.

// entry is an entry of a table.
type entry interface{ named() string }

// names lists a table's names.
func names[T entry](table []T) []string {
	out := make([]string, len(table))
	for i, e := range table {
		out[i] = e.named()
	}
	return out
}

// find returns the entry of a table that the value of a key names.
func find[T entry](key string, table []T, name string) (T, error) {
	for _, e := range table {
		if e.named() == name {
			return e, nil
		}
	}
	var none T
	hint := ""
	if near, ok := registry.Suggest(name, names(table)); ok {
		hint = " (did you mean " + near + "?)"
	}
	return none, option.Errorf(key, "want one of %s, got %q%s", strings.Join(names(table), ", "), name, hint)
}

// Choices returns the values that the tables allow, for the schema and the documentation.
func (Options) Choices() map[string][]string {
	return map[string][]string{"loss": names(Losses()), "kl.estimator": names(Estimators()), "old_policy": names(OldPolicies()),
		"rollout": names(Rollouts()), "zero_variance": names(Silences())}
}

// chosen are the entries that the options name.
type chosen struct {
	loss    Loss
	kl      Estimator
	old     OldPolicy
	rollout Rollout
	silence Silence
}

// choose looks up what the options name.
func (o Options) choose() (c chosen, err error) {
	if c.loss, err = find("loss", Losses(), o.Loss); err != nil {
		return c, err
	}
	if c.kl, err = find("kl.estimator", Estimators(), o.KL.Estimator); err != nil {
		return c, err
	}
	if c.old, err = find("old_policy", OldPolicies(), o.OldPolicy); err != nil {
		return c, err
	}
	if c.rollout, err = find("rollout", Rollouts(), o.Rollout); err != nil {
		return c, err
	}
	c.silence, err = find("zero_variance", Silences(), o.ZeroVariance)
	return c, err
}
