package advantage

import "fulcrum/internal/list"

// Method turns the rewards of groups into advantages. Each has its own file; the choices of the key, its check, the doctor's
// expectations and the conformance tests follow from the table methods.
type Method struct {
	Name string

	// Group returns the advantages of one group's counted rewards, not all equal.
	Group func(rewards []float64, o Options) []float64
	// Batch scales the results of Group over all groups of the batch; nil: no further scaling.
	Batch func(groups [][]float64, o Options)

	Anchored       bool // rewards come in as gains over a reference: a group of equal ones has a signal unless they are 0
	Centred        bool // the advantages of a group have mean 0
	ShiftInvariant bool // a number added to all rewards of a group changes nothing
	ScaleInvariant bool // a factor of all rewards changes nothing, where min_std is 0
}

// methods is the table of advantage methods, in the order of messages and documentation.
func methods() []Method {
	return []Method{zScore(), meanOnly(), batchStd(), leaveOneOut(), rank(), referenceRollout(), none()}
}

func methodNames() []string { return list.Map(methods(), func(m Method) string { return m.Name }) }

// method returns the entry that the options name. Validate has refused other names before.
func (o Options) method() Method {
	for _, m := range methods() {
		if m.Name == o.Method {
			return m
		}
	}
	panic("advantage: no method " + o.Method)
}

// Centred reports whether the advantages of a whole group have mean 0 before the clip.
func (o Options) Centred() bool { return o.method().Centred && o.BaselineShift == 0 }

// Anchored reports whether the rewards of a group are to be gains over the reference's own.
func (o Options) Anchored() bool { return o.method().Anchored }

// minus returns r - m, divided by scale.
func minus(r []float64, m, scale float64) []float64 {
	return list.Map(r, func(v float64) float64 { return (v - m) / scale })
}

// freedom returns the divisor of a sum of n squares that gives a variance.
func (o Options) freedom(n int) float64 {
	if o.Std == "population" {
		return float64(n)
	}
	return float64(n - 1)
}
