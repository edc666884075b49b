package configs

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

type phasesOptions struct {
	Schedule []string           `koanf:"schedule" help:"phases in order"`
	GRPO     grpoOptions        `koanf:"grpo" help:"a phase"`
	Others   map[string]Section `koanf:",sections"`
	Last     int                `koanf:"last"`
}

type sftOptions struct {
	LR float64 `koanf:"lr" range:"(0,1)"`
}

func (o *phasesOptions) Kinds() map[string]any {
	grpo := defaultApp().GRPO
	return map[string]any{"grpo": &grpo, "sft": &sftOptions{LR: 0.1}}
}

func phasesSchema(t testing.TB) *Schema {
	t.Helper()
	late := defaultApp().GRPO
	late.LR = 0.25
	s, err := SchemaOf(&phasesOptions{
		Schedule: []string{"grpo"}, GRPO: defaultApp().GRPO, Others: map[string]Section{"late": {Kind: "grpo", Options: &late,
			Help: "a second one"}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFreeSections(t *testing.T) {
	schema := phasesSchema(t)
	for _, tc := range []struct{ name, config, overrides, want string }{
		{"one that is always there", "late: {lr: 0.5}", "late.top_k=2", "late:grpo:0.5"},
		{"with its kind", "late: {kind: grpo, lr: 0.5}", "", "late:grpo:0.5"},
		{"a section named as its kind", "grpo: {kind: grpo, lr: 0.5}", "", "late:grpo:0.25"},
		{"of a file", "mine: {kind: grpo, lr: 0.01}", "", "late:grpo:0.25 mine:grpo:0.01"},
		{"of another kind", "mine: {kind: sft}", "mine.lr=0.5", "late:grpo:0.25 mine:sft:0.5"},
		{"of the command line", "", "+mine.kind=sft mine.lr=0.5", "late:grpo:0.25 mine:sft:0.5"},
		{"in any order", "", "mine.lr=0.5 +mine.kind=sft", "late:grpo:0.25 mine:sft:0.5"},
		{"as a mapping", "", "+mine={kind:sft,lr:0.5}", "late:grpo:0.25 mine:sft:0.5"},
		{"two", "b: {kind: sft}\na: {kind: grpo}", "", "a:grpo:0.001 b:sft:0.1 late:grpo:0.25"},

		{"an unknown kind names the nearest", "mine:\n  kind: grop", "",
			"configs/conf/config.yaml:2:9: mine.kind: want one of grpo, sft, got grop (did you mean grpo?)"},
		{"an unknown kind of the command line", "", "+mine.kind=sfd", "+mine.kind=sfd: want one of grpo, sft, got sfd (did you mean sft?)"},
		{"another kind for one that is there", "late: {kind: sft}", "", "configs/conf/config.yaml:1:14: late.kind: want one of grpo, got sft"},
		{"another kind for the section of a kind", "grpo: {kind: sft}", "",
			"configs/conf/config.yaml:1:14: grpo.kind: want one of grpo, got sft"},
		{"an unknown key", "mine: {kind: sft, lrr: 0.01}", "", "configs/conf/config.yaml:1:24: unknown key mine.lrr (did you mean mine.lr?)"},
		{"an unknown key of the command line", "mine: {kind: sft}", "mine.lrr=1", "mine.lrr=1: unknown key mine.lrr (did you mean mine.lr?)"},
		{"a range", "mine: {kind: sft, lr: 2}", "", "configs/conf/config.yaml:1:23: mine.lr: want a number in (0, 1), got 2"},
		{"Validate", "mine: {kind: grpo, kl: {target_min: 0.5}}", "",
			"configs/conf/config.yaml:1:37: mine.kl.target_min: want at most target_max = 0.1, got 0.5"},
		{"no kind", "mine: {lr: 0.5}", "", "configs/conf/config.yaml:1:7: unknown key mine: none of the program's sections is near it; " +
			"one of your own stands in vars, as vars.mine, and a group fills it with mine@vars.mine: OPTION in the defaults list"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := request("--- config\n"+tc.config+"\n", strings.Fields(tc.overrides)...)
			req.Schema = schema
			got := ""
			if c, err := Compose(req); err != nil {
				got = err.Error()
			} else {
				var o phasesOptions
				if err := c.Decode(&o); err != nil {
					t.Fatal(err)
				}
				got = described(o)
			}
			if got != tc.want {
				t.Errorf("\n got %s\nwant %s", got, tc.want)
			}
		})
	}
}

// An option called kind, below a section, is no kind of a section.
func TestOptionsCalledKind(t *testing.T) {
	type fine struct {
		Kind string `koanf:"kind" enum:"soft,hard"`
	}
	type toy struct {
		Fine fine `koanf:"fine"`
	}
	schema, err := SchemaOf(&phasesOptions{GRPO: defaultApp().GRPO, Others: map[string]Section{"toy": {Options: &toy{fine{"soft"}}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, override := range []string{"toy.fine.kind=hard", "toy.fine={kind:hard}"} {
		req := request("--- config\n{}\n", override)
		req.Schema = schema
		var o phasesOptions
		c, err := Compose(req)
		if err == nil {
			err = c.Decode(&o)
		}
		if err != nil {
			t.Errorf("%s: %v", override, err)
		} else if got := o.Others["toy"].Options.(*toy).Fine.Kind; got != "hard" {
			t.Errorf("%s: got %s", override, got)
		}
	}
}

// described lists the free sections with their kinds and learning rates.
func described(o phasesOptions) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(o.Others)) {
		section := o.Others[name]
		lr := 0.0
		switch options := section.Options.(type) {
		case *grpoOptions:
			lr = options.LR
		case *sftOptions:
			lr = options.LR
		}
		out = append(out, name+":"+section.Kind+":"+newFloat(lr).pyStr())
	}
	return strings.Join(out, " ")
}

// The jobs of a sweep may bring sections of their own, and share none.
func TestFreeSectionsOfJobs(t *testing.T) {
	req := request("--- config\nmine: {kind: grpo}\n")
	req.Schema, req.Multirun = phasesSchema(t), true
	c, err := NewComposer(req)
	if err != nil {
		t.Fatal(err)
	}
	master, err := c.Compose()
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		for overrides, want := range map[string]string{
			"mine.lr=0.5":               "late:grpo:0.25 mine:grpo:0.5",
			"mine.lr=0.25":              "late:grpo:0.25 mine:grpo:0.25",
			"+other.kind=sft":           "late:grpo:0.25 mine:grpo:0.001 other:sft:0.1",
			"+other={kind:grpo,lr:0.5}": "late:grpo:0.25 mine:grpo:0.001 other:grpo:0.5",
		} {
			job, err := c.Job(master, round, strings.Fields(overrides))
			if err != nil {
				t.Fatal(err)
			}
			var o phasesOptions
			if err := job.Decode(&o); err != nil || described(o) != want {
				t.Errorf("%s: got %s (%v), want %s", overrides, described(o), err, want)
			}
		}
	}
}

func TestFreeSectionsKeepTheirPlace(t *testing.T) {
	req := request("--- config\nschedule: [mine]\nmine: {kind: sft}\n")
	req.Schema = phasesSchema(t)
	c, err := Compose(req)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, k := range c.job().Keys {
		keys = append(keys, k.Text)
	}
	if got := strings.Join(keys, " "); got != "schedule grpo late mine last" {
		t.Errorf("sections stand as %s", got)
	}
	page := req.Schema.Markdown()
	if want := "## `late`\n\nA second one. The keys are those of `grpo`, with other defaults: `late.lr: " +
		"0.25`.\n\n"; !strings.Contains(page, want) {
		t.Errorf("the page lacks %s:\n%s", want, page)
	}
}
