package configs

import (
	"strings"
	"testing"

	"fulcrum/internal/option"
)

type klOptions struct {
	Beta      float64 `koanf:"beta" help:"starting coefficient" range:"[0,inf)"`
	Estimator string  `koanf:"estimator" help:"how KL is estimated"`
	TargetMin float64 `koanf:"target_min" help:"nats per sequence"`
	TargetMax float64 `koanf:"target_max" help:"nats per sequence"`
}

func (o *klOptions) Validate() error {
	if o.TargetMin > o.TargetMax {
		return option.Errorf("target_min", "want at most target_max = %g, got %g", o.TargetMax, o.TargetMin)
	}
	return nil
}

type grpoOptions struct {
	Epochs  int                `koanf:"epochs" help:"0 skips the phase" range:"[0,inf)"`
	LR      float64            `koanf:"lr" help:"learning rate" range:"(0,1)"`
	TopK    *int               `koanf:"top_k" help:"beams kept; null = all"`
	KL      klOptions          `koanf:"kl"`
	Betas   []float64          `koanf:"betas" help:"Adam's" range:"[0,1)"`
	Weights map[string]float64 `koanf:"weights" help:"by reward"`
}

// Choices stands for a table that a section above the key knows.
func (grpoOptions) Choices() map[string][]string {
	return map[string][]string{"kl.estimator": {"exact", "k1", "k2", "k3"}}
}

type appOptions struct {
	Task     string      `koanf:"task" help:"what to do"`
	Seed     int         `koanf:"seed" help:"of everything"`
	Name     string      `koanf:"name" help:"free text"`
	File     *string     `koanf:"file" help:"of data"`
	Schedule []string    `koanf:"schedule" help:"phases in order"`
	GRPO     grpoOptions `koanf:"grpo"`
	Extra    any         `koanf:"extra" help:"anything"`
	Internal int
}

func (appOptions) Choices() map[string][]string {
	return map[string][]string{"task": {"train", "predict"}}
}

func defaultApp() *appOptions {
	return &appOptions{Task: "train", Schedule: []string{"rce", "grpo"}, GRPO: grpoOptions{Epochs: 1, LR: 1e-3,
		KL: klOptions{Estimator: "exact", TargetMax: 0.1}, Betas: []float64{0.9, 0.999}, Weights: map[string]float64{"vqa": 1}}}
}

