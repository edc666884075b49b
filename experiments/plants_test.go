package experiments_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"fulcrum/reports"
)

// A plant is a fault that trains on without an error and that nobody would notice: it is put into the code, the
// data or the configuration of a small run, and the run's own checks must name it within plantSteps optimizer
// steps, as a warning or a stop. A fault that the program refuses with an error that names it is caught too.
type plant struct {
	name  string
	edits []edit // of the code
	base  base   // the run that it is put into; nil: offline
	args  []string
	wild  bool   // the arguments alone are no healthy run
	check string // the expected finding, or several with "|" between them; "error: TEXT" for a refusal
}

// base are the arguments of a small run.
type base func(t *testing.T, more ...string) []string

// edit replaces whole statements of a source file, while the plant of its name is switched on.
type edit struct{ file, old, new string }

const plantSteps = 20

// codePlants are mutations of the program.
func codePlants() []plant {
	return []plant{
		{name: "log-probabilities are detached", check: "gradient_missing|zero_gradient",
			edits: []edit{{"phases/grpo.go", "logp := g.perRatio(out.LogP)", "logp := torchx.Detach(g.perRatio(out.LogP))"}}},
		{name: "dropout in the ratio", check: "grad_nograd_differ|forward_not_deterministic|ratio_not_one", args: []string{"selector.dropout=0.1"},
			edits: []edit{{"phases/grpo.go", "out := g.env.Policy.Forward(batch, forward)", "forward.Train, forward.DropoutSeed = true, uint64(from); out := g.env.Policy.Forward(batch, forward)"}}},
		{name: "stale old policy", check: "ratio_not_one", args: []string{"grpo.old_policy=epoch_start"},
			edits: []edit{{"phases/grpo.go", "if g.opt.OldPolicy == \"epoch_start\" {\n\t\tg.refreshOld()\n\t}", ";"}}},
		{name: "swapped ratio", check: "objective_not_improved|objective_falls",
			edits: []edit{{"phases/surrogate.go", "d := torchx.Sub(logp, old) // 0 where masked", "d := torchx.Sub(old, logp)"}}},
		{name: "flipped advantage sign", check: "objective_not_improved|objective_falls",
			edits: []edit{{"phases/surrogate.go", "return onDevice(like, g.hand.adv[from*b.G:][:len(b.Valid)], shape...)", "return torchx.Neg(onDevice(like, g.hand.adv[from*b.G:][:len(b.Valid)], shape...))"}}},
		{name: "reference policy moves along", check: "frozen_move|kl_stuck_at_zero", args: []string{"grpo.old_policy=epoch_start"},
			edits: []edit{{"phases/frozen.go", `g.reference = &frozenPolicy{Policy: g.env.Policy.Clone(), constant: ref == "phase_start" && !follows, owned: true}`, "g.reference = &frozenPolicy{Policy: g.env.Policy}"}}},
		{name: "penalty left out of the loss", check: "loss_parts_differ", args: []string{"grpo.lr=1e-4"},
			edits: []edit{{"phases/grpo.go", "loss = torchx.Add(ppo, torchx.Scale(kl, w))", "loss = ppo"}}},
		{name: "β answers the KL the wrong way", check: "beta_wrong_way", args: []string{"grpo.kl.update=step"},
			edits: []edit{{"rewardutil/kl.go", "case kl > targetMax:\n\t\tbeta *= factor\n\tcase kl < targetMin:\n\t\tbeta /= factor", "case kl > targetMax:\n\t\tbeta /= factor\n\tcase kl < targetMin:\n\t\tbeta *= factor"}}},
		{name: "no optimizer step", check: "parameters_do_not_move",
			edits: []edit{{"phases/optim.go", "l.optim.Step(lr, l.scale)", ";"}}},
		{name: "gradients are not zeroed", check: "gradients_accumulate",
			edits: []edit{{"phases/optim.go", "l.params.ZeroGrad()", ";"}, {"phases/rce.go", "r.learn.optim.KeepGrad = r.opt.KeepGradient", "r.learn.optim.KeepGrad = true"}}},
		{name: "padding counts in the loss", check: "padding_changes_loss", args: []string{"grpo.curriculum.early_epochs=0"},
			edits: []edit{{"phases/surrogate.go", "return onDevice(logp, indicator(b.Valid), b.B(), b.G), candidates", "all := indicator(b.Valid); for i := range all { all[i] = 1 }; return onDevice(logp, all, b.B(), b.G), float64(len(all))"}}},
		{name: "advantages are not clipped", check: "advantage_beyond_clip", args: []string{"grpo.advantage.clip=1"},
			edits: []edit{{"rewardutil/advantages.go", "a = math.Copysign(opt.Clip, a)", ";"}}},
		{name: "curriculum is ignored", check: "top_k_off_curriculum",
			edits: []edit{{"rewardutil/curriculum.go", "return min(o.EarlyTopK, G)", "return G"}}},
		{name: "learning rate ignores its schedule", check: "lr_off_schedule",
			edits: []edit{{"phases/optim.go", "lr := l.lr * l.sched.At(step, l.total)", "lr := l.lr"}}},
		{name: "RCE imitates the worst", check: "objective_not_improved",
			edits: []edit{{"rewardutil/weights.go", "p := softmax(r, t)", "for i := range r { r[i] = -r[i] }; p := softmax(r, t)"}}},
		{name: "τ is not annealed", check: "tau_off_schedule",
			edits: []edit{{"phases/rce.go", "tau := r.opt.Temperature.At(step, r.total)", "tau := r.opt.Temperature.At(0, r.total)"}}},
		{name: "every step sees the same queries", check: "batch_repeats",
			edits: []edit{{"phases/scheduler.go", "order := s.order(phase, epoch) // depends only on seed, phase and epoch", "order := s.order(phase, epoch); for i := range order { order[i] = order[i%phase.BatchSize()] }"}}},
		{name: "validation looks at the initial policy", check: "validation_unchanged",
			edits: []edit{{"phases/scheduler.go", "v, err := Validate(env.Policy, phase.Reference(), env.Data.Val, env.Data)", "v, err := Validate(env.Initial, phase.Reference(), env.Data.Val, env.Data)"}}},
		{name: "KL of the wrong sign", check: "kl_negative", args: []string{"grpo.kl.estimator=k3"},
			edits: []edit{{"phases/surrogate.go", "return torchx.AddScalar(torchx.Add(torchx.Exp(torchx.Neg(r)), r), -1)", "return torchx.AddScalar(torchx.Neg(torchx.Add(torchx.Exp(torchx.Neg(r)), r)), 1)"}}},
		{name: "frozen parameters move", check: "frozen_move", args: []string{"grpo.freeze=[query]"},
			edits: []edit{{"phases/optim.go", "l.still = still\n\tl.optim.ScaleLR(l.lrScale)", ";"}}},
		{name: "recorded picks point one further", check: "record_reader_mismatch",
			edits: []edit{{"beamdata/shapes_glue.go", "f.picks = append(f.picks, q.Pool[p])", "f.picks = append(f.picks, q.Pool[(int(p)+1)%len(q.Pool)])"}}},
		{name: "embedding rows are shifted", check: "pool_unlike_query",
			edits: []edit{{"beamdata/shapes_glue.go", "l.table = NewTable(len(data.Items), data.Dim, data.Embeddings)", "l.table = NewTable(len(data.Items), data.Dim, append(slices.Clone(data.Embeddings[37*data.Dim:]), data.Embeddings[:37*data.Dim]...))"}}},
		{name: "a reader's NaN", check: "nonfinite_rewards|nonfinite", base: online,
			edits: []edit{{"beamdata/shapes_glue.go", "weight[k] = math.Exp(s)", "weight[k] = math.NaN()"}}},
		{name: "images shuffled in a batch", base: answering, check: "batch_changes_output|images_do_not_help",
			edits: []edit{{"selector/tokens/tokens.go", "out[i] = p", "out[(i+1)%len(out)] = p"}}},
		{name: "images do not reach the model", base: adapting, check: "images_ignored",
			edits: []edit{{"selector/vl/groups.go", "in.media = torchx.Cat(0, m.look(in.pictures, p)...)", "in.media = torchx.Scale(torchx.Cat(0, m.look(in.pictures, p)...), 0)"}}},
		{name: "LoRA is frozen", base: adapting, check: "gradient_missing",
			edits: []edit{{"selector/lora/layer.go", "l.a, l.b, l.scale = params.Get(KeyA(m.Name)), params.Get(KeyB(m.Name)), m.Scale",
				"l.a, l.b, l.scale = torchx.Own(torchx.Detach(params.Get(KeyA(m.Name)))), torchx.Own(torchx.Detach(params.Get(KeyB(m.Name)))), m.Scale"}}},
		{name: "LoRA does not act", base: adapting, check: "gradient_missing|lora_ignored|weights_ignored",
			edits: []edit{{"selector/lora/layer.go", "return torchx.LoRALinear(x, weight, bias, l.a, l.b, l.scale)", "return torchx.Linear(x, weight, bias)"}}},
	}
}

