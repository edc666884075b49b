package configs

import (
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/list"
)

func TestUnread(t *testing.T) {
	schema, err := SchemaOf(&ownOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, args, want, says string
	}{
		{"what no setting takes, also through a key that nothing reads", "", "vars.opt.steps vars.tags vars.half",
			"no setting reads vars.opt.steps (testdata/hydra/conf/own/config.yaml:9:28), vars.tags"},
		{"the setting that it was fed is another's now", "lr=0.5 vars.base_lr=2", "vars.base_lr vars.opt.steps vars.tags vars.half",
			"no setting reads vars.base_lr, vars.opt.steps"},
		{"through a key that a setting reads", "lr=${vars.half}", "vars.opt.steps vars.tags", ""},
		{"from the hydra node, a whole section", "hydra.run.dir=out/${vars.opt}/${vars.tags}", "vars.half", "vars.half (testdata"},
		{"by a key that is itself a value", "+vars.which=steps limit='${vars.opt.${vars.which}}'", "vars.tags vars.half", ""},
		{"the overrides as typed are no reader", "+vars.note=${vars.half}", "vars.opt.steps vars.tags vars.half vars.note", "and 1 more"},
	} {
		c, err := Compose(Request{ConfigPath: "testdata/hydra/conf/own", Overrides: strings.Fields(tc.args), Schema: schema})
		if err != nil {
			t.Fatal(tc.name, err)
		}
		unread := c.Unread()
		if got := list.Map(unread, func(s Setting) string { return s.Key }); !slices.Equal(got, strings.Fields(tc.want)) {
			t.Errorf("%s: %q, want %s", tc.name, got, tc.want)
		}
		if note := c.UnreadNote(unread); !strings.Contains(note, tc.says) {
			t.Errorf("%s: %s, want %s", tc.name, note, tc.says)
		}
	}
}
