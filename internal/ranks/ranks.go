// Package ranks joins the processes of one run: they meet, exchange messages in one order, hear each other's heartbeat, and end together.
//
// Rank 0 listens; every other process keeps two connections to it, one for messages and one for the heartbeat. A nil *Group is a run of one
// process: every exchange returns what was given.
package ranks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
)

// Exchange gives every process the messages of all, by rank. Every process calls it, in one order and with the same name; where names
// differ, or a process gives an error, all get one that names the rank.
func (g *Group) Exchange(name string, message []byte, failed error) ([][]byte, error) {
	if g == nil {
		return [][]byte{message}, failed
	}
	return g.round(name, message, failed, true)
}

// Collect gives rank 0 the messages of all, by rank, and other processes nothing.
func (g *Group) Collect(name string, message []byte) ([][]byte, error) {
	all, err := g.round(name, message, nil, false)
	if g.rank > 0 {
		all = nil
	}
	return all, err
}

// Do makes an exchange that is none of messages in its place among those that are. Where it fails because another process has, the error
// names that.
func (g *Group) Do(name string, exchange func() error) error {
	g.turn.Lock()
	defer g.turn.Unlock()
	g.next(name, nil, nil)
	defer g.doing.Store(nil)
	err := exchange()
	if err == nil {
		return g.Why(nil)
	}
	select {
	case <-g.ended:
	case <-time.After(patience): // no other process has ended: it is this one's
		g.fail(&Error{g.rank, g.hosts[g.rank], fmt.Sprintf("%s: %v", name, err)})
	}
	return g.Why(err)
}

// round exchanges messages, which rank 0 spreads or keeps.
func (g *Group) round(name string, message []byte, failed error, spread bool) ([][]byte, error) {
	g.turn.Lock()
	defer g.turn.Unlock()
	mine := g.next(name, message, failed)
	defer g.doing.Store(nil)
	var all []frame
	var err error
	if g.rank == 0 {
		all, err = g.lead(mine, spread)
	} else {
		all, err = g.follow(mine)
	}
	if err != nil {
		return nil, errors.Join(failed, err)
	}
	return bodies(g, all, failed)
}

// next begins an exchange.
func (g *Group) next(name string, message []byte, failed error) frame {
	g.seq++
	f := frame{Name: name, Seq: g.seq, Body: message}
	if failed != nil {
		f.Failed, f.Stopped, f.Body = failed.Error(), errors.Is(failed, context.Canceled), nil
	}
	g.doing.Store(new(beat{Doing: f.Name, Seq: f.Seq}))
	return f
}

// bodies returns the messages, or the error of the first process that has failed; failed is this one's.
func bodies(g *Group, all []frame, failed error) ([][]byte, error) {
	out := make([][]byte, len(all))
	var stopped error
	for rank, f := range all {
		switch out[rank] = f.Body; {
		case f.Failed == "" || rank == g.rank:
		case f.Stopped:
			stopped = &StoppedError{Rank: rank, Host: g.hosts[rank]}
		case failed == nil || errors.Is(failed, context.Canceled):
			failed = &Error{Rank: rank, Host: g.hosts[rank], Cause: f.Failed}
		}
	}
	if failed == nil {
		failed = stopped
	}
	return out, failed
}

// Gather gives every process the values of all, by rank. A value is encoded by encoding/gob: only exported fields travel.
func Gather[T any](g *Group, name string, value T, failed error) ([]T, error) {
	if g == nil {
		return []T{value}, failed
	}
	var message bytes.Buffer
	if failed == nil {
		if err := gob.NewEncoder(&message).Encode(&value); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	all, err := g.Exchange(name, message.Bytes(), failed)
	if err != nil {
		return nil, err
	}
	out := make([]T, len(all))
	for rank, text := range all {
		if out[rank] = value; rank == g.rank {
			continue // no copy of one's own
		}
		var theirs T
		if err := gob.NewDecoder(bytes.NewReader(text)).Decode(&theirs); err != nil {
			return nil, &Error{Rank: rank, Host: g.hosts[rank], Cause: fmt.Sprintf("its %s cannot be read: %v", name, err)}
		}
		out[rank] = theirs
	}
	return out, nil
}

// Share gives every process rank 0's value.
func Share[T any](g *Group, name string, value T, failed error) (T, error) {
	if g != nil && g.rank > 0 {
		var none T
		value = none
	}
	all, err := Gather(g, name, value, failed)
	if err != nil {
		var none T
		return none, err
	}
	return all[0], nil
}

// Rank is this process's number, from 0.
func (g *Group) Rank() int {
	if g == nil {
		return 0
	}
	return g.rank
}

// Size is the number of processes.
func (g *Group) Size() int {
	if g == nil {
		return 1
	}
	return len(g.hosts)
}

// Ended is closed when the run is over for this process, or another has failed.
func (g *Group) Ended() <-chan struct{} { return g.ended }

// Why returns why the group has ended, or err where it goes on.
func (g *Group) Why(err error) error {
	select {
	case <-g.ended:
		return cmp.Or(g.cause, err)
	default:
		return err
	}
}

// First reports whether this process is rank 0, which alone writes.
func (g *Group) First() bool { return g.Rank() == 0 }

// Addresses are those at which processes reach each other, by rank: where one has reached rank 0 on its own machine, that of rank 0.
func (g *Group) Addresses() ([]string, error) {
	var own net.IP
	for _, l := range g.links {
		if l != nil && (own == nil || own.IsLoopback()) {
			own = l.data.LocalAddr().(*net.TCPAddr).IP
		}
	}
	all, err := Gather(g, "the addresses of processes", own.String(), nil)
	for rank, of := range all {
		if net.ParseIP(of).IsLoopback() {
			all[rank] = all[0]
		}
	}
	return all, err
}

// Hosts are the names of the machines, by rank.
func (g *Group) Hosts() []string {
	if g == nil {
		return nil
	}
	return slices.Clone(g.hosts)
}

// Part returns the share [from, to) that a rank of size processes has of n pieces: every process has as many, or one more.
func Part(n, rank, size int) (from, to int) { return rank * n / size, (rank + 1) * n / size }

// Error says which process failed, where, and why.
type Error struct {
	Rank  int
	Host  string
	Cause string
}

func (e *Error) Error() string { return fmt.Sprintf("rank %d on %s: %s", e.Rank, e.Host, e.Cause) }

// StoppedError says that another process was asked to stop. It unwraps to context.Canceled.
type StoppedError struct {
	Rank int
	Host string
}

func (e *StoppedError) Error() string {
	return fmt.Sprintf("rank %d on %s was asked to stop", e.Rank, e.Host)
}
func (e *StoppedError) Unwrap() error { return context.Canceled }

// ExitCode is that of SIGTERM, by which queues ask processes to stop.
func (e *StoppedError) ExitCode() int { return 143 }
