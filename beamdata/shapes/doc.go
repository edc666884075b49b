// Package shapes is the built-in data set: small rendered scenes of coloured shapes, questions about
// them with ten simulated human answers each, and everything a selector of in-context examples needs
// to train on them. It is synthetic and says so; what it measures is whether a selector learns, from
// pixels and words, which solved examples help an unseen question.
//
//	d, err := shapes.Generate(shapes.DefaultOptions())
//	q := d.Dev[0]                                   // a held-out question, its pool and reward row
//	text := d.Items[q.Row].Question                 // "how many circles are there?"
//	reward := q.Soft([]int32{3, 7})                 // exact reward of showing pool positions 3 and 7
//
// The recipe is that of open-book beam data: pools of near and random training examples, a copy reader that answers
// with the votes of the examples shown, a beam search under it, and recorded groups for GRPO. No answer enters an
// embedding. The same options give the same bits, however many processors work and whether or not they fuse
// multiplications with additions: features are rounded to a grid, so that cosines are exact integer arithmetic.
//
// The set is made so that similarity is decent and a learned metric better: backgrounds, positions and
// wording dominate the cosine, while the reward follows what is asked and what is drawn.
package shapes
