package record

import (
	"time"

	"golang.org/x/sys/unix"
)

// steadyClock returns a clock that goes on from the machine's time of now whatever that is set to later: rows of one process never go
// back, and never leap by years. It counts on while the machine sleeps.
func steadyClock() func() time.Time {
	begin, at := time.Now(), sinceBoot()
	return func() time.Time { return begin.Add(sinceBoot() - at) }
}

// sinceBoot is how long the machine has been up, asleep or not.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return time.Since(time.Time{})
	}
	return time.Duration(ts.Nano())
}
