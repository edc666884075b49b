// Package list makes lists of others, and counts them.
package list

import "slices"

// Map returns what f makes of every element, in their order.
func Map[T, U any](of []T, f func(T) U) []U {
	out := make([]U, len(of))
	for i, v := range of {
		out[i] = f(v)
	}
	return out
}

// Make returns what f makes of 0 … n-1, in that order.
func Make[T any](n int, f func(int) T) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = f(i)
	}
	return out
}

// Convert returns the numbers as another type, as Go converts them.
func Convert[To, From ~int | ~int32 | ~int64](of []From) []To {
	return Map(of, func(v From) To { return To(v) })
}

// Filter returns the elements that keep accepts, in their order; nil where it accepts none.
func Filter[T any](of []T, keep func(T) bool) (out []T) {
	for _, v := range of {
		if keep(v) {
			out = append(out, v)
		}
	}
	return out
}

// Unique returns the elements without those that stand before, in their order; nil of none.
func Unique[T comparable](of []T) (out []T) {
	for _, v := range of {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// Common returns how many elements two lists begin with.
func Common[T comparable](a, b []T) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// Count returns how many elements is accepts.
func Count[T any](of []T, is func(T) bool) (n int) {
	for _, v := range of {
		if is(v) {
			n++
		}
	}
	return n
}

// Sum returns the sum of what f makes of the elements, added in their order.
func Sum[T any, N int | int32 | float64](of []T, f func(T) N) (sum N) {
	for _, v := range of {
		sum += f(v)
	}
	return sum
}

// Tally returns how often each element stands in a list.
func Tally[T comparable](of []T) map[T]int {
	out := map[T]int{}
	for _, v := range of {
		out[v]++
	}
	return out
}

// Set returns the elements as the keys of a map.
func Set[T comparable](of []T) map[T]bool {
	out := make(map[T]bool, len(of))
	for _, v := range of {
		out[v] = true
	}
	return out
}

// SetBy returns the keys of all elements.
func SetBy[T any, K comparable](of []T, key func(T) K) map[K]bool { return Set(Map(of, key)) }
