// Package policytest checks what the training phases rely on in every policy of the catalog (experiments/workload).
// A new policy is a file with its cases and a line in suites.
package policytest

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/experiments/workload"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

func TestMain(m *testing.M) {
	if err := torchx.Load(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	torchx.Attach(1)
	os.Exit(m.Run())
}

// suites lists the kinds of each policy that are checked, by the policy's name in the catalog.
func suites() map[string]func(t *testing.T) {
	return map[string]func(t *testing.T){"pointer": pointers, "qwen2_5_vl": visionLanguage, "seq2seq": encoderDecoders}
}

// TestPolicies runs the suite of every policy in the catalog.
func TestPolicies(t *testing.T) {
	for _, name := range workload.Policies().Names() {
		suite, ok := suites()[name]
		if !ok {
			t.Errorf("policy %s has no suite", name)
			continue
		}
		t.Run(name, suite)
	}
}

// testCase is a policy under test.
type testCase struct {
	Policy selector.Policy
	// Batch holds candidates of at least two queries, of different lengths and some of them padding. Its source answers
	// the queries 0, 1 and 2.
	Batch *selector.Batch
	// Open reads a checkpoint of the policy; nil = that is not tried.
	Open func(file string) (selector.Policy, error)
	// Dropout says that training drops something.
	Dropout bool
	// Flat reports whether the loss may hardly change with a tensor; nil = with none.
	Flat func(tensor string) bool
}

// run checks one policy. Its weights are what they were when it returns.
func run(t *testing.T, c testCase) {
	t.Helper()
	t.Run("a batch is its candidates one by one", c.oneByOne)
	t.Run("dropout masks belong to queries", c.dropout)
	t.Run("gradients are slopes", c.gradients)
	t.Run("a clone has weights of its own", c.clones)
	t.Run("ratios are 1 at the start", c.ratios)
	t.Run("draws depend on the seed", c.draws)
	t.Run("greedy scores are log-probabilities", c.greedy)
	t.Run("KL and entropy", c.divergence)
	t.Run("wrong questions are errors", c.refusals)
	t.Run("a checkpoint brings it back", c.checkpoint)
}

// loss is a sum of the batch's log-probabilities with weights of both signs.
func loss(logp torchx.Tensor, weights []float32) torchx.Tensor {
	return torchx.Sum(torchx.Mul(logp, torchx.From(weights, logp.Shape()...).To(logp.DType())))
}

func waves(n int) []float32 {
	weights := make([]float32, n)
	for i := range weights {
		weights[i] = float32(math.Sin(float64(i + 1)))
	}
	return weights
}

// forward returns log-probabilities and the gradient of the loss of some parts of a batch.
func (c testCase) forward(opt selector.ForwardOptions, parts ...*selector.Batch) (logp, grad []float64) {
	defer torchx.Scope()()
	c.Policy.Params().ZeroGrad()
	for _, b := range parts {
		out := c.Policy.Forward(b, opt).LogP
		weights := waves(len(c.Batch.Mask))[len(logp):]
		logp = append(logp, out.Floats()...)
		torchx.Backward(loss(out, weights[:len(b.Mask)]))
	}
	return logp, c.Policy.Params().Grad().Floats()
}

func (c testCase) logp(b *selector.Batch) []float64 {
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	return c.Policy.Forward(b, selector.ForwardOptions{}).LogP.Floats()
}

// closeGradients compares gradients, whose rounding errors are those of the largest one.
func closeGradients(t *testing.T, got, want []float64) {
	t.Helper()
	most := 1.0
	for _, g := range want {
		most = math.Max(most, math.Abs(g))
	}
	golden.Close(t, got, want, 1e-4*most)
}

func (c testCase) oneByOne(t *testing.T) {
	defer torchx.Scope()()
	b, opt := c.Batch, selector.ForwardOptions{Temperature: 1.3}
	logp, grad := c.forward(opt, b)
	weights := waves(len(b.Mask))
	c.Policy.Params().ZeroGrad()
	for at, valid := range b.Valid {
		steps := logp[at*b.T : (at+1)*b.T]
		if !valid {
			golden.Close(t, steps, make([]float64, b.T), 0)
			continue
		}
		one := selector.NewBatch(b.Source, b.Queries[at/b.G:at/b.G+1], 1, b.T)
		one.Set(0, 0, b.Scored(at/b.G, at%b.G), 0)
		alone := c.Policy.Forward(one, opt).LogP
		golden.Close(t, steps, alone.Floats(), 3e-5) // float32, sums in another order
		torchx.Backward(loss(alone, weights[at*b.T:(at+1)*b.T]))
	}
	closeGradients(t, grad, c.Policy.Params().Grad().Floats())
}

func (c testCase) dropout(t *testing.T) {
	train := selector.ForwardOptions{Train: true, DropoutSeed: 7}
	logp, grad := c.forward(train, c.Batch)
	var queries []*selector.Batch
	for i := range c.Batch.Queries {
		queries = append(queries, c.Batch.Part(i, i+1))
	}
	alone, gradAlone := c.forward(train, queries...)
	golden.Close(t, alone, logp, 1e-4)
	closeGradients(t, gradAlone, grad)
	if again, _ := c.forward(train, c.Batch); !slices.Equal(again, logp) {
		t.Error("the same seed gives other masks")
	}
	plain, _ := c.forward(selector.ForwardOptions{DropoutSeed: 7}, c.Batch)
	other, _ := c.forward(selector.ForwardOptions{Train: true, DropoutSeed: 8}, c.Batch)
	if c.Dropout == slices.Equal(logp, plain) || c.Dropout == slices.Equal(logp, other) {
		t.Errorf("dropout changes something: %v; another seed does: %v; want %v", !slices.Equal(logp, plain), !slices.Equal(logp, other),
			c.Dropout)
	}
}

// gradients compares the gradient of every tensor with the slope of the loss along it.
func (c testCase) gradients(t *testing.T) {
	params, weights := c.Policy.Params(), waves(len(c.Batch.Mask))
	_, grad := c.forward(selector.ForwardOptions{}, c.Batch)
	start := params.Values()
	defer params.SetValues(start)
	at := func(values []float32) float64 {
		defer torchx.Scope()()
		defer torchx.NoGrad()()
		params.SetValues(values)
		return loss(c.Policy.Forward(c.Batch, selector.ForwardOptions{}).LogP, weights).Item()
	}
	for _, name := range params.Names() {
		lo, hi := params.Range(name)
		norm := 0.0
		for _, g := range grad[lo:hi] {
			norm += g * g
		}
		if norm = math.Sqrt(norm); norm < 1e-2 {
			if c.Flat == nil || !c.Flat(name) {
				t.Errorf("%s: gradient norm %.2g", name, norm)
			}
			continue
		}
		moved := func(step float64) []float32 {
			v := slices.Clone(start)
			for i := lo; i < hi; i++ {
				v[i] += float32(step * grad[i] / norm)
			}
			return v
		}
		step := math.Min(0.005/norm, 0.01) // the loss moves by 0.01, far above float32's rounding, and hardly bends
		if slope := (at(moved(step)) - at(moved(-step))) / (2 * step); math.Abs(slope-norm) > 0.03*norm {
			t.Errorf("%s: slope %.5g along the gradient, want its norm %.5g", name, slope, norm)
		}
	}
}

func (c testCase) clones(t *testing.T) {
	before := c.logp(c.Batch)
	clone := c.Policy.Clone()
	defer clone.Free()
	values := clone.Params().Values()
	for i := range values {
		values[i] += 0.5
	}
	clone.Params().SetValues(values)
	golden.Close(t, c.logp(c.Batch), before, 0)
	if other := (testCase{Policy: clone}).logp(c.Batch); slices.Equal(other, before) {
		t.Error("a clone with other weights has the same log-probabilities")
	}
}

func (c testCase) ratios(t *testing.T) {
	before := c.logp(c.Batch)
	c.forward(selector.ForwardOptions{Train: true, DropoutSeed: 1}, c.Batch)
	golden.Close(t, c.logp(c.Batch), before, 0)
	logp, _ := c.forward(selector.ForwardOptions{DropoutSeed: 2}, c.Batch)
	golden.Close(t, logp, before, 3e-5) // with gradient the last bits may differ
}

func (c testCase) draws(t *testing.T) {
	src, most := c.Batch.Source, c.Batch.T
	sample := func(queries []int, seed uint64) *selector.Batch {
		return c.Policy.Sample(src, queries, 6, most, 1, seed)
	}
	b := sample([]int{2, 0}, 9)
	if b.G != 6 || b.B() != 2 || b.NumValid() != 12 || b.T > most {
		t.Fatalf("got %d queries, %d candidates of at most %d steps, %d valid", b.B(), b.G, b.T, b.NumValid())
	}
	if b.Truncated != nil {
		checkEnds(t, b, most)
	}
	clone := c.Policy.Clone()
	defer clone.Free()
	if again := clone.Sample(src, []int{2, 0}, 6, most, 1, 9); !slices.Equal(again.Actions, b.Actions) {
		t.Error("a clone draws others from the same seed")
	}
	if _, ok := c.Policy.(selector.TokenPolicy); ok { // a selector draws for a whole batch
		if alone := sample([]int{0}, 9); !slices.Equal(alone.Scored(0, 3), b.Scored(1, 3)) {
			t.Error("a query's draws depend on the others")
		}
	}
	differ := false
	for seed := range uint64(20) {
		differ = differ || !slices.Equal(sample([]int{2, 0}, seed).Actions, b.Actions)
	}
	if !differ {
		t.Error("every seed gives the same draws")
	}
}

// checkEnds: a completion goes on to the length limit or to its first end token, and says which.
func checkEnds(t *testing.T, b *selector.Batch, most int) {
	t.Helper()
	ends := map[int64]bool{}
	for at := range b.Valid {
		if ids := b.Scored(at/b.G, at%b.G); !b.Cut(at) {
			ends[ids[len(ids)-1]] = true
		}
	}
	for at := range b.Valid {
		ids := b.Scored(at/b.G, at%b.G)
		end := slices.IndexFunc(ids, func(id int64) bool { return ends[id] })
		if cut := b.Cut(at); cut && (end >= 0 || len(ids) != most) || !cut && end != len(ids)-1 {
			t.Errorf("candidate %d: truncated %v, ids %v; end tokens are %v", at, cut, ids, ends)
		}
	}
}

func (c testCase) greedy(t *testing.T) {
	best, scores := c.Policy.Decode(c.Batch.Source, []int{0, 1, 2}, c.Batch.T, 1)
	logp := c.logp(best)
	for i := range best.Queries {
		sum := 0.0
		for _, l := range logp[i*best.T : (i+1)*best.T] {
			sum += l
		}
		golden.Close(t, scores[i:i+1], []float64{sum}, 1e-4)
	}
}

// divergence compares KL and entropy of the steps with the distributions, where the policy can give them.
func (c testCase) divergence(t *testing.T) {
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	b := c.Batch
	other := c.Policy.Clone()
	defer other.Free()
	values := other.Params().Values()
	for i := range values {
		values[i] += 0.1 * float32(math.Sin(float64(7*i)))
	}
	other.Params().SetValues(values)
	kl := func(reference selector.Policy) []float64 {
		if p, ok := c.Policy.(selector.TokenPolicy); ok {
			return p.KL(b, reference).Floats()
		}
		ref := reference.Forward(b, selector.ForwardOptions{Dist: true}).Dist
		out := c.Policy.Forward(b, selector.ForwardOptions{Dist: true, Reference: ref})
		p := torchx.Exp(out.Dist)
		golden.Close(t, out.KL.Floats(), torchx.Sum(torchx.Mul(p, torchx.Sub(out.Dist, ref)), 3).Floats(), 1e-4)
		return out.KL.Floats()
	}
	golden.Close(t, kl(c.Policy), make([]float64, len(b.Mask)), 1e-5)
	got := kl(other)
	if low := slices.Min(got); low < -1e-5 {
		t.Errorf("a step has KL %g", low)
	}
	if most := slices.Max(got); most < 1e-5 {
		t.Errorf("largest KL %g: the policies are alike", most)
	}
}

func (c testCase) refusals(t *testing.T) {
	src := c.Batch.Source
	wrong := selector.NewBatch(src, []int{0}, 1, 1)
	wrong.Set(0, 0, []int64{1 << 40}, 0)
	questions := map[string]func(){"an action that is none": func() { c.logp(wrong) }}
	want := map[string]string{}
	if p, ok := c.Policy.(selector.TokenPolicy); ok {
		questions["width 3"] = func() { p.Decode(src, []int{0}, 4, 3) }
		questions["Dist"] = func() { p.Forward(c.Batch, selector.ForwardOptions{Dist: true}) }
		questions["another kind of reference"] = func() { p.KL(c.Batch, nil) }
		want = map[string]string{"width 3": "width 3: want 1", "Dist": "selector.TokenPolicy", "another kind of reference": "another kind"}
	}
	for name, ask := range questions {
		var op *torchx.OpError
		if err := torchx.Try(func() error { ask(); return nil }); !errors.As(err, &op) || !strings.Contains(err.Error(), want[name]) {
			t.Errorf("%s: error %v, want one of the operation (%s)", name, err, want[name])
		}
	}
}

// checkpoint writes the trained tensors and the metadata, as the scheduler does, and reads them again.
func (c testCase) checkpoint(t *testing.T) {
	if c.Open == nil {
		t.Skip("no way to open a checkpoint")
	}
	params, meta := c.Policy.Params(), c.Policy.Metadata()
	var tensors []tensorfile.Tensor
	values := params.Values()
	for _, name := range params.Names() {
		lo, hi := params.Range(name)
		tensors = append(tensors, tensorfile.FromFloat32s(name, params.Shape(name), values[lo:hi]))
	}
	for key, value := range meta {
		if strings.Contains(value, "/") {
			t.Errorf("metadata %s holds a path: %s", key, value)
		}
	}
	write := func(name string, tensors []tensorfile.Tensor) string {
		path := filepath.Join(t.TempDir(), name)
		if err := tensorfile.WriteSafetensors(path, tensors, meta); err != nil {
			t.Fatal(err)
		}
		return path
	}
	again, err := c.Open(write("whole.safetensors", tensors))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Free()
	golden.Close(t, (testCase{Policy: again}).logp(c.Batch), c.logp(c.Batch), 0)
	lacking := tensors[len(tensors)/2].Name
	short := slices.DeleteFunc(slices.Clone(tensors), func(x tensorfile.Tensor) bool { return x.Name == lacking })
	if _, err := c.Open(write("short.safetensors", short)); err == nil || !strings.Contains(err.Error(), lacking) {
		t.Errorf("without tensor %s: error %v", lacking, err)
	}
	lo, hi := params.Range(tensors[0].Name)
	broken := slices.Clone(values[lo:hi])
	broken[0] = float32(math.NaN())
	tensors[0] = tensorfile.FromFloat32s(tensors[0].Name, params.Shape(tensors[0].Name), broken)
	if _, err := c.Open(write("nan.safetensors", tensors)); err == nil || !strings.Contains(err.Error(), "NaN") {
		t.Errorf("with NaN: error %v", err)
	}
}
