package rce

// Named gives the phase the name that it has in the schedule, where that is not rce or sft.
func (r *Phase) Named(name string) *Phase {
	r.name = name
	return r
}
