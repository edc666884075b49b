package ranks

// The results of n shards are added along one binary tree: the first child of a node has the largest power of two of its shards that leaves
// the other one some. The tree depends on n alone, so that a sum has the same bytes however the shards are spread over processes.

// Node is the sum of shards From … To-1, a node of the tree.
type Node[T any] struct {
	From, To int
	Sum      T
}

// middle cuts a node of the tree in two.
func middle(from, to int) int {
	half := 1
	for 2*half < to-from {
		half *= 2
	}
	return from + half
}

// Spine is the number of sums to which the last of shards from … to-1 is added, one after the other.
func Spine(from, to int) (n int) {
	for ; to-from > 1; n++ {
		from = middle(from, to)
	}
	return n
}

// Sums returns the largest whole nodes of the tree over n shards that lie in [from, to); compute gives a shard's value, add adds two.
// Shards are computed in order, and at most log n sums are kept at a time.
func Sums[T any](n, from, to int, compute func(shard int) T, add func(a, b T) T) []Node[T] {
	return sums(0, n, from, to, compute, add)
}

func sums[T any](lo, hi, from, to int, compute func(shard int) T, add func(a, b T) T) []Node[T] {
	switch {
	case hi <= from || to <= lo || lo == hi:
		return nil
	case hi-lo == 1:
		return []Node[T]{{lo, hi, compute(lo)}}
	}
	mid := middle(lo, hi)
	left := sums(lo, mid, from, to, compute, add)
	right := sums(mid, hi, from, to, compute, add)
	if from <= lo && hi <= to { // both are whole
		return []Node[T]{{lo, hi, add(left[0].Sum, right[0].Sum)}}
	}
	return append(left, right...)
}

// Total adds the nodes of all processes, in order of their shards, to the sum of n shards.
func Total[T any](n int, nodes []Node[T], add func(a, b T) T) T {
	sum, _ := total(0, n, nodes, add)
	return sum
}

func total[T any](lo, hi int, nodes []Node[T], add func(a, b T) T) (sum T, left []Node[T]) {
	if nodes[0].From == lo && nodes[0].To == hi {
		return nodes[0].Sum, nodes[1:]
	}
	mid := middle(lo, hi)
	first, nodes := total(lo, mid, nodes, add)
	second, nodes := total(mid, hi, nodes, add)
	return add(first, second), nodes
}
