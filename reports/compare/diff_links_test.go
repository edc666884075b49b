package compare

import (
	"maps"
	"strings"
	"testing"
)

// What a link leads to is compared, not its text: a key of one's own changes the settings that it feeds, and nothing else.
func TestDiffOfLinks(t *testing.T) {
	const config = "vars: {lr: 0.1, half: '${.lr}', opt: {eps: 1, kind: sgd}, note: a}\n" +
		"rce: {lr: '${vars.half}', optim: '${vars.opt}'}\ngrpo: {lr: 0.5, name: 'x-${vars.note}-${oc.env:USER}'}\n"
	side := func(text string) DiffSide {
		t.Helper()
		s, err := ReadDiffRun(diffRun(t, text, "hydra: {}", endedAs("f", "h"+text, "c", nil)))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, tc := range []struct{ name, from, to, settings, elsewhere, via string }{
		{"over two links", "lr: 0.1", "lr: 0.3", "rce.lr 0.1→0.3", "vars.half 0.1→0.3; vars.lr 0.1→0.3", "rce.lr via vars.half"},
		{"a section", "eps: 1", "eps: 2", "rce.optim.eps 1→2", "vars.opt.eps 1→2", "rce.optim.eps via vars.opt.eps"},
		{"inside a text", "note: a", "note: b", "grpo.name x-a-${oc.env:USER}→x-b-${oc.env:USER}", "vars.note a→b", "grpo.name via vars.note"},
		{"the same value without the link", "'${vars.half}'", "0.1", "", "", ""},
		{"a value in place of the link", "'${vars.half}'", "0.2", "rce.lr 0.1→0.2", "", "rce.lr via vars.half"},
	} {
		d, err := DiffOf(side(config), side(strings.Replace(config, tc.from, tc.to, 1)))
		if err != nil {
			t.Fatal(err)
		}
		settings := strings.TrimPrefix(strings.ReplaceAll(summed(d.Settings), summedHash(d), ""), "; ")
		if elsewhere := summed(d.Elsewhere); settings != tc.settings || elsewhere != tc.elsewhere {
			t.Errorf("%s: settings %q, elsewhere %q, want %q and %q", tc.name, settings, elsewhere, tc.settings, tc.elsewhere)
		}
		via := ""
		for _, one := range d.Settings {
			if one.Via != "" {
				via = one.Key + " via " + one.Via
			}
		}
		if via != tc.via {
			t.Errorf("%s: %q, want %q", tc.name, via, tc.via)
		}
	}
	loop := map[string]string{"a": "${b}", "b": "${a}", "c": "${..x.y}", "d.e": "${.f}", "d.f": "1"}
	if got, _ := linked(maps.Clone(loop)); got["d.e"] != "1" || got["c"] != loop["c"] {
		t.Errorf("%v", got)
	}
}

// summedHash is the line on hashes alone, which these configurations, never run, have by their texts.
func summedHash(d Diff) string {
	for _, one := range d.Settings {
		if one.Key == "(resolved values)" {
			return summed([]Difference{one})
		}
	}
	return "\x00"
}
