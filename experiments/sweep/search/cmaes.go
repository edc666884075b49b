package search

import (
	"errors"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/rng"
)

// cmaes is the covariance matrix adaptation evolution strategy (Hansen 2016, arXiv:1604.00772) in the unit cube.
// Generation g is the trials g·λ to g·λ+λ-1. The strategy's state is replayed from the history: what was tried
// and how it ranked is all that its equations ask for. A trial that starts before the generation ahead of its own
// has ended is drawn from the last distribution known then, and enters its own generation as an injected point
// (Hansen 2011, arXiv:1110.4181): its step is cut to a plausible length.
//
// Points outside the cube are drawn again. Axes with whole steps keep a deviation of at least a fifth of a step,
// so that the search does not freeze on one value. Negative weights (active CMA) are left out: they pay off after
// hundreds of trials.
type cmaes struct {
	space  *space
	seed   int64
	lambda int // trials in a generation
	sigma0 float64
}

func newCMAES(opt sweeper.Options, s *space) (sweeper.Sweeper, error) {
	if err := s.numeric(); err != nil {
		return nil, err
	}
	goals, err := opt.Goals()
	if err != nil {
		return nil, err
	}
	if len(goals.Objectives) > 1 {
		return nil, errors.New("takes one objective: for several take hydra/sweeper=tpe or nsgaii")
	}
	lambda := option.Or(opt.Population, 4+int(3*math.Log(float64(len(s.axes)))))
	return &cmaes{space: s, seed: seed(opt), sigma0: opt.Sigma0, lambda: lambda}, nil
}

func (c *cmaes) Next(history []sweeper.Trial) ([]string, error) {
	number := next(history)
	d, err := c.replay(history, number/c.lambda)
	if err != nil {
		return nil, err
	}
	if err := d.decompose(); err != nil {
		return nil, err
	}
	stream := rng.New(c.seed, "cmaes trial", number)
	floor := c.floors()
	return c.space.untried(history, func() ([]float64, bool) {
		z := list.Make(d.n, func(int) float64 { return stream.NormFloat64() })
		step, inside := d.outOf(z), true
		for i := range step {
			if s := d.sigma * math.Sqrt(d.c.At(i, i)); s < floor[i] {
				step[i] *= floor[i] / s
			}
			step[i] = d.mean[i] + d.sigma*step[i]
			inside = inside && step[i] >= 0 && step[i] <= 1
			step[i] = min(max(step[i], 0), 1)
		}
		return step, inside
	}), nil
}

// floors returns the least standard deviations of the axes, in the unit cube.
func (c *cmaes) floors() []float64 {
	floor := make([]float64, len(c.space.axes))
	for i, a := range c.space.axes {
		switch {
		case a.numbers != nil:
			floor[i] = 0.2 / float64(len(a.numbers))
		case a.integer:
			floor[i] = 0.2 / (a.high - a.low + 1)
		}
	}
	return floor
}