// offline is a run of 18 steps on 96 built-in queries: RCE, then GRPO on recorded groups.
func offline(_ *testing.T, more ...string) []string {
	return append([]string{"exp=okvqa_v3", "threads=1", "seed=3", "data.batch_size=16", "selector.hidden_dim=32", "report.plots=false", "logging.tensorboard=false",
		"data.shapes.train_queries=96", "data.shapes.reader_questions=30", "data.shapes.val_queries=24", "data.shapes.dev_queries=0",
		"rce.epochs=1", "grpo.epochs=2"}, more...)
}

// online is a run of 18 steps on groups that the policy samples.
func online(t *testing.T, more ...string) []string {
	return offline(t, append([]string{"exp=okvqa_online", "schedule=[grpo_online]", "grpo_online.epochs=3"}, more...)...)
}

// answering is a run of 6 steps of a tiny vision-language model on its own answers. From random weights every
// answer is cut at the length limit.
func answering(_ *testing.T, more ...string) []string {
	return append([]string{"exp=shapes_vl", "schedule=[rce,grpo]", "threads=1", "seed=3", "data.batch_size=16", "report.plots=false", "logging.tensorboard=false",
		"rewards.vqa.weight=0", "rewards.length.weight=1", "rce.epoch_queries=32", "grpo.epochs=1", "grpo.epoch_queries=64",
		"vl.scratch.hidden_size=32", "vl.scratch.intermediate_size=48", "vl.scratch.num_hidden_layers=1",
		"vl.scratch.vision={depth: 1, hidden_size: 32, intermediate_size: 48, num_heads: 2, fullatt_block_indexes: [0]}",
		"data.shapes.train_queries=96", "data.shapes.val_queries=8", "data.shapes.dev_queries=0", "data.conversations.demos=null",
		"doctor.all_truncated.severity=off"}, more...)
}

