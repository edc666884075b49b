// Package list makes a list of another one.
package list

// Map returns what f makes of every element, in their order.
func Map[T, U any](of []T, f func(T) U) []U {
	out := make([]U, len(of))
	for i, v := range of {
		out[i] = f(v)
	}
	return out
}
