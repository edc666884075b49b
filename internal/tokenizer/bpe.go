package tokenizer

import (
	"container/heap"
	"slices"
)

// merges knows what two neighbouring tokens become, and how early (the rank: lower merges first).
type merges map[uint64]merge

type merge struct {
	rank int32
	id   int32
}

// join is the key of a pair of tokens.
func join(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// bpe merges the tokens of one piece in place, always the pair of the lowest rank and the leftmost of
// equals, until no pair is left; it returns the shortened ids.
//
// The tokens are a doubly linked list in arrays, the pairs wait in a heap: n tokens cost n·log n, so a
// file of one endless line is no trap. A pair in the heap may be out of date (a neighbour has merged
// since); it is recognised by its token ids, and dropped.
func (m merges) bpe(ids []int32, s *scratch) []int32 {
	n := len(ids)
	s.prev, s.next, s.heap = s.prev[:0], s.next[:0], s.heap[:0]
	for i := range n {
		s.prev = append(s.prev, int32(i-1))
		s.next = append(s.next, int32(i+1))
	}
	push := func(i int32) {
		j := s.next[i]
		if int(j) >= n {
			return
		}
		if found, ok := m[join(ids[i], ids[j])]; ok {
			heap.Push(&s.heap, pair{rank: found.rank, at: i, left: ids[i], right: ids[j], id: found.id})
		}
	}
	for i := range n - 1 {
		push(int32(i))
	}
	const gone = -1
	for len(s.heap) > 0 {
		p := heap.Pop(&s.heap).(pair)
		i := p.at
		if ids[i] != p.left {
			continue
		}
		j := s.next[i]
		if int(j) >= n || ids[j] != p.right {
			continue
		}
		ids[i], ids[j] = p.id, gone
		s.next[i] = s.next[j]
		if k := s.next[i]; int(k) < n {
			s.prev[k] = i
		}
		push(i)
		if h := s.prev[i]; h >= 0 {
			push(h)
		}
	}
	return slices.DeleteFunc(ids, func(id int32) bool { return id == gone })
}

// pair is a possible merge of the token at a place with its right neighbour.
type pair struct {
	rank, at, left, right, id int32
}

// mergeQueue is a heap, the next merge on top.
type mergeQueue []pair

func (q mergeQueue) Len() int      { return len(q) }
func (q mergeQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *mergeQueue) Push(p any)   { *q = append(*q, p.(pair)) }

func (q mergeQueue) Less(i, j int) bool {
	return q[i].rank < q[j].rank || q[i].rank == q[j].rank && q[i].at < q[j].at
}

func (q *mergeQueue) Pop() any {
	last := len(*q) - 1
	defer func() { *q = (*q)[:last] }()
	return (*q)[last]
}

// scratch is the working memory of one Encode, and its cache of pieces met before: a text repeats its
// words.
type scratch struct {
	prev, next []int32
	heap       mergeQueue
	steps      []step
	ids        []int32
	cache      map[string][2]int32 // piece → its ids in kept, from and to
	kept       []int32
}