// adapting is a run of answering that trains adapters of a pretrained model.
func adapting(t *testing.T, more ...string) []string {
	pretraining.Do(func() {
		dir := filepath.Join(shared, "pretraining")
		pretrained = filepath.Join(shared, "pretrained")
		mustRun(t, answering(t, "grpo.epochs=0", "rce.epoch_queries=16", "hydra.run.dir="+dir)...)
		mustRun(t, "checkpoint", "export", dir, "--format", "hf", "--out", pretrained)
	})
	return answering(t, append([]string{"vl.path=" + pretrained}, more...)...)
}

var (
	pretraining sync.Once
	pretrained  string
)

// plantedProgram builds the program once with all code plants in it, each behind a switch of its own: FULCRUM_PLANT names the
// one that acts. The edits are made in the real sources; text that is not there exactly once fails the test.
func plantedProgram(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	sources, switches := map[string]string{}, map[string]bool{}
	for _, p := range codePlants() {
		for _, e := range p.edits {
			if _, ok := sources[e.file]; !ok {
				sources[e.file] = read(t, filepath.Join(root, e.file))
				switches[filepath.Dir(e.file)] = true
			}
			if n := strings.Count(sources[e.file], e.old); n != 1 {
				t.Fatalf("plant %q: %s has %d times, want once:\n%s", p.name, e.file, n, e.old)
			}
			sources[e.file] = strings.Replace(sources[e.file], e.old, switched(p.name, e), 1)
		}
	}
	overlay := map[string]string{}
	put := func(path, text string) {
		file := filepath.Join(dir, fmt.Sprintf("%d.go", len(overlay)))
		write(t, file, text)
		overlay[filepath.Join(root, path)] = file
	}
	for path, text := range sources {
		put(path, text)
	}
	for pkg := range switches {
		put(filepath.Join(pkg, "planted.go"), "package "+filepath.Base(pkg)+"\n\nimport \"os\"\n\nfunc planted(name string) bool { return os.Getenv(\"FULCRUM_PLANT\") == name }\n")
	}
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "overlay.json"), string(text))
	out := filepath.Join(dir, "run")
	build := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", out, "./cmd/run")
	build.Dir = root
	var said bytes.Buffer
	build.Stdout, build.Stderr = &said, &said
	if err := build.Run(); err != nil {
		t.Fatalf("cannot build the planted program: %v\n%s", err, said.String())
	}
	return out
}

