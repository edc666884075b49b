package experiments_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"fulcrum/reports/record"
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
	says  string // what its message holds besides
	short bool   // tried in the short tests too
}

// base are the arguments of a small run.
type base func(t *testing.T, more ...string) []string

// edit replaces whole statements of the program, wherever they stand, while the plant of its name is switched on. Their
// text must stand in the sources exactly once; how it is indented and aligned does not matter. Code that moves keeps its plants, and code
// that changes fails the test by name.
type edit struct{ old, new string }

const plantSteps = 20

// stepsOf is where an epoch's queries are put in order.
const stepsOf = "steps := epochSteps{phase.Info(), s.order(phase, epoch), epoch, s.pos.Step - s.pos.EpochSteps, StepsPerEpoch(phase)}"

// codePlants are mutations of the program.
func codePlants() []plant {
	return []plant{
		{name: "log-probabilities are detached", short: true, check: "gradient_missing|zero_gradient",
			edits: []edit{{"logp := g.perRatio(out.LogP)", "logp := torchx.Detach(g.perRatio(out.LogP))"}}},
		{name: "dropout in the ratio", short: true, check: "grad_nograd_differ|forward_not_deterministic|ratio_not_one",
			args: []string{"selector.dropout=0.1"},
			edits: []edit{{"out := in.policy(forward)", "forward.Train, forward.DropoutSeed = true, 1; out := " +
				"in.policy(forward)"}}},
		{name: "stale old policy", check: "ratio_not_one", args: []string{"grpo.old_policy=epoch_start"},
			edits: []edit{{"if g.chosen.old.AtEpoch {\n\t\tg.refreshOld()\n\t}", ";"}}},
		{name: "swapped ratio", check: "objective_not_improved|objective_falls",
			edits: []edit{{"d := torchx.Sub(logp, old) // 0 where masked", "d := torchx.Sub(old, logp)"}}},
		{name: "flipped advantage sign", short: true, check: "objective_not_improved|objective_falls",
			edits: []edit{{advantages, advantages + "; for i := range adv { adv[i] = -adv[i] }"}}},
		{name: "reference policy moves along", check: "frozen_move|kl_stuck_at_zero", args: []string{"grpo.old_policy=epoch_start"},
			edits: []edit{{`g.reference = &frozenPolicy{Policy: g.env.Policy.Clone(), constant: ref == "phase_start" && !follows, owned: true}`,
				"g.reference = &frozenPolicy{Policy: g.env.Policy}"}}},
		{name: "penalty left out of the loss", check: "loss_parts_differ", args: []string{"grpo.lr=1e-4"},
			edits: []edit{{"loss = torchx.Add(ppo, in.beta.Times(m.kl))", "loss = ppo"}}},
		{name: "β answers the KL the wrong way", check: "beta_wrong_way", args: []string{"grpo.kl.update=step"},
			edits: []edit{{"case kl > targetMax:\n\t\tbeta *= factor\n\tcase kl < targetMin:\n\t\tbeta /= factor",
				"case kl > targetMax:\n\t\tbeta /= factor\n\tcase kl < targetMin:\n\t\tbeta *= factor"}}},
		{name: "no optimizer step", short: true, check: "parameters_do_not_move",
			edits: []edit{{optimizerStep, ";"}}},
		{name: "gradients are not zeroed", check: "gradients_accumulate",
			edits: []edit{{"l.Params.ZeroGrad()", "l.Optimizer.KeepGrad = true"}}},
		{name: "padding counts in the loss", check: "padding_changes_loss", args: []string{"grpo.curriculum.early_epochs=0"},
			edits: []edit{{"weights := g.weights(b)", "weights := g.weights(b); for i := range weights { weights[i] = 1 }"},
				{"divisor := g.chosen.loss.Divisor(part.counts) // of the whole batch", "divisor := float64(len(weights))"}}},
		{name: "advantages are not clipped", check: "advantage_beyond_clip|advantages_differ", args: []string{"grpo.advantage.clip=1"},
			edits: []edit{{"a = math.Copysign(opt.Clip, a)", ";"}}},
		{name: "curriculum is ignored", check: "top_k_off_curriculum",
			edits: []edit{{"return min(o.EarlyTopK, G)", "return G"}}},
		{name: "learning rate ignores its schedule", check: "lr_off_schedule",
			edits: []edit{{"return l.lr * l.sched.At(step, l.total)", "return l.lr"}}},
		{name: "RCE imitates the worst", short: true, check: "objective_not_improved",
			edits: []edit{{"p := softmax(r, t)", "for i := range r { r[i] = -r[i] }; p := softmax(r, t)"}}},
		{name: "τ is not annealed", check: "tau_off_schedule",
			edits: []edit{{"batch, tau := drawn, r.opt.Temperature.At(at.Step, r.total)", "batch, tau := drawn, r.opt.Temperature.At(0, r.total)"}}},
		{name: "every step sees the same queries", check: "batch_repeats",
			edits: []edit{{stepsOf, stepsOf + "; for i := range steps.order { steps.order[i] = steps.order[i%steps.info.BatchSize] }"}}},
		{name: "validation looks at the initial policy", check: "validation_unchanged",
			edits: []edit{{"v, err = Validate(s.env.Ranks, p, ref.policy, src, s.env.Data)",
				"v, err = Validate(s.env.Ranks, s.env.Initial, ref.policy, src, s.env.Data)"}}},
		{name: "KL of the wrong sign", check: "kl_negative|kl_differs", args: []string{"grpo.kl.estimator=k3"},
			edits: []edit{{"return torchx.AddScalar(torchx.Add(torchx.Exp(torchx.Neg(r)), r), -1)",
				"return torchx.AddScalar(torchx.Neg(torchx.Add(torchx.Exp(torchx.Neg(r)), r)), 1)"}}},
		{name: "frozen parameters move", check: "frozen_move", args: []string{"grpo.freeze=[query]"},
			edits: []edit{{"l.Optimizer.ScaleLR(func(name string) float64 { return l.lrScale(name, frozen[name]) })", ";"},
				{"torchx.Copy(part.Grad, torchx.FullLike(part.Grad, 0, part.Grad.DType(), 1))", ";"}}},
		{name: "recorded picks point one further", check: "record_reader_mismatch",
			edits: []edit{{"out.Candidates, out.Rewards = append(out.Candidates, rec.Positions), append(out.Rewards, reward)",
				"moved := slices.Clone(rec.Positions)\nfor i, p := range moved {\nmoved[i] = (p + 1) % int32(len(q.Pool))\n}\n" +
					"out.Candidates, out.Rewards = append(out.Candidates, moved), append(out.Rewards, reward)"}}},
		{name: "embedding rows are shifted", check: "pool_unlike_query|embeddings_unrelated",
			edits: []edit{{embed, "l.table = NewTable(len(data.Items), data.Dim, append(slices.Clone(data.Embeddings[37*data.Dim:]), " +
				"data.Embeddings[:37*data.Dim]...))"}}},
		{name: "a reader's NaN", check: "nonfinite_rewards|nonfinite", base: online,
			edits: []edit{{"r.weight = append(r.weight, list.Map(q.Score, math.Exp))",
				"r.weight = append(r.weight, list.Map(q.Score, func(float64) float64 { return math.NaN() }))"}}},
		{name: "images shuffled in a batch", base: answering, check: "batch_changes_output|images_do_not_help",
			edits: []edit{{"if err != nil {\nFail(op, \"%s: query %d: %v\", src.Name(), src.ID(q), err)\n}\nout[i] = p",
				"out[(i+1)%len(out)] = p"}}},
		{name: "images do not reach the model", base: adapting, check: "images_ignored",
			edits: []edit{{"in.media = torchx.Cat(0, m.look(in.pictures, p)...)", "in.media = torchx.Scale(torchx.Cat(0, m.look(in.pictures, " +
				"p)...), 0)"}}},
		{name: "LoRA is frozen", base: adapting, check: "gradient_missing",
			edits: []edit{{"l.a, l.b, l.scale = params.Get(KeyA(m.Name)), params.Get(KeyB(m.Name)), m.Scale",
				"l.a, l.b, l.scale = torchx.Own(torchx.Detach(params.Get(KeyA(m.Name)))), " +
					"torchx.Own(torchx.Detach(params.Get(KeyB(m.Name)))), m.Scale"}}},
		{name: "LoRA does not act", base: adapting, check: "gradient_missing|weights_ignored",
			edits: []edit{{"return torchx.LoRALinear(x, weight, bias, l.a, l.b, l.scale)", "return torchx.Linear(x, weight, bias)"}}},

		// rewards and labels on their way
		{name: "rewards of the next query", base: online, check: "scores_differ", says: "those of the next query", short: true,
			edits: []edit{{score, "err := scorer.Score(b); b.Rewards = append(slices.Clone(b.Rewards[g:]), b.Rewards[:g]...); return b, err"}}},
		{name: "rewards of the next query for a tenth", base: online, check: "scores_differ", says: "those of the next query",
			edits: []edit{{score, "err := scorer.Score(b); was := slices.Clone(b.Rewards); for i, q := range b.Queries { if q%10 == 3 { " +
				"copy(b.Rewards[i*g:(i+1)*g], was[(i+1)%b.B()*g:]) } }; return b, err"}}},
		{name: "rewards are capped", base: online, check: "scores_differ", says: "cut at 0.3",
			edits: []edit{{score, "err := scorer.Score(b); " +
				"for i := range b.Rewards { b.Rewards[i] = math.Min(b.Rewards[i], 0.3) }; return b, err"}}},
		{name: "new selections are scored one position on", check: "scores_differ|validation_differs",
			edits: []edit{{"f(at, s.rewarding(q), list.Convert[int32](b.Chosen(i, g)))", "positions := list.Convert[int32](b.Chosen(i, g)); " +
				"for k := range positions { positions[k] = (positions[k]+1)%int32(s.set.PoolSize(q)) }; " +
				"f(at, s.rewarding(q), positions)"}}},
		{name: "the reader scores the next pool position", check: "record_reader_mismatch", says: "off by one",
			edits: []edit{{"weight, acc := r.weight[i], r.acc[i]", "weight, acc := append(slices.Clone(r.weight[i][1:]), r.weight[i][0]), " +
				"append(slices.Clone(r.acc[i][1:]), r.acc[i][0])"}}},
		{name: "the reader's labels are permuted", check: "record_reader_mismatch",
			edits: []edit{{"r.acc = append(r.acc, q.DemoAcc)", "acc := slices.Clone(q.DemoAcc); slices.Reverse(acc); r.acc = append(r.acc, acc)"}}},
		{name: "the reader's answers are permuted", check: "record_reader_mismatch", says: "accuracy",
			edits: []edit{{"add(a.answer, r.weight[i][p]*float64(a.count)/10)",
				"add(a.answer, r.weight[i][(int(p)+7)%len(r.weight[i])]*float64(a.count)/10)"}}},
		{name: "recorded positions are off by one for a tenth", check: "recorded_differ", says: "candidate 1 is",
			edits: []edit{{recordedSet, "if q%10 == 3 { for k := range steps { steps[k] = (steps[k]+1)%int64(s.set.PoolSize(q)) } }; b.Set(i, " +
				"j, steps, reward)"}}},
		{name: "recorded rewards of the next candidate", check: "recorded_differ", says: "those of the next candidate", short: true,
			edits: []edit{{recordedSet, "_ = reward; b.Set(i, j, steps, s.set.Candidate(q, (j+1)%s.set.NumCandidates(q)).Reward)"}}},
		{name: "recorded rewards of the next query in the batch", check: "recorded_differ", says: "those of the next query",
			edits: []edit{{recordedSet, "other := queries[(i+1)%len(queries)]; b.Set(i, j, steps, s.set.Candidate(other, min(j, " +
				"s.set.NumCandidates(other)-1)).Reward); _ = reward"}}},
		{name: "the last recorded candidate is left out", check: "recorded_differ", says: "candidates, want",
			edits: []edit{{recordedSet, "if j == 0 || j+1 < s.set.NumCandidates(q) { b.Set(i, j, steps, reward) }"}}},
		{name: "texts are scored with the next sample's target", base: answering, args: []string{"rewards.vqa.weight=1"}, check: "scores_differ",
			edits: []edit{{"it := s.item(sample, b.Scored(i, g))", "if next, err := s.set.Sample((q+1)%s.Len()); err == nil " +
				"{ sample.Reference, sample.Answers = next.Reference, next.Answers }; it := s.item(sample, b.Scored(i, g))"}}},
		{name: "weights of reward terms are ignored", base: answering, args: []string{"rewards.length.weight=0.5"}, check: "scores_differ",
			edits: []edit{{"total[i] += t.Weight * v", "total[i] += v"}}},
		{name: "all questions are asked about one picture", base: answering, check: "shared_pictures",
			edits: []edit{{"return s.render()", "s = newScene(q.Options.Seed, q.Items[0].Scene); return s.render()"}}},
		{name: "half of the embeddings are one", check: "identical_candidates|blank_rows",
			edits: []edit{{embed, "e := slices.Clone(data.Embeddings); for i := 0; i < len(data.Items); i += 2 { " +
				"copy(e[i*data.Dim:(i+1)*data.Dim], e[:data.Dim]) }; l.table = NewTable(len(data.Items), data.Dim, e)"}}},

		// from rewards to the gradient
		{name: "RCE weights of the next query", check: "credit_misplaced", says: "the next query", short: true,
			edits: []edit{{rceWeights, "weights, stats := r.weights(batch, tau); weights = append(append([]float64{}, weights[batch.G:]...), " +
				"weights[:batch.G]...)"}}},
		{name: "RCE multiplies by τ", check: "credit_misplaced",
			edits: []edit{{rceWeights, "weights, stats := r.weights(batch, 1/tau)"}}},
		{name: "advantages of the next candidate", check: "credit_misplaced", says: "the next candidate",
			args: []string{"grpo.curriculum.early_epochs=0"},
			edits: []edit{{"counts.Tokens = objective.CountSteps(batch)",
				"adv = append(append([]float64{}, adv[1:]...), adv[0]); counts.Tokens = objective.CountSteps(batch)"}}},
		{name: "negative advantages are dropped from the loss", check: "credit_misplaced", says: "without the negative ones",
			args:  []string{"grpo.curriculum.early_epochs=0"},
			edits: []edit{{advantages, advantages + "; for i := range adv { adv[i] = max(adv[i], 0) }"}}},
		{name: "negative advantages are dropped", check: "advantage_signs|advantages_differ", args: []string{"grpo.curriculum.early_epochs=0"},
			edits: []edit{{"a -= opt.BaselineShift", "a = max(a-opt.BaselineShift, 0)"}}},
		{name: "the surrogate counts twice", check: "surrogate_differs|loss_differs",
			edits: []edit{{"return minusShare.Times(torchx.Sum(torchx.Mul(gain, weight)))",
				"return torchx.Scale(minusShare.Times(torchx.Sum(torchx.Mul(gain, weight))), 2)"}}},
		{name: "half of the batch has no loss", check: "credit_misplaced", says: "first half of the queries",
			edits: []edit{{"torchx.Put(&up.Upload, &in.weight, objective.Rounded(weights), g.shape(b, b.T)...)",
				"clear(weights[len(weights)/2:]); torchx.Put(&up.Upload, &in.weight, objective.Rounded(weights), g.shape(b, b.T)...)"}}},
		{name: "the entropy bonus is turned round", check: "loss_parts_differ", args: []string{"grpo.entropy_weight=0.01"},
			edits: []edit{{"loss = torchx.Sub(loss, torchx.Scale(g.entropyBonus(out, in), g.opt.EntropyWeight))",
				"loss = torchx.Add(loss, torchx.Scale(g.entropyBonus(out, in), g.opt.EntropyWeight))"}}},

		// what only a second computation by other code sees
		{name: "KL halved", check: "kl_differs", args: []string{"grpo.lr=1e-4"},
			edits: []edit{{"perStep := out.KL", "perStep := torchx.Scale(out.KL, 0.5)"}}},
		{name: "advantages normalised twice", check: "advantages_differ",
			edits: []edit{{"groups = append(groups, method.Group(r, opt))", "groups = append(groups, method.Group(method.Group(r, opt), opt))"}}},
		{name: "min_std is ignored", check: "advantages_differ",
			edits: []edit{{"return minus(r, mean, max(std, o.MinStd))", "return minus(r, mean, std)"}}},
		{name: "a loss over tokens is divided by candidates", check: "loss_differs|surrogate_differs",
			args:  []string{"grpo.ratio=token", "grpo.loss=dapo", "grpo.kl.estimator=k3"},
			edits: []edit{{"return float64(max(n.Tokens, 1))", "return float64(max(n.Candidates, 1))"}}},
		{name: "the curriculum takes the worst", check: "top_k_not_best|advantages_differ", short: true,
			edits: []edit{{"slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(r[j], r[i]) })",
				"slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(r[i], r[j]) })"}}},
		{name: "one epoch too few", check: "epochs_missing",
			edits: []edit{{"return phases.Info{Name: g.name, Epochs: g.opt.Epochs, Source: g.src, BatchSize: g.batchSize, Passes: " +
				"g.opt.NumIterations, EpochQueries: g.opt.EpochQueries, Online: g.chosen.rollout.Samples}",
				"return phases.Info{Name: g.name, Epochs: g.opt.Epochs - 1, Source: g.src, BatchSize: g.batchSize, Passes: " +
					"g.opt.NumIterations, EpochQueries: g.opt.EpochQueries, Online: g.chosen.rollout.Samples}"}}},
		{name: "weights of the next group", check: "loss_differs",
			edits: []edit{{"w[b*G+at[i]] = v", "w[(b+1)%B*G+at[i]] = v"}}},
		{name: "copies among samples", base: online, check: "samples_repeat",
			edits: []edit{{sample, sample + "; for i := range b.B() { at, half := i*g*b.T, g/2*b.T; copy(b.Actions[at+half:at+2*half], " +
				"b.Actions[at:at+half]) }"}}},

		// the optimizer
		{name: "gradients are not clipped", check: "clip_ignored", short: true,
			edits: []edit{{optimizerStep, "l.Optimizer.StepClipped(lr, 0, squares, losses, true)"}}},
		{name: "Adam forgets after every step", check: "moments_differ",
			edits: []edit{{optimizerStep, "n := l.Params.Numel(); if err := l.Optimizer.SetState(make([]float32, n), make([]float32, n), " +
				"l.Optimizer.Steps()); err != nil { return nil, err }; " + optimizerStep}}},
		{name: "Adam forgets after every epoch", check: "moments_differ",
			edits: []edit{{"g.showNext = true", "g.showNext = true; n := g.learn.Params.Numel(); if err := " +
				"g.learn.Optimizer.SetState(make([]float32, n), make([]float32, n), g.learn.Optimizer.Steps()); err != nil { panic(err) }"}}},
		{name: "Adam forgets in the middle", check: "moments_reset", // after the trial
			edits: []edit{{optimizerStep, "if n := l.Params.Numel(); l.Optimizer.Steps() == 8 { if err := l.Optimizer.SetState(make([]float32, " +
				"n), make([]float32, n), 0); err != nil { return nil, err } }; " + optimizerStep}}},
		{name: "Adam's betas are swapped", check: "moments_differ",
			edits: []edit{{"a := &AdamW{Beta1: beta1, Beta2: beta2, Eps: eps, WeightDecay: weightDecay, params: p, keep: keep, from: from}",
				"a := &AdamW{Beta1: beta2, Beta2: beta1, Eps: eps, WeightDecay: weightDecay, params: p, keep: keep, from: from}"}}},
		{name: "the moments count too many steps", check: "moments_differ", edits: []edit{{"a.steps++", "a.steps += 1000"}}},
		{name: "a learning rate a thousand times too small", check: "step_size",
			edits: []edit{{optimizerStep, "l.Optimizer.StepClipped(lr*1e-3, l.clip, squares, losses, true)"}}},

		// random numbers
		{name: "samples at temperature 0.02", base: online, check: "sampling_differs", says: "they fit a temperature of",
			edits: []edit{{sample, "b := p.Sample(src, queries, g, steps, 0.02, key)"}}},
		{name: "every step has the same noise", base: online, check: "noise_repeats", says: "the same seed",
			edits: []edit{{sample, "b := p.Sample(src, queries, g, steps, temperature, 7)"}}},
		{name: "candidates share their noise", base: answering, check: "noise_repeats", says: "all candidates of a query are the same",
			edits: []edit{{uniform, stream + `return rng.New(int64(o.Seed), "token", stream, t).Float64()`}}},
		{name: "queries share their noise", base: answering, check: "noise_repeats", says: "all queries share",
			edits: []edit{{uniform, `_ = stream; return rng.New(int64(o.Seed), "token", s.Sample, t).Float64()`}}},
		{name: "the sampler ignores its seed", base: answering, check: "noise_repeats", says: "does not use its seed",
			edits: []edit{{uniform, stream + `return rng.New(0, "token", stream, s.Sample, t).Float64()`}}},
		{name: "cut completions count as complete", base: answering, check: "truncation_unmarked",
			edits: []edit{{"b.Truncated[i*g+j], b.Kept[i*g+j] = !c.Finished, c.Kept", "b.Truncated[i*g+j], b.Kept[i*g+j] = false, c.Kept"}}},
		{name: "every epoch has the same order", check: "order_repeats",
			edits: []edit{{`return rng.New(s.env.Seed, "shuffle "+info.Name, epoch).Perm(info.Source.Len())[:n]`,
				`return rng.New(s.env.Seed, "shuffle "+info.Name).Perm(info.Source.Len())[:n]`}}},
		{name: "a third of the queries is never seen", check: "queries_missing",
			edits: []edit{{stepsOf, stepsOf + "; for i := range steps.order { steps.order[i] %= 2 * len(steps.order) / 3 }"}}},

		// validation
		{name: "validation scores are inflated", check: "validation_differs", says: "their mean is",
			edits: []edit{{"v.Reward, v.Accuracy = stat.Mean(v.Rewards), stat.Mean(v.Accuracies)", "v.Reward, v.Accuracy = " +
				"1.1*stat.Mean(v.Rewards), stat.Mean(v.Accuracies)"}}},
		{name: "validation adds to every score", check: "validation_differs",
			edits: []edit{{"e.Rewards, e.Texts, e.Terms = greedy.Rewards, greedy.Texts, map[string]float64{}",
				"for _, x := range greedy.Rewards { e.Rewards = append(e.Rewards, x+0.05) }; e.Texts, e.Terms = greedy.Texts, map[string]float64{}"}}},
		{name: "validation scores the next query's answer", check: "validation_differs",
			edits: []edit{{"greedy, _ = policy.Decode(src, queries, data.Shots, 1)", "greedy, _ = policy.Decode(src, queries, data.Shots, " +
				"1); greedy.Actions = append(slices.Clone(greedy.Actions[greedy.T:]), greedy.Actions[:greedy.T]...)"}}},
		{name: "validation is reported too high", check: "validation_misreported",
			edits: []edit{{"s.doc.Scored(v.scores())", `m["val_reward"] = 1.1 * m["val_reward"].(float64); s.doc.Scored(v.scores())`}}},
	}
}

