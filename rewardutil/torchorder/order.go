// Package torchorder sorts as libtorch does, equal values included.
package torchorder

import (
	"math"
	"math/bits"

	"fulcrum/internal/stat"
)

// The reference orders equal rewards as libtorch's CPU kernels happen to: torch.sort is std::sort, and
// torch.topk is std::nth_element and std::sort, or std::partial_sort for a small k, all of GNU's C++
// library. These algorithms are deterministic, so that following them step by step gives the same order
// of ties without loading libtorch. Our own order is by position.

// Sort returns the indices of r in descending order, ties as torch.sort(r, descending=True) puts
// them. NaN counts as the largest.
func Sort(r []float64) []int {
	s := newGNU(r)
	s.sort(0, len(r))
	return s.at
}

// TopK returns the indices of the k largest values, best first, ties as torch.topk puts them.
func TopK(r []float64, k int) []int {
	s := newGNU(r)
	k = min(k, len(r))
	if k <= 0 {
		return nil
	}
	if k*64 <= len(r) {
		s.heapSelect(0, k, len(r))
		for last := k; last > 1; last-- {
			s.popHeap(0, last-1, last-1)
		}
	} else {
		s.nthElement(0, k-1, len(r))
		s.sort(0, k-1)
	}
	return s.at[:k]
}

// gnu sorts positions of a value list; names follow libstdc++ (bits/stl_algo.h, bits/stl_heap.h).
type gnu struct {
	r  []float64
	at []int
}

func newGNU(r []float64) *gnu {
	return &gnu{r: r, at: stat.Indices(len(r))}
}

// before says whether entry x of the original list goes before entry y.
func (s *gnu) before(x, y int) bool {
	return math.IsNaN(s.r[x]) && !math.IsNaN(s.r[y]) || s.r[x] > s.r[y]
}

func (s *gnu) less(i, j int) bool { return s.before(s.at[i], s.at[j]) }
func (s *gnu) swap(i, j int)      { s.at[i], s.at[j] = s.at[j], s.at[i] }

const gnuSmall = 16 // below this, insertion sort

func depthLimit(n int) int { return 2 * (bits.Len(uint(n)) - 1) }

func (s *gnu) sort(first, last int) {
	if first >= last {
		return
	}
	s.introsort(first, last, depthLimit(last-first))
	if last-first <= gnuSmall {
		s.insertionSort(first, last)
		return
	}
	s.insertionSort(first, first+gnuSmall)
	for i := first + gnuSmall; i < last; i++ {
		s.linearInsert(i)
	}
}

func (s *gnu) introsort(first, last, depth int) {
	for last-first > gnuSmall {
		if depth == 0 {
			s.heapSelect(first, last, last)
			for l := last; l-first > 1; l-- {
				s.popHeap(first, l-1, l-1)
			}
			return
		}
		depth--
		cut := s.partitionPivot(first, last)
		s.introsort(cut, last, depth)
		last = cut
	}
}

func (s *gnu) nthElement(first, nth, last int) {
	if first == last || nth == last {
		return
	}
	for depth := depthLimit(last - first); last-first > 3; depth-- {
		if depth == 0 {
			s.heapSelect(first, nth+1, last)
			s.swap(first, nth)
			return
		}
		if cut := s.partitionPivot(first, last); cut <= nth {
			first = cut
		} else {
			last = cut
		}
	}
	s.insertionSort(first, last)
}

func (s *gnu) partitionPivot(first, last int) int {
	s.medianToFirst(first, first+1, first+(last-first)/2, last-1)
	pivot, lo, hi := first, first+1, last
	for {
		for s.less(lo, pivot) {
			lo++
		}
		hi--
		for s.less(pivot, hi) {
			hi--
		}
		if lo >= hi {
			return lo
		}
		s.swap(lo, hi)
		lo++
	}
}

func (s *gnu) medianToFirst(result, a, b, c int) {
	median := a
	if s.less(a, b) {
		if s.less(b, c) {
			median = b
		} else if s.less(a, c) {
			median = c
		}
	} else if !s.less(a, c) {
		if s.less(b, c) {
			median = c
		} else {
			median = b
		}
	}
	s.swap(result, median)
}

func (s *gnu) insertionSort(first, last int) {
	for i := first + 1; i < last; i++ {
		if v := s.at[i]; s.before(v, s.at[first]) {
			copy(s.at[first+1:i+1], s.at[first:i])
			s.at[first] = v
		} else {
			s.linearInsert(i)
		}
	}
}

func (s *gnu) linearInsert(i int) {
	v := s.at[i]
	for ; s.before(v, s.at[i-1]); i-- {
		s.at[i] = s.at[i-1]
	}
	s.at[i] = v
}

// heapSelect leaves a heap of the first entries of [first, last) in [first, middle).
func (s *gnu) heapSelect(first, middle, last int) {
	n := middle - first
	for parent := (n - 2) / 2; n >= 2 && parent >= 0; parent-- {
		s.adjustHeap(first, parent, n, s.at[first+parent])
	}
	for i := middle; i < last; i++ {
		if s.less(i, first) {
			s.popHeap(first, middle, i)
		}
	}
}

// popHeap moves the heap's top to result and the value there into the heap [first, last).
func (s *gnu) popHeap(first, last, result int) {
	v := s.at[result]
	s.at[result] = s.at[first]
	s.adjustHeap(first, 0, last-first, v)
}

func (s *gnu) adjustHeap(first, hole, n, v int) {
	top, child := hole, hole
	for child < (n-1)/2 {
		child = 2 * (child + 1)
		if s.less(first+child, first+child-1) {
			child--
		}
		s.at[first+hole] = s.at[first+child]
		hole = child
	}
	if n%2 == 0 && child == (n-2)/2 {
		child = 2*child + 1
		s.at[first+hole] = s.at[first+child]
		hole = child
	}
	for hole > top {
		parent := (hole - 1) / 2
		if !s.before(s.at[first+parent], v) {
			break
		}
		s.at[first+hole] = s.at[first+parent]
		hole = parent
	}
	s.at[first+hole] = v
}
