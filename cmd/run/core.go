//go:build core

package main

// annexes returns none: this build is the core.
func annexes() annex { return annex{} }