// switched is an edit's statements behind their switch. A declaration is made as it was, and then anew.
func switched(name string, e edit) string {
	test := "planted(" + strconv.Quote(name) + ")"
	old, _, _ := strings.Cut(e.old, " // ")
	if left, _, declares := strings.Cut(old, " := "); declares && !strings.HasPrefix(old, "if ") {
		return old + "; if " + test + " {\n" + strings.Replace(e.new, left+" := ", left+" = ", 1) + "\n};"
	}
	if strings.HasPrefix(old, "case ") { // of a switch without a value
		return guarded(test, e.new) + "\n\t" + old
	}
	return "if " + test + " {\n" + e.new + "\n} else {\n" + old + "\n};"
}

// guarded adds a condition to every case.
func guarded(test, cases string) string {
	lines := strings.Split(cases, "\n")
	for i, line := range lines {
		if condition, ok := strings.CutPrefix(strings.TrimSpace(line), "case "); ok {
			lines[i] = "case " + test + " && " + strings.TrimSuffix(condition, ":") + ":"
		}
	}
	return strings.Join(lines, "\n")
}

// outcome of a run with a plant in it: the findings of severity warning or stop within plantSteps steps.
type caught struct {
	events []reports.Row
	result result
}

func (c caught) names() []string {
	var names []string
	for _, e := range c.events {
		names = append(names, e.Text("event"))
	}
	return names
}

func runPlant(t *testing.T, binary string, p plant, env ...string) caught {
	t.Helper()
	base, dir := p.base, folder(t)
	if base == nil {
		base = offline
	}
	args := base(t, p.args...)
	process := startProgram(t, binary, "", env, append(args, "hydra.run.dir="+dir)...)
	process.limit = 20 * time.Minute // of a machine that has other things to do
	c := caught{result: process.wait()}
	recorded, err := reports.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range recorded.Events {
		if severity := e.Text("severity"); (severity == "warning" || severity == "stop") && (p.check == "" || e.GlobalStep <= plantSteps) {
			c.events = append(c.events, e)
		}
	}
	return c
}

// check fails the test unless the plant was caught by the check that it should be caught by.
func (c caught) check(t *testing.T, p plant) {
	t.Helper()
	if text, ok := strings.CutPrefix(p.check, "error: "); ok {
		if c.result.code == 0 || !strings.Contains(c.result.stderr, text) {
			t.Errorf("exit code %d, want an error with %q:\n%s", c.result.code, text, c.result.stderr)
		}
		return
	}
	for _, e := range c.events {
		if slices.Contains(strings.Split(p.check, "|"), e.Text("event")) {
			t.Logf("%s, step %d: %s", e.Text("event"), e.GlobalStep, e.Text("message"))
			return
		}
	}
	t.Errorf("not caught by %s; findings %v, exit code %d\n%s", p.check, c.names(), c.result.code, c.result.stderr)
}

func TestPlantsInCode(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no Go to build the planted program with")
	}
	binary := plantedProgram(t)
	for _, p := range codePlants() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			runPlant(t, binary, p, "FULCRUM_PLANT="+p.name).check(t, p)
			if p.args == nil || p.wild || testing.Short() {
				return
			}
			// The same run without the plant is healthy: it is the plant that was caught.
			if c := runPlant(t, binary, p, "FULCRUM_PLANT="); len(c.events) > 0 || c.result.code != 0 {
				t.Errorf("without the plant: findings %v, exit code %d\n%s", c.names(), c.result.code, c.result.stderr)
			}
		})
	}
	for name, base := range map[string]base{"offline": offline, "online": online, "answering": answering, "adapting": adapting} {
		t.Run("healthy "+name, func(t *testing.T) {
			t.Parallel()
			if c := runPlant(t, binary, plant{base: base}, "FULCRUM_PLANT="); len(c.events) > 0 || c.result.code != 0 {
				t.Errorf("findings %v, exit code %d\n%s", c.names(), c.result.code, c.result.stderr)
			}
		})
	}
	if os.Getenv("FULCRUM_PLANT") != "" {
		t.Error("FULCRUM_PLANT is set in the environment of the tests")
	}
}
