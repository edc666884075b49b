package golden

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// WriteProgram writes a program that the test will start. A process that is forked meanwhile holds the open file until it has become
// another program, and until then the kernel starts no file that is open for writing (text file busy): the forks of other tests wait.
func WriteProgram(path string, data []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, data, 0o755)
}

// Alive reports whether a process has not ended. One whose parent has died stays a zombie where process 1 collects none, as in a container.
func Alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// Ended waits until a process has ended.
func Ended(t testing.TB, pid int) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); Alive(pid); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("process %d still runs", pid)
		}
	}
}