// Places that several plants change.
const (
	score         = "return b, scorer.Score(b)"
	sample        = "b := p.Sample(src, queries, g, steps, temperature, key)"
	stream        = "if o.Streams != nil {\nstream = o.Streams[s.Prompt]\n}\n"
	uniform       = stream + `return rng.New(int64(o.Seed), "token", stream, s.Sample, t).Float64()`
	recordedSet   = "b.Set(i, j, steps, reward)"
	embed         = "l.table = NewTable(len(data.Items), data.Dim, data.Embeddings)"
	rceWeights    = "weights, stats := r.weights(batch, tau) // [B*G], 1 over each query"
	advantages    = "adv := objective.Rounded(part.adv)"
	optimizerStep = "l.Optimizer.StepClipped(lr, l.clip, squares, losses, !l.env.AllowNonFinite)"
)

// offline is a run of 18 steps on 96 built-in queries: RCE, then GRPO on recorded groups.
func offline(_ *testing.T, more ...string) []string {
	return with([]string{"exp=beams_v3", "threads=1", "seed=3", "data.batch_size=16", "selector.hidden_dim=32", "report.plots=false",
		"logging.tensorboard=false",
		"data.shapes.train_queries=96", "data.shapes.reader_questions=30", "data.shapes.val_queries=24", "data.shapes.dev_queries=0",
		"rce.epochs=1", "grpo.epochs=2"}, more)
}

