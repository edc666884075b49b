//go:build core

package runtest

// Core is set where the program is built without its annexes (scripts/core.sh): a story that wants one is skipped.
const Core = true
