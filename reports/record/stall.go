package record

import (
	"fmt"
	"time"
)

// stall says when a run makes no progress: neither a row nor a message for a while. The line goes to run.log and
// stderr, and into no metric; the next one comes after twice the time.
type stall struct {
	timer *time.Timer // nil: never
	after time.Duration
	last  string    // the row or message that was the last
	since time.Time // when it came
}

func (l *Log) watch(after time.Duration) {
	if after <= 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stall = stall{after: after, last: "the start", since: l.opt.Now()}
	wait := after
	l.stall.timer = time.AfterFunc(wait, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.stall.timer == nil { // closed meanwhile
			return
		}
		now := l.opt.Now()
		if quiet := now.Sub(l.stall.since); quiet >= l.stall.after { // else it moved while this waited for the lock
			_ = l.tell(now, "run", LevelWarning, fmt.Sprintf("warning: no progress for %v, since %s: the program is at work on one "+
				"thing, or stuck (a signal saves the state)",
				quiet.Round(time.Second), l.stall.last))
			wait *= 2
		} else {
			wait = l.stall.after
		}
		l.stall.timer.Reset(wait)
	})
}

func (l *Log) moved(now time.Time, what string) {
	if l.stall.timer != nil {
		l.stall.last, l.stall.since = what, now
		l.stall.timer.Reset(l.stall.after)
	}
}

// Moved notes progress that no row or message tells of, such as a step of a run that this one has started.
func (l *Log) Moved(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moved(l.opt.Now(), what)
}

// Unwatch ends the watch for a stall: nothing is written to run.log any more.
func (l *Log) Unwatch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stall.timer != nil {
		l.stall.timer.Stop()
		l.stall.timer = nil
	}
}