func appSchema(t testing.TB) *Schema {
	t.Helper()
	s, err := SchemaOf(defaultApp(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A key off is text, so that a file can say what checks.off=[…] says; as a value it is false, as in Hydra.
func TestOffAsAKey(t *testing.T) {
	n, err := ParseYAML("f", []byte("off: off\n\"no\": 1\nno: 2"))
	if err != nil {
		t.Fatal(err)
	}
	if got := n.Get("off"); got == nil || got.Kind != Bool || got.Text != "false" && got.pyStr() != "False" || len(n.Keys) != 3 {
		t.Errorf("off: %+v of %v", got, n.Keys)
	}
}

func TestSchema(t *testing.T) {
	for _, tc := range []struct{ name, config, overrides, want string }{
		{"defaults stand under the files", "grpo: {lr: 0.5}", "", ""},
		{"an int fits a float", "grpo: {kl: {beta: 1}}", "", ""},
		{"null where it may be", "grpo: {top_k: null}", "grpo.top_k=3 grpo.top_k=null", ""},
		{"free keys of a map", "", "+grpo.weights.rouge=2", ""},
		{"free keys need no +", "", "grpo.weights.rouge=2 grpo.weights={vqa:1}", ""},
		{"and are checked", "", "grpo.weights.rouge=x", "grpo.weights.rouge=x: want a number, got the text \"x\""},
		{"anything takes anything", "extra: {a: [1, {b: 2}]}", "extra=5", ""},
		{"an interpolation is checked when resolved", "seed: ${grpo.epochs}", "", ""},

		{"an unknown key names the nearest", "grpo:\n  kl: {bta: 1}", "",
			"configs/conf/config.yaml:2:13: unknown key grpo.kl.bta (did you mean grpo.kl.beta?)"},
		{"an unknown section", "gpro: {lr: 1}", "", "configs/conf/config.yaml:1:7: unknown key gpro (did you mean grpo?)"},
		{"a key of one's own that keys of sections are near to", "lr: 1", "", "configs/conf/config.yaml:1:5: unknown key lr (did you mean " +
			"grpo.lr?); a key of your own stands in vars, as vars.lr"},
		{"a group of one's own", "optimizer: {w: 1}", "", "configs/conf/config.yaml:1:12: unknown key optimizer: none of the program's " +
			"sections is near it; one of your own stands in vars, as vars.optimizer, and a group fills it with " +
			"optimizer@vars.optimizer: OPTION in the defaults list"},
		{"an unknown override", "", "grpo.lrr=1", "grpo.lrr=1: unknown key grpo.lrr (did you mean grpo.lr?)"},
		{"plus does not help", "", "+grpo.lrr=1", "+grpo.lrr=1: unknown key grpo.lrr (did you mean grpo.lr?)"},
		{"a key that moved", "", "kl.beta=1", "kl.beta=1: unknown key kl.beta (did you mean grpo.kl.beta?)"},
		{"nor one that may be null", "", "~file", "~file: file is always there and cannot be deleted: set file=null"},
		{"a key cannot be deleted", "", "~grpo.lr", "~grpo.lr: grpo.lr is always there and cannot be deleted: set it to another value"},
		{"a range in an override", "", "grpo.lr=1.5", "grpo.lr=1.5: want a number in (0, 1), got 1.5"},
		{"a range in a file", "grpo:\n  lr: 0", "", "configs/conf/config.yaml:2:7: grpo.lr: want a number in (0, 1), got 0"},
		{"nan is in no range", "", "grpo.lr=nan", "grpo.lr=nan: want a number in (0, 1), got NaN"},
		{"a float does not fit an int", "", "grpo.epochs=1.5", "grpo.epochs=1.5: want an integer in [0, inf), got 1.5"},
		{"text does not fit a number", "seed: x", "", "configs/conf/config.yaml:1:7: seed: want an integer, got the text \"x\""},
		{"an enum names the nearest", "", "grpo.kl.estimator=k4",
			"grpo.kl.estimator=k4: want one of exact, k1, k2, k3, got k4 (did you mean k1?)"},
		{"a file without a name", "", "file=", "file=: want text or null, got an empty text"},
		{"no file", "", "file=null", ""},
		{"null where it may not be", "", "seed=null", "seed=null: want an integer, got null"},
		{"a scalar for a section", "", "grpo=1", "grpo=1: want a section, got 1: set one of its keys, as in grpo.epochs=VALUE; it has epochs, " +
			"lr, top_k, kl, betas, weights"},
		{"list items are checked", "", "grpo.betas=[0.9,1]", "grpo.betas=[0.9,1]: grpo.betas.1: want a number in [0, 1), got 1"},
		{"Validate's finding has a position", "grpo:\n  kl: {target_min: 0.5}", "",
			"configs/conf/config.yaml:2:20: grpo.kl.target_min: want at most target_max = 0.1, got 0.5"},
		{"what an interpolation gives takes the field's type", "seed: ${oc.env:UNSET_5,5}\ngrpo: {lr: '${oc.env:UNSET_5,0.5}'}", "", ""},
		{"an interpolation with a wrong value", "seed: ${task}", "",
			"configs/conf/config.yaml:1:7: seed: want an integer, got the text \"train\" (${task} gives it)"},
		{"all faults, sorted", "seed: x\ngrpo: {lrr: 1, lr: 2}", "task=nothing",
			"configs/conf/config.yaml:1:7: seed: want an integer, got the text \"x\"\n" +
				"configs/conf/config.yaml:2:13: unknown key grpo.lrr (did you mean grpo.lr?)\n" +
				"configs/conf/config.yaml:2:20: grpo.lr: want a number in (0, 1), got 2\n" +
				"task=nothing: want one of train, predict, got nothing"},
		{"all unknown overrides", "", "a=1 b=2", "a=1: unknown key a" + noneNear("a") + "\nb=2: unknown key b" + noneNear("b")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := request("--- config\n"+tc.config+"\n", strings.Fields(tc.overrides)...)
			req.Schema = appSchema(t)
			got := ""
			if _, err := Compose(req); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("\n got %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestDecode(t *testing.T) {
	req := request("--- config\ngrpo: {lr: 0.5, weights: {rouge: 2}}\nname: 007x\nextra: {a: [1, b]}\n", "grpo.top_k=3", "grpo.kl.beta=2",
		"seed=${grpo.top_k}", "schedule=[sft]")
	req.Schema = appSchema(t)
	c, err := Compose(req)
	if err != nil {
		t.Fatal(err)
	}
	var o appOptions
	if err := c.Decode(&o); err != nil {
		t.Fatal(err)
	}
	if o.GRPO.LR != 0.5 || *o.GRPO.TopK != 3 || o.GRPO.KL.Beta != 2 || o.Seed != 3 || o.GRPO.Weights["rouge"] != 2 ||
		o.GRPO.Weights["vqa"] != 1 ||
		len(o.Schedule) != 1 || o.GRPO.KL.Estimator != "exact" || o.Name != "007x" {
		t.Errorf("decoded %+v", o)
	}
}

// Faults of the command line, of the files and of the hydra node come in one report.
func TestFaultsTogether(t *testing.T) {
	req := request("--- config\ngrpo: {lr: 3}\n", "grpo.lrr=1", "hydra.job.num=x", "grpo.kl.estimator=k9", "grpo.kl.target_min=5")
	req.Schema = appSchema(t)
	_, err := Compose(req)
	want := `configs/conf/config.yaml:1:12: grpo.lr: want a number in (0, 1), got 3
grpo.lrr=1: unknown key grpo.lrr (did you mean grpo.lr?)
hydra.job.num=x: want an integer, got the text "x"
grpo.kl.estimator=k9: want one of exact, k1, k2, k3, got k9 (did you mean k1?)`
	if err == nil || err.Error() != want {
		t.Errorf("\n got %v\nwant %s", err, want)
	}
}

func TestDecodeNamesWhatMustBeGiven(t *testing.T) {
	req := request("--- config\nname: ???\n")
	req.Schema = appSchema(t)
	c, err := Compose(req)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Decode(&appOptions{})
	if want := "configs/conf/config.yaml:1:7: name must be given: set it with name=VALUE"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestFingerprint(t *testing.T) {
	print := func(overrides ...string) string {
		req := request("--- config\nname: x\n", overrides...)
		req.Schema = appSchema(t)
		c, err := Compose(req)
		if err != nil {
			t.Fatal(err)
		}
		f, err := c.Fingerprint("name")
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	base := print()
	if print("name=y", "hydra.job.name=z") != base {
		t.Error("an excluded key changes the fingerprint")
	}
	if print("grpo.kl.beta=0") != base {
		t.Error("0 and 0.0 differ")
	}
	if print("seed=1") == base {
		t.Error("seed does not change the fingerprint")
	}
}

// grownOptions are appOptions of a later program.
type grownOptions struct {
	appOptions `koanf:",squash"`
	Added      int `koanf:"added"`
	Section    struct {
		Key string `koanf:"key"`
	} `koanf:"section"`
}

func TestFingerprintLeavesDefaultsOut(t *testing.T) {
	grown, err := SchemaOf(&grownOptions{appOptions: *defaultApp(), Added: 3}, nil)
	if err != nil {
		t.Fatal(err)
	}
	compose := func(s *Schema, overrides ...string) *Composed {
		req := request("--- config\nname: x\n", overrides...)
		req.Schema = s
		c, err := Compose(req)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	print := func(s *Schema, overrides ...string) string {
		f, err := compose(s, overrides...).Fingerprint()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	app := appSchema(t)
	for _, overrides := range [][]string{nil, {"seed=1"}, {"grpo.lr=0.5", "grpo.kl.beta=1"}, {"grpo.weights={vqa:2}"}} {
		if print(app, overrides...) != print(grown, overrides...) {
			t.Errorf("%v: a new key at its default changes the fingerprint", overrides)
		}
	}
	if print(app) != print(app, "grpo.lr=0.001", "task=train", "schedule=[rce,grpo]") {
		t.Error("a default that is written out changes the fingerprint")
	}
	seen := map[string]string{}
	for _, override := range []string{
		"seed=0", "seed=1", "grpo.lr=0.5", "grpo.weights={vqa:2}", "+grpo.weights.rouge=1",
		"schedule=[grpo,rce]", "schedule=[]", "grpo.top_k=1", "extra={}", "extra=0", "added=4", "section.key=x",
	} {
		f := print(grown, override)
		if other := seen[f]; other != "" {
			t.Errorf("%s and %s have one fingerprint", override, other)
		}
		seen[f] = override
	}
}

func TestMarkdown(t *testing.T) {
	got := appSchema(t).Markdown()
	for _, want := range []string{
		"`task` | `train\\|predict` | what to do\n",
		"## `grpo.kl`\n", "`grpo.kl.beta` | `0.0` ≥ 0 | starting coefficient\n",
		"`grpo.top_k` | `null`, integer | beams kept; null = all\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("markdown lacks %q:\n%s", want, got)
		}
	}
}

func TestSchemaOfRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		v    any
		want string
	}{
		{"a struct", appOptions{}, "want a pointer to a struct"},
		{"a bad range", &struct {
			A int `koanf:"a" range:"0-1"`
		}{}, `a: range "0-1"`},
		{"a channel", &struct {
			A chan int `koanf:"a"`
		}{}, "a: cannot hold a chan int"},
		{"choices of a key that is none", &strayChoices{}, "choices for the key a, which the struct does not have"},
		{"a key twice", &struct {
			A int `koanf:"a"`
			B int `koanf:"a"`
		}{}, "a is declared twice"},
	} {
		if _, err := SchemaOf(tc.v, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", tc.name, err, tc.want)
		}
	}
}

type strayChoices struct {
	B string `koanf:"b"`
}

func (strayChoices) Choices() map[string][]string { return map[string][]string{"a": {"x"}} }

// BenchmarkTypedSweep composes and checks 10,000 jobs.
func BenchmarkTypedSweep(b *testing.B) {
	schema := appSchema(b)
	for b.Loop() {
		req := request("--- config\nname: x\n", "seed=range(5000)", "task=train,predict", "grpo.lr=0.1")
		req.Schema = schema
		jobs, err := ExpandSweep(req)
		if err != nil || len(jobs) != 10000 {
			b.Fatal(len(jobs), err)
		}
	}
}
