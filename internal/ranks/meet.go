package ranks

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"fulcrum/internal/stdout"
)

// hello is what a process says first on each of its two connections.
type hello struct {
	Secret     string
	Rank, Size int
	Host       string
	Control    bool
	Failed     string // why it does not take part
}

// welcome is the answer, once all processes are there.
type welcome struct {
	Refused string
	Hosts   []string
	Timeout time.Duration
}

// meeting is how long processes wait for each other: the nodes of a queue do not start at once.
const meeting = 5 * time.Minute

// patient is how long a process waits for others in silence.
const patient = 10 * time.Second

// telling is how long a process that has failed looks for the others.
const telling = 20 * time.Second

// sought says that this process has looked for the others.
var sought atomic.Bool

// Tell tells the other processes of a run, which torchrun or srun has started, why this one has failed before it met them.
func Tell(err error) {
	p, _ := Here()
	if err == nil || p == nil || sought.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), telling)
	defer cancel()
	p.failed = (&Error{p.Rank, hostname(), err.Error()}).Error()
	_, _ = Meet(ctx, p, telling)
}

// Meet joins the processes of a run. Rank 0's timeout is that of all: so long may a process be silent.
func Meet(ctx context.Context, p *Place, timeout time.Duration) (*Group, error) {
	ctx, cancel := context.WithTimeout(ctx, meeting)
	defer cancel()
	sought.Store(true)
	if p.Rank > 0 {
		return join(ctx, p)
	}
	address := p.Address
	if p.Store {
		address = ":0"
	} else if _, port, err := net.SplitHostPort(address); err == nil {
		address = ":" + port
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("rank 0 cannot listen for the other processes (%s): %w", p.By, err)
	}
	if p.Store {
		machine, _, _ := net.SplitHostPort(p.Address) // torchrun's MASTER_ADDR is the machine of rank 0
		port := listener.Addr().(*net.TCPAddr).Port
		if err := tellStore(ctx, p, net.JoinHostPort(machine, fmt.Sprint(port))); err != nil {
			listener.Close()
			return nil, err
		}
	}
	return host(ctx, listener, p, timeout, nil, nil)
}

// guest is a process of which one connection is there.
type guest struct {
	hello
	conn net.Conn
	in   *bufio.Reader
}

// host is rank 0's side: it waits for both connections of every other process. early ends it when a process that this one has started
// ends before it comes, and exited says how one has ended; nil: none was.
func host(ctx context.Context, listener net.Listener, p *Place, timeout time.Duration, early <-chan *Error, exited func(rank int) string) (
	*Group, error) {
	defer listener.Close()
	guests, done := make(chan guest), make(chan struct{})
	defer close(done)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go greet(conn, guests, done)
		}
	}()
	g := &Group{hosts: make([]string, p.Size), timeout: timeout, links: make([]*link, p.Size),
		ended: make(chan struct{}), exited: exited}
	g.hosts[0] = hostname()
	var data, control [][]guest = make([][]guest, p.Size), make([][]guest, p.Size)
	wrong := p.failed
	missing, slow := 2*(p.Size-1), time.After(patient)
	for missing > 0 && wrong == "" {
		select {
		case of := <-guests:
			to := data
			if of.Control {
				to = control
			}
			switch {
			case of.Secret != p.Secret:
				of.conn.Close() // of another run, or no process of ours
				continue
			case of.Failed != "":
				wrong = of.Failed
			case of.Size != p.Size || of.Rank < 1 || of.Rank >= p.Size:
				wrong = fmt.Sprintf("rank %d on %s is one of %d processes, and rank 0 one of %d", of.Rank, of.Host, of.Size, p.Size)
			case len(to[of.Rank]) > 0:
				wrong = fmt.Sprintf("two processes say that they are rank %d, on %s and %s", of.Rank, to[of.Rank][0].Host, of.Host)
			}
			if of.Rank >= 1 && of.Rank < p.Size {
				to[of.Rank] = append(to[of.Rank], of)
				g.hosts[of.Rank] = of.Host
			}
			missing--
		case <-slow:
			stdout.Message(stdout.Errors(), fmt.Sprintf("waiting for %s of %d (%s), at most %v", absent(control), p.Size, p.By, meeting))
		case e := <-early:
			wrong = e.Error()
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				refuse("rank 0 was asked to stop", slices.Concat(slices.Concat(data, control)...)...)
				return nil, context.Cause(ctx)
			}
			wrong, missing = fmt.Sprintf("%s of %d did not come within %v", absent(control), p.Size, meeting), 0
		}
	}
	if wrong != "" {
		refuse(wrong, slices.Concat(slices.Concat(data, control)...)...)
		if early == nil {
			refuseLate(ctx, wrong, guests, missing)
		}
		return nil, errors.New(wrong)
	}
	for rank := 1; rank < p.Size; rank++ {
		d, c := data[rank][0], control[rank][0]
		g.links[rank] = newLink(rank, d.conn, c.conn, d.in, c.in)
		for _, to := range []*bufio.Writer{g.links[rank].out, g.links[rank].says} {
			if err := sendValue(to, welcome{Hosts: g.hosts, Timeout: timeout}); err == nil {
				to.Flush() // who has gone is noticed by the heartbeat
			}
		}
	}
	g.watch()
	return g, nil
}

