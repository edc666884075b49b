package configs

// Dimension is one swept override as an optimizing sweeper sees it.
type Dimension struct {
	Key     string   // with its prefix: +a.b
	Choices []string // choice, glob, range: values as they are written behind key=
	Ordered bool     // range: the choices are numbers in order
	Low     float64  // interval
	High    float64
	Int     bool     // interval cast to int
	Tags    []string // tag(log, …)
}

// Interval reports whether the dimension is continuous (or an integer interval).
func (d *Dimension) Interval() bool { return d.Choices == nil }

// Log reports whether the dimension is tagged log.
func (d *Dimension) Log() bool {
	for _, t := range d.Tags {
		if t == "log" {
			return true
		}
	}
	return false
}

// Space splits a sweep into its dimensions and the overrides that every job has. Overrides in
// hydra.sweeper.params come first; the command line wins.
func (c *Composer) Space(master *Composed) (dims []Dimension, fixed []string, err error) {
	params, err := master.hydraValue("sweeper.params")
	if err != nil {
		return nil, nil, err
	}
	overrides, err := c.sweepOverrides(params)
	if err != nil {
		return nil, nil, err
	}
	for _, o := range overrides {
		key := opPrefix[o.Op] + o.fullKey()
		if !o.isSweep() {
			a, err := c.axis(o)
			if err != nil {
				return nil, nil, err
			}
			fixed = append(fixed, a.values[0])
			continue
		}
		d := Dimension{Key: key, Tags: o.value.tags}
		if o.value.kind == intervalSweep {
			d.Low, _ = o.value.rng[0].node.number()
			d.High, _ = o.value.rng[1].node.number()
			d.Int = o.value.cast == "int"
			if !(d.Low < d.High) {
				return nil, nil, errorAt(Origin{Source: o.Text}, "interval(): want start < end")
			}
		} else {
			a, err := c.axis(o)
			if err != nil {
				return nil, nil, err
			}
			d.Choices, d.Ordered = []string{}, o.value.kind == rangeSweep && !o.value.shuffled
			for _, v := range a.values {
				d.Choices = append(d.Choices, v[len(key)+1:])
			}
		}
		dims = append(dims, d)
	}
	return dims, fixed, nil
}
