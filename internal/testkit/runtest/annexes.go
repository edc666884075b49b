//go:build !core

package runtest

// Core is not set: the program has its annexes.
const Core = false
