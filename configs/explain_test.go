package configs

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestExplainForms(t *testing.T) {
	files := "--- config\ndefaults:\n  - g: a\n  - h@p.q: a\n  - _self_\ng: {x: '${y}'}\ny: 3\nlist: [1, {k: 2}]\n--- g/a\nx: 1\nz: {w: " +
		"1}\n--- g/b\nx: 2\n--- h/a\nv: 1\n"
	for _, tc := range []struct{ key, args, want string }{
		{"y", "y=4 y=5", "y: 5\n  set by y=5\n  over 4 set by y=4\n  over 3 set by configs/conf/config.yaml:6:4\n"},
		{"g", "", "# group g: a (of a, b), chosen by configs/conf/config.yaml:2:5\ng.x: ${y}  # configs/conf/config.yaml:5:8\ng.z.w: 1   # " +
			"configs/conf/g/a.yaml:2:8\n"},
		{"g", "g=b", "# group g: b (of a, b), chosen by g=b\ng.x: ${y}  # configs/conf/config.yaml:5:8\n"},
		{"h@p.q", "", "group h@p.q: a (of a), chosen by configs/conf/config.yaml:3:5\n"},
		{"p", "", "p.q.v: 1  # configs/conf/h/a.yaml:1:4\n"},
		{"list.1.k", "list.1.k=5", "list.1.k: 5\n  set by list.1.k=5\n  over 2 set by configs/conf/config.yaml:7:15\n"},
		{"hydra.job.name", "", "hydra.job.name: run\n  set by hydra\n"},
		{"hydra.job.name", "hydra.job.name=me", "hydra.job.name: me\n  set by hydra.job.name=me\n"},
		{"hydra.job.chdir", "hydra.job.chdir=true", "over false set by configs/conf/hydra/config.yaml:"},
		{"hydra.runtime.choices", "g=b", "hydra.runtime.choices.g: b "},
		{"hydra.job.nmae", "", "error: unknown key hydra.job.nmae (did you mean hydra.job.name?)"},
		{"gg", "", "error: unknown key gg (did you mean g?)"},
		{"g.zz", "", "error: unknown key g.zz"},
	} {
		c, err := Compose(request(files, strings.Fields(tc.args)...))
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Explain(tc.key)
		if err != nil {
			got = "error: " + err.Error()
		}
		if !strings.Contains(got, tc.want) {
			t.Errorf("%s %s\n got %s\nwant %s", tc.key, tc.args, got, tc.want)
		}
	}
}

// A section says what each of its keys means.
func TestExplainSectionSaysWhatKeysMean(t *testing.T) {
	schema, err := SchemaOf(&struct {
		Optim struct {
			LR float64 `koanf:"lr" help:"learning rate"`
		} `koanf:"optim"`
	}{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Compose(Request{Library: fstest.MapFS{"config.yaml": {Data: []byte("optim: {lr: 2}\n")}}, Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	const want = "optim.lr: 2.0  # configs/conf/config.yaml:1:13\n  learning rate\n"
	if got, err := c.Explain("optim"); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