// online is a run of 18 steps on groups that the policy samples.
func online(t *testing.T, more ...string) []string {
	return offline(t, with([]string{"exp=okvqa_online", "schedule=[grpo_online]", "grpo_online.epochs=3"}, more)...)
}

// answering is a run of 6 steps of a tiny vision-language model on its own answers. From random weights every
// answer is cut at the length limit.
func answering(_ *testing.T, more ...string) []string {
	return with([]string{"exp=shapes_vl", "schedule=[rce,grpo]", "threads=1", "seed=3", "data.batch_size=16", "report.plots=false",
		"logging.tensorboard=false",
		"rewards.vqa.weight=0", "rewards.length.weight=1", "rce.epoch_queries=32", "grpo.epochs=1", "grpo.epoch_queries=64",
		"vl.scratch.hidden_size=32", "vl.scratch.intermediate_size=48", "vl.scratch.num_hidden_layers=1",
		"vl.scratch.vision={depth: 1, hidden_size: 32, intermediate_size: 48, num_heads: 2, fullatt_block_indexes: [0]}",
		"data.shapes.train_queries=96", "data.shapes.val_queries=8", "data.shapes.dev_queries=0", "data.conversations.demos=null",
		"checks.off=[all_truncated]"}, more)
}

// adapting is a run of answering that trains adapters of a pretrained model.
func adapting(t *testing.T, more ...string) []string {
	pretraining.Do(func() {
		dir := filepath.Join(shared(), "pretraining")
		pretrained = filepath.Join(shared(), "pretrained")
		mustRun(t, answering(t, "grpo.epochs=0", "rce.epoch_queries=16", "hydra.run.dir="+dir)...)
		mustRun(t, "checkpoint", "export", dir, "--format", "hf", "--out", pretrained)
	})
	return answering(t, append([]string{"vl.path=" + pretrained}, more...)...)
}

