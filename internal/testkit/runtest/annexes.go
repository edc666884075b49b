//go:build !core

package runtest

const core = false