// replay returns the distribution after the generations before the given one, as far as all their trials have ended.
func (c *cmaes) replay(history []sweeper.Trial, generation int) (*gaussian, error) {
	byNumber := byNumber(history)
	d := newGaussian(len(c.space.axes), c.lambda, c.sigma0)
	for g := range generation {
		first := g * c.lambda
		if first+c.lambda > len(byNumber) {
			break
		}
		trials := byNumber[first : first+c.lambda]
		var failed []sweeper.Trial
		for _, t := range trials {
			if running(t) {
				return d, nil
			}
			if !ended(t) {
				failed = append(failed, t)
			}
		}
		if len(failed) == len(trials) {
			continue
		}
		var steps [][]float64
		for _, t := range append(ranked(trials), failed...) {
			point, err := c.space.point(t)
			if err != nil {
				return nil, err
			}
			steps = append(steps, point)
		}
		if err := d.update(steps); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// gaussian is the search distribution N(mean, sigma²·c), in Hansen's names.
type gaussian struct {
	n                           int // axes
	mean                        []float64
	sigma                       float64
	c                           *mat.SymDense
	pathSigma, pathC            []float64
	weights                     []float64 // of the best μ, falling, sum 1
	muEff                       float64
	cSigma, dSigma, cc, c1, cmu float64
	chi                         float64 // E‖N(0, I)‖
	generation                  int

	axes  *mat.Dense // eigenvectors of c in columns
	roots []float64  // square roots of its eigenvalues
}

// newGaussian returns the initial distribution in the middle of the unit cube, with the tutorial's default parameters
// (table 1) for n axes and generations of lambda points.
func newGaussian(n, lambda int, sigma float64) *gaussian {
	d := &gaussian{n: n, mean: make([]float64, n), sigma: sigma, c: mat.NewSymDense(n, nil), pathSigma: make([]float64, n),
		pathC: make([]float64, n)}
	for i := range n {
		d.mean[i] = 0.5
		d.c.SetSym(i, i, 1)
	}
	d.weights = list.Make(max(lambda/2, 1), func(i int) float64 { return math.Log(float64(lambda+1)/2) - math.Log(float64(i+1)) })
	floats.Scale(1/floats.Sum(d.weights), d.weights)
	d.muEff = 1 / floats.Dot(d.weights, d.weights)
	dim := float64(n)
	d.cSigma = (d.muEff + 2) / (dim + d.muEff + 5)
	d.dSigma = 1 + 2*math.Max(0, math.Sqrt((d.muEff-1)/(dim+1))-1) + d.cSigma
	d.cc = (4 + d.muEff/dim) / (dim + 4 + 2*d.muEff/dim)
	d.c1 = 2 / ((dim+1.3)*(dim+1.3) + d.muEff)
	d.cmu = math.Min(1-d.c1, 2*(d.muEff-2+1/d.muEff)/((dim+2)*(dim+2)+d.muEff))
	d.chi = math.Sqrt(dim) * (1 - 1/(4*dim) + 1/(21*dim*dim))
	return d
}

// decompose finds the axes of c. Rounding must not leave it without a positive eigenvalue.
func (d *gaussian) decompose() error {
	var eigen mat.EigenSym
	if !eigen.Factorize(d.c, true) {
		return errors.New("cmaes: the covariance matrix has no eigenvalues")
	}
	d.axes = &mat.Dense{}
	eigen.VectorsTo(d.axes)
	d.roots = eigen.Values(nil)
	for i, v := range d.roots {
		d.roots[i] = math.Sqrt(math.Max(v, 1e-20))
	}
	return nil
}

// outOf maps a standard normal vector to one of N(0, c).
func (d *gaussian) outOf(z []float64) []float64 {
	var y mat.VecDense
	y.MulVec(d.axes, mat.NewVecDense(d.n, floats.MulTo(make([]float64, d.n), d.roots, z)))
	return y.RawVector().Data
}

// whiten returns c^(-1/2)·y.
func (d *gaussian) whiten(y []float64) []float64 {
	var along, out mat.VecDense
	along.MulVec(d.axes.T(), mat.NewVecDense(d.n, y))
	floats.Div(along.RawVector().Data, d.roots)
	out.MulVec(d.axes, &along)
	return out.RawVector().Data
}

// update moves the distribution to a generation's points, the best first (tutorial, figure 6, without negative
// weights).
func (d *gaussian) update(points [][]float64) error {
	if err := d.decompose(); err != nil {
		return err
	}
	plausible := math.Sqrt(float64(d.n)) + 2*float64(d.n)/float64(d.n+2) // a step's length; longer ones are injected
	steps := make([][]float64, len(d.weights))
	mean := make([]float64, d.n) // weighted step ⟨y⟩
	for k, w := range d.weights {
		y := list.Make(d.n, func(i int) float64 { return (points[k][i] - d.mean[i]) / d.sigma })
		if length := floats.Norm(d.whiten(y), 2); length > plausible {
			floats.Scale(plausible/length, y)
		}
		steps[k] = y
		floats.AddScaled(mean, w, y)
	}
	for i := range mean {
		d.mean[i] = min(max(d.mean[i]+d.sigma*mean[i], 0), 1)
	}
	white := d.whiten(mean)
	for i := range white {
		d.pathSigma[i] = (1-d.cSigma)*d.pathSigma[i] + math.Sqrt(d.cSigma*(2-d.cSigma)*d.muEff)*white[i]
	}
	d.generation++
	length := floats.Norm(d.pathSigma, 2)
	h := 0.0 // 1 unless the step size is still growing fast
	if length/math.Sqrt(1-math.Pow(1-d.cSigma, 2*float64(d.generation))) < (1.4+2/float64(d.n+1))*d.chi {
		h = 1
	}
	for i := range mean {
		d.pathC[i] = (1-d.cc)*d.pathC[i] + h*math.Sqrt(d.cc*(2-d.cc)*d.muEff)*mean[i]
	}
	d.c.ScaleSym(1-d.c1-d.cmu+(1-h)*d.c1*d.cc*(2-d.cc), d.c)
	d.c.SymRankOne(d.c, d.c1, mat.NewVecDense(d.n, d.pathC))
	for k, w := range d.weights {
		d.c.SymRankOne(d.c, d.cmu*w, mat.NewVecDense(d.n, steps[k]))
	}
	d.sigma = math.Min(d.sigma*math.Exp(math.Min(1, d.cSigma/d.dSigma*(length/d.chi-1))), 1)
	return nil
}
