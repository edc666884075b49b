package ranks

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"
)

// beat is a heartbeat. It says where a process is, not how long a step may take: a process that is heard is healthy.
type beat struct {
	Doing  string // the exchange that it is in; "": it computes
	Seq    uint64 // its number
	Done   bool   // the run is over for it
	Failed *Error // it, or a process that it knows of, has failed
}

// beats is the number of heartbeats in a timeout.
const beats = 30

// watch starts the heartbeat.
func (g *Group) watch() {
	for _, l := range g.links {
		if l != nil {
			go g.listen(l)
		}
	}
	go func() {
		every := time.NewTicker(g.timeout / beats)
		defer every.Stop()
		for {
			select {
			case <-g.ended:
				return
			case <-every.C:
				if g.left.Load() {
					continue // rank 0 listens no more
				}
				var b beat
				if doing := g.doing.Load(); doing != nil {
					b = *doing
				}
				g.tell(b)
			}
		}
	}()
}

// tell says b to every process that this one is connected to. Who cannot be told is noticed by listen.
func (g *Group) tell(b beat) {
	for _, l := range g.links {
		if l == nil {
			continue
		}
		l.saying.Lock()
		l.control.SetWriteDeadline(time.Now().Add(g.timeout)) // what is late is sent, for a frame cut short would end the link
		if sendValue(l.says, b) == nil {
			l.says.Flush()
		}
		l.saying.Unlock()
	}
}

// listen hears a process until it is done, fails, or is silent for too long.
func (g *Group) listen(l *link) {
	defer close(l.over)
	for {
		var b beat
		err := l.hear(g.timeout)
		if err == nil {
			err = receiveValue(l.hears, &b)
		}
		if err != nil {
			g.fail(g.silent(l, err))
			return
		}
		if l.last.Store(&b); b.Failed != nil {
			g.fail(b.Failed)
			return
		}
		if b.Done {
			return
		}
		if mine := g.doing.Load(); mine != nil && b.Doing != "" && b.Seq == mine.Seq && b.Doing != mine.Doing {
			g.fail(&Error{l.rank, g.hosts[l.rank], fmt.Sprintf("it is in %s, and rank %d in %s", what(b.Doing, b.Seq), g.rank,
				what(mine.Doing, mine.Seq))})
		}
	}
}

// hear waits for the next heartbeat. Where the machine stood still the deadline passes while heartbeats lie in the socket, or while the
// other process stood still too: this one looks again before it calls it dead.
func (l *link) hear(timeout time.Duration) (err error) {
	for _, wait := range []time.Duration{timeout, timeout/10 + 100*time.Millisecond} {
		l.control.SetReadDeadline(time.Now().Add(wait))
		if _, err = l.hears.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	l.control.SetReadDeadline(time.Now().Add(timeout))
	return err
}

// silent says what is known of a process that is not heard any more.
func (g *Group) silent(l *link, err error) *Error {
	where := "before its first heartbeat"
	if b := l.last.Load(); b != nil {
		where = "last heard while it computed"
		if b.Doing != "" {
			where = "last heard in " + what(b.Doing, b.Seq)
		}
	}
	what := "it ended without a word"
	if errors.Is(err, os.ErrDeadlineExceeded) {
		what = fmt.Sprintf("nothing was heard of it for %v (parallel.timeout_seconds): it hangs, is stopped, or its network is down", g.timeout)
	} else if g.exited != nil {
		what = cmp.Or(g.exited(l.rank), what)
	}
	return &Error{l.rank, g.hosts[l.rank], what + ", " + where}
}

// fail ends the group: every process gets the cause.
func (g *Group) fail(cause *Error) error {
	g.end(beat{Failed: cause}, cause)
	if <-g.ended; g.cause == nil {
		return cause
	}
	return g.cause
}

// end tells the others why this process ends, and closes the connections.
func (g *Group) end(last beat, cause *Error) {
	g.once.Do(func() {
		if cause != nil {
			g.cause = cause
		}
		g.tell(last)
		close(g.ended)
		for _, l := range g.links {
			if l != nil {
				l.data.Close()
				l.control.Close()
			}
		}
	})
}

// Close ends this process's part in the run; err is what it has failed with, which every other process is told. Rank 0 ends first.
func (g *Group) Close(err error) {
	if g == nil {
		return
	}
	if err == nil {
		if g.rank > 0 { // rank 0 may have to save and report: srun and torchrun end all where one process ends by a signal before it
			g.left.Store(true)
			g.tell(beat{Done: true})
			g.links[0].data.Close()
			<-g.links[0].over
		}
		g.end(beat{Done: true}, nil)
		return
	}
	cause, ok := errors.AsType[*Error](err)
	if !ok {
		cause = &Error{g.rank, g.hosts[g.rank], err.Error()}
	}
	g.end(beat{Failed: cause}, cause)
}
