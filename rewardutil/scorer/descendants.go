package scorer

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"fulcrum/internal/interrupt"
)

// markOfAll begins the variable that all programs of this process have in their environment. A process passes its environment on, so
// /proc shows what a program has started, also what has lost its parent since; a process group would show it too, but a terminal's
// signals would not reach that. What is left of them is killed when this process ends.
var markOfAll = sync.OnceValue(func() string {
	mark := fmt.Sprintf("FULCRUM_SCORER=%d.%d.", os.Getpid(), time.Now().UnixNano())
	interrupt.AtEnd(func() { killMarked(mark) })
	return mark
})

var started atomic.Int64 // programs: each has its number behind the mark

// killMarked kills the processes with a variable that begins with mark, until it finds none: one may have forked meanwhile.
func killMarked(mark string) {
	for range 100 { // what the kernel holds up does not hold up this process
		found := false
		entries, _ := os.ReadDir("/proc") // without /proc, only the program itself is killed
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil {
				continue
			}
			variables, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ")) // of another user's process nothing
			if bytes.Contains(append([]byte{0}, variables...), []byte("\x00"+mark)) {
				found = true
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
			}
		}
		if !found {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
