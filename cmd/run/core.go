//go:build core

package main

// annexes returns what the core has of them: nothing.
func annexes() annex { return annex{} }
