package ranks

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Group is the processes of a run that have met. nil: there is one.
type Group struct {
	rank    int
	hosts   []string
	timeout time.Duration // of a process's silence
	links   []*link       // of rank 0: to each rank, nil to itself; of another: to rank 0

	turn  sync.Mutex           // exchanges come one after the other
	seq   uint64               // exchanges begun
	doing atomic.Pointer[beat] // the exchange that this process is in; nil: none

	left   atomic.Bool           // this process waits for the end of rank 0
	exited func(rank int) string // how a process that this one has started has ended; nil: it has started none
	ended  chan struct{}         // closed at the end
	once   sync.Once
	cause  error // why the group has ended; nil: the run is over
}

// link is the two connections to another process.
type link struct {
	rank    int
	data    net.Conn
	in      *bufio.Reader
	out     *bufio.Writer
	control net.Conn
	hears   *bufio.Reader
	says    *bufio.Writer
	saying  sync.Mutex
	last    atomic.Pointer[beat]
	over    chan struct{} // closed when the other process is heard no more
}

func newLink(rank int, data, control net.Conn, in, hears *bufio.Reader) *link {
	return &link{rank: rank, data: data, in: in, out: bufio.NewWriterSize(data, 1<<16), control: control, hears: hears,
		says: bufio.NewWriter(control), over: make(chan struct{})}
}

func what(name string, seq uint64) string { return fmt.Sprintf("%s (exchange %d)", name, seq) }

// lead is rank 0's share of an exchange, whose messages it spreads or keeps.
func (g *Group) lead(mine frame, spread bool) ([]frame, error) {
	all := []frame{mine}
	for _, l := range g.links[1:] {
		f, err := receive(l.in)
		if err != nil {
			return nil, g.lost(l, err)
		}
		if f.Name != mine.Name || f.Seq != mine.Seq {
			return nil, g.fail(&Error{l.rank, g.hosts[l.rank], fmt.Sprintf("it is in %s, and rank 0 in %s", what(f.Name, f.Seq),
				what(mine.Name, mine.Seq))})
		}
		all = append(all, f)
	}
	for _, l := range g.links[1:] {
		reply := slices.Clone(all)
		for rank := range reply {
			if rank == l.rank || !spread {
				reply[rank].Body = nil // it has it, or does not want it
			}
		}
		if err := send(l.out, reply...); err != nil {
			return nil, g.lost(l, err)
		}
	}
	return all, nil
}

// follow is the share of any other rank.
func (g *Group) follow(mine frame) ([]frame, error) {
	if err := send(g.links[0].out, mine); err != nil {
		return nil, g.lost(g.links[0], err)
	}
	all := make([]frame, len(g.hosts))
	for rank := range all {
		var err error
		if all[rank], err = receive(g.links[0].in); err != nil {
			return nil, g.lost(g.links[0], err)
		}
	}
	all[g.rank].Body = mine.Body
	return all, nil
}

// patience is how long the reason of a broken connection may take to arrive: the heartbeat's connection says it.
const patience = 5 * time.Second

// lost returns why the connection to a process broke.
func (g *Group) lost(l *link, err error) error {
	why := fmt.Sprintf("the connection broke: %v", err)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if b := l.last.Load(); b != nil && b.Done {
			why = "it has ended its run, and this process goes on"
			break
		}
		select {
		case <-g.ended:
			return g.cause
		default:
		}
	}
	return g.fail(&Error{l.rank, g.hosts[l.rank], why})
}
