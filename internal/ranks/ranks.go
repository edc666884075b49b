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
	"slices"
)

// Exchange gives every process the messages of all, by rank. Every process calls it, in one order and with the same name; where names
// differ, or a process gives an error, all get one that names the rank.
func (g *Group) Exchange(name string, message []byte, failed error) ([][]byte, error) {
	if g == nil {
		return [][]byte{message}, failed
	}
	return g.round(name, message, failed, nil)
}

// Combine gives each process n times what rank 0 makes for it of the messages of all, both by rank. While one is answered the next is on
// its way: a message stays as it is until the one after next is asked for, an answer until the next.
func (g *Group) Combine(name string, n int, message func(i int) []byte, of func(i int, all [][]byte) [][]byte,
	take func(i int, made []byte)) error {
	if g.rank == 0 {
		for i := range n {
			made, err := g.round(name, message(i), nil, func(all [][]byte) [][]byte { return of(i, all) })
			if err != nil {
				return err
			}
			take(i, made[0])
		}
		return nil
	}
	g.turn.Lock()
	defer g.turn.Unlock()
	defer g.doing.Store(nil)
	frames, over := make(chan frame), make(chan struct{})
	go func() {
		defer close(over)
		for f := range frames {
			if err := send(g.links[0].out, f); err != nil {
				g.lost(g.links[0], err) // which ends the wait for an answer
			}
		}
	}()
	defer func() {
		close(frames)
		<-over
	}()
	for i := range n + 1 {
		if i < n {
			frames <- g.next(name, message(i), nil)
		}
		if i == 0 {
			continue
		}
		all, err := g.answer(nil, g.memory)
		if err != nil {
			return err
		}
		made, err := bodies(g, all, nil)
		if err != nil {
			return err
		}
		take(i-1, made[0])
	}
	return nil
}

// round exchanges messages. With of, rank 0, which asks for it, makes one for each process of all, which that gets as rank 0's.
func (g *Group) round(name string, message []byte, failed error, of func([][]byte) [][]byte) ([][]byte, error) {
	g.turn.Lock()
	defer g.turn.Unlock()
	mine := g.next(name, message, failed)
	defer g.doing.Store(nil)
	memory := g.memory
	if of == nil {
		memory = make([][]byte, len(g.hosts))
	}
	var all []frame
	var err error
	if g.rank == 0 {
		all, err = g.lead(mine, of, memory)
	} else {
		all, err = g.follow(mine, memory)
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
	g.doing.Store(new(f.what()))
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