// refuse tells processes why there is no run.
func refuse(why string, guests ...guest) {
	for _, of := range guests {
		of.conn.SetWriteDeadline(time.Now().Add(time.Second))
		w := bufio.NewWriter(of.conn)
		_ = sendValue(w, welcome{Refused: why})
		w.Flush()
		of.conn.Close()
	}
}

// refuseLate refuses as many connections that come yet, for a while.
func refuseLate(ctx context.Context, why string, guests <-chan guest, missing int) {
	ctx, cancel := context.WithTimeout(ctx, telling)
	defer cancel()
	for range missing {
		select {
		case of := <-guests:
			refuse(why, of)
		case <-ctx.Done():
			return
		}
	}
}

// absent names the ranks that have not come.
func absent(come [][]guest) string {
	var missing []string
	for rank := 1; rank < len(come); rank++ {
		if len(come[rank]) == 0 {
			missing = append(missing, fmt.Sprint(rank))
		}
	}
	return "rank " + strings.Join(missing, ", ")
}

// greet reads a connection's hello.
func greet(conn net.Conn, guests chan<- guest, done <-chan struct{}) {
	of := guest{conn: conn, in: bufio.NewReaderSize(conn, 1<<16)}
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if receiveValue(of.in, &of.hello) != nil {
		conn.Close()
		return
	}
	conn.SetReadDeadline(time.Time{})
	select {
	case guests <- of:
	case <-done:
		conn.Close()
	}
}

// join is any other rank's side.
func join(ctx context.Context, p *Place) (*Group, error) {
	address := p.Address
	if p.Store {
		var err error
		if address, err = askStore(ctx, p); err != nil {
			return nil, err
		}
	}
	var conns [2]net.Conn
	var in [2]*bufio.Reader
	for i := range conns {
		conn, err := dial(ctx, p, address)
		if err != nil {
			return nil, fmt.Errorf("rank %d cannot reach rank 0 at %s (%s): %w", p.Rank, address, p.By, err)
		}
		w := bufio.NewWriter(conn)
		me := hello{Secret: p.Secret, Rank: p.Rank, Size: p.Size, Host: hostname(), Control: i == 1, Failed: p.failed}
		if err := sendValue(w, me); err != nil {
			return nil, err
		}
		if err := w.Flush(); err != nil {
			return nil, err
		}
		conns[i], in[i] = conn, bufio.NewReaderSize(conn, 1<<16)
	}
	var w welcome
	for i := range conns {
		if at, ok := ctx.Deadline(); ok {
			conns[i].SetReadDeadline(at)
		}
		if err := receiveValue(in[i], &w); err != nil {
			return nil, fmt.Errorf("rank %d: rank 0 at %s ended before all processes were there: %w", p.Rank, address, err)
		}
		if w.Refused != "" {
			return nil, errors.New(w.Refused)
		}
		conns[i].SetReadDeadline(time.Time{})
	}
	g := &Group{rank: p.Rank, hosts: w.Hosts, timeout: w.Timeout, ended: make(chan struct{}),
		links: []*link{newLink(0, conns[0], conns[1], in[0], in[1])}}
	g.watch()
	return g, nil
}

// dial tries until rank 0 listens.
func dial(ctx context.Context, p *Place, address string) (net.Conn, error) {
	late := time.AfterFunc(patient, func() {
		stdout.Message(stdout.Errors(), fmt.Sprintf("rank %d waits for rank 0 at %s (%s), at most %v", p.Rank, address, p.By, meeting))
	})
	defer late.Stop()
	for {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", address)
		if err == nil || ctx.Err() != nil {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func hostname() string { name, _ := os.Hostname(); return name }
