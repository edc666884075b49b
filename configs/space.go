package configs

import (
	"math"
	"slices"
)

// Dimension is one swept override as an optimizing sweeper sees it. There are three kinds:
//
//	choice(…), a,b,c, glob(…)   Choices, without an order
//	range(…)                    Choices in the order of the sweep, which are numbers on an axis
//	interval(…)                 Low..High, continuous or whole numbers, linear or logarithmic
type Dimension struct {
	Key     string   // with its prefix: +a.b
	Choices []string // values as they are written behind key=; nil for an interval
	Ordered bool     // range that is not shuffled: the choices are numbers on an axis
	Low     float64  // interval: start
	High    float64  // interval: end
	Int     bool     // interval: whole numbers, as it was cast to int
	Tags    []string // of tag(log, …)
}

func (d *Dimension) Interval() bool { return d.Choices == nil }

// Log reports whether an interval or a range is to be searched on a logarithmic scale: it is tagged so.
func (d *Dimension) Log() bool { return slices.Contains(d.Tags, "log") }

// Space splits a sweep into its dimensions and the overrides that every job has. Overrides in
// hydra.sweeper.params come first; the command line wins.
func (c *Composer) Space(master *Composed) (dims []Dimension, fixed []string, err error) {
	if old := master.tree.Find("hydra.sweeper.search_space"); old != nil && old.Kind != Null {
		return nil, nil, errorAt(old.Origin, "hydra.sweeper.search_space is the older spelling of hydra.sweeper.params: write params: {lr: "+
			"'tag(log, interval(0.001, 0.1))'} instead")
	}
	overrides, err := c.sweepOverrides(master)
	if err != nil {
		return nil, nil, err
	}
	for _, o := range overrides {
		if !o.isSweep() {
			fixed = append(fixed, o.key()+"="+o.printed())
			continue
		}
		d, err := c.dimension(o)
		if err != nil {
			return nil, nil, err
		}
		dims = append(dims, d)
	}
	return dims, fixed, nil
}

func (c *Composer) dimension(o *Override) (Dimension, error) {
	d := Dimension{Key: o.key(), Tags: o.value.tags}
	fail := func(format string, args ...any) (Dimension, error) {
		return d, errorAt(o.where(), format, args...)
	}
	if o.value.kind == intervalSweep {
		d.Low, _ = o.value.rng[0].node.number()
		d.High, _ = o.value.rng[1].node.number()
		d.Int = o.value.cast == "int"
		switch {
		case math.IsInf(d.Low, 0) || math.IsInf(d.High, 0) || !(d.Low < d.High):
			return fail("interval(%v, %v): want start < end, both finite", d.Low, d.High)
		case d.Log() && d.Low <= 0:
			return fail("tag(log, interval(%v, %v)): a logarithmic interval must start above 0", d.Low, d.High)
		}
		return d, nil
	}
	values, err := c.axis(o)
	if err != nil {
		return d, err
	}
	if len(values) == 0 {
		return fail("%s has no values to choose from", o.value.describe())
	}
	for _, v := range values {
		d.Choices = append(d.Choices, v[len(d.Key)+1:])
	}
	d.Ordered = o.value.kind == rangeSweep && !o.value.shuffled
	return d, nil
}