var (
	pretraining sync.Once
	pretrained  string
)

// plantedProgram builds the program once with code plants in it, each behind a switch of its own: FULCRUM_PLANT names the
// one that acts.
func plantedProgram(t *testing.T, plants []plant) string {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir, sources := t.TempDir(), sourcesOf(t, root)
	changed, packages := map[string]bool{}, map[string]string{}
	for _, m := range mutations(plants) {
		file := m.find(t, sources)
		if file == "" {
			continue
		}
		at := m.pattern().FindStringIndex(sources[file])
		sources[file] = sources[file][:at[0]] + m.switched() + sources[file][at[1]:]
		changed[file], packages[filepath.Dir(file)] = true, packageClause.FindString(sources[file])
	}
	if t.Failed() {
		t.FailNow()
	}
	overlay := map[string]string{}
	put := func(path, text string) {
		file := filepath.Join(dir, fmt.Sprintf("%d.go", len(overlay)))
		write(t, file, text)
		overlay[filepath.Join(root, path)] = file
	}
	for path := range changed {
		put(path, sources[path])
	}
	for pkg, clause := range packages {
		put(filepath.Join(pkg, "planted.go"), clause+"\n\nimport \"os\"\n\nfunc planted(name string) bool { return "+
			"os.Getenv(\"FULCRUM_PLANT\") == name }\n")
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

var packageClause = regexp.MustCompile(`(?m)^package \w+$`)

// sourcesOf reads the program's Go files by their path below root, without tests.
func sourcesOf(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"bin", "build", "testdata"}, d.Name())):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		name, err := filepath.Rel(root, path)
		out[name] = read(t, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// mutation is a place in the code and what the plants make of it.
type mutation struct {
	old    string
	plants []string // names
	new    []string // of each plant
}

// mutations groups the plants' edits by place.
func mutations(plants []plant) []*mutation {
	var out []*mutation
	for _, p := range plants {
		for _, e := range p.edits {
			i := slices.IndexFunc(out, func(m *mutation) bool { return m.old == e.old })
			if i < 0 {
				i, out = len(out), append(out, &mutation{old: e.old})
			}
			out[i].plants, out[i].new = append(out[i].plants, p.name), append(out[i].new, e.new)
		}
	}
	return out
}

// pattern matches the place's text however it is indented and aligned.
func (m *mutation) pattern() *regexp.Regexp {
	words := strings.Fields(m.old)
	for i, word := range words {
		words[i] = regexp.QuoteMeta(word)
	}
	return regexp.MustCompile(strings.Join(words, `\s+`))
}

// find returns the file that holds the place.
func (m *mutation) find(t *testing.T, sources map[string]string) string {
	t.Helper()
	var files []string
	for name, text := range sources {
		for range m.pattern().FindAllString(text, -1) {
			files = append(files, name)
		}
	}
	if len(files) != 1 {
		slices.Sort(files)
		t.Errorf("plant %q: its place stands in the sources %d times %v, want once; where the code has changed, give the plant its new text:\n%s",
			m.plants[0], len(files), files, m.old)
		return ""
	}
	return files[0]
}

// switched is the place's text with every plant behind its switch. A declaration is made as it was, and then anew.
func (m *mutation) switched() string {
	test := func(i int) string { return "planted(" + strconv.Quote(m.plants[i]) + ")" }
	old, _, _ := strings.Cut(m.old, " // ")
	var b strings.Builder
	left, _, declares := strings.Cut(old, " := ")
	switch {
	case declares && !strings.HasPrefix(old, "if "):
		b.WriteString(old + ";")
		for i, text := range m.new {
			fmt.Fprintf(&b, "if %s {\n%s\n};", test(i), strings.Replace(text, left+" := ", left+" = ", 1))
		}
	case strings.HasPrefix(old, "case "): // of a switch without a value
		for i, text := range m.new {
			b.WriteString(guarded(test(i), text) + "\n\t")
		}
		b.WriteString(old)
	default:
		for i, text := range m.new {
			fmt.Fprintf(&b, "if %s {\n%s\n} else ", test(i), text)
		}
		b.WriteString("{\n" + old + "\n};")
	}
	return b.String()
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
	events []record.Row
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
	process.Limit = 20 * time.Minute // of a machine that has other things to do
	c := caught{result: process.Wait()}
	recorded, err := record.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range recorded.Events {
		if name := e.Text("event"); name == "best_is_initial" || name == "too_few_steps" { // of a few steps, and no fault
			continue
		}
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
		if c.result.Code == 0 || !strings.Contains(c.result.Stderr, text) {
			t.Errorf("exit code %d, want an error with %q:\n%s", c.result.Code, text, c.result.Stderr)
		}
		return
	}
	for _, e := range c.events {
		if slices.Contains(strings.Split(p.check, "|"), e.Text("event")) && strings.Contains(e.Text("message"), p.says) {
			t.Logf("%s, step %d: %s", e.Text("event"), e.GlobalStep, e.Text("message"))
			return
		}
	}
	t.Errorf("not caught by %s (…%s…); findings %v, exit code %d\n%s", p.check, p.says, c.names(), c.result.Code, c.result.Stderr)
}

// Every plant has its place in the sources, whichever tests run.
func TestPlantsHaveTheirPlaces(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	sources := sourcesOf(t, root)
	for _, m := range mutations(codePlants()) {
		m.find(t, sources)
	}
}

func TestPlantsInCode(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no Go to build the planted program with")
	}
	plants := codePlants()
	if testing.Short() { // the others would have all packages compiled anew
		plants = slices.DeleteFunc(plants, func(p plant) bool { return !p.short })
	}
	binary := plantedProgram(t, plants)
	for _, p := range plants {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			runPlant(t, binary, p, "FULCRUM_PLANT="+p.name).check(t, p)
			if p.args == nil || p.wild || testing.Short() {
				return
			}
			// The same run without the plant is healthy: it is the plant that was caught.
			if c := runPlant(t, binary, p, "FULCRUM_PLANT="); len(c.events) > 0 || c.result.Code != 0 {
				t.Errorf("without the plant: findings %v, exit code %d\n%s", c.names(), c.result.Code, c.result.Stderr)
			}
		})
	}
	for name, base := range map[string]base{"offline": offline, "online": online, "answering": answering, "adapting": adapting} {
		t.Run("healthy "+name, func(t *testing.T) {
			t.Parallel()
			if c := runPlant(t, binary, plant{base: base}, "FULCRUM_PLANT="); len(c.events) > 0 || c.result.Code != 0 {
				t.Errorf("findings %v, exit code %d\n%s", c.names(), c.result.Code, c.result.Stderr)
			}
		})
	}
	if os.Getenv("FULCRUM_PLANT") != "" {
		t.Error("FULCRUM_PLANT is set in the environment of the tests")
	}
}
