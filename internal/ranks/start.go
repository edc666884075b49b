package ranks

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Started are the processes that this one has started; this one is rank 0.
type Started struct{ all []*process }

type process struct {
	cmd   *exec.Cmd
	said  tail
	ended chan struct{}
	how   string // how it has ended, once it has
}

// Start starts the other processes of a run of size on this machine, with the same command, and meets them. They end when this one does.
func Start(ctx context.Context, size int, timeout time.Duration) (*Group, *Started, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	p := &Place{Size: size, By: "run", Secret: rand.Text()}
	s, early := &Started{}, make(chan *Error, size)
	for rank := 1; rank < size; rank++ {
		of := &process{cmd: exec.Command(program, os.Args[1:]...), ended: make(chan struct{})}
		of.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", rankVariable, rank), fmt.Sprintf("%s=%d", sizeVariable, size),
			addressVariable+"="+listener.Addr().String(), secretVariable+"="+p.Secret)
		of.cmd.Stderr = &of.said
		of.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a key that is pressed reaches rank 0, which tells the others
		if err := of.cmd.Start(); err != nil {
			s.End(0)
			listener.Close()
			return nil, nil, fmt.Errorf("rank %d: %w", rank, err)
		}
		s.all = append(s.all, of)
		go func() {
			of.how = ending(of.cmd.Wait(), of.said.String())
			close(of.ended)
			early <- &Error{Rank: rank, Host: hostname(), Cause: of.how}
		}()
	}
	wait, cancel := context.WithTimeout(ctx, meeting)
	defer cancel()
	g, err := host(wait, listener, p, timeout, early, func(rank int) string { return s.all[rank-1].ending(time.Second) })
	if err != nil {
		s.End(0)
		return nil, nil, err
	}
	return g, s, nil
}

// ending says how a process has ended and what it said last.
func ending(err error, said string) string {
	how := "it ended"
	if err != nil {
		how = "it ended with " + err.Error() // "exit status 1", "signal: killed"
	}
	if said = strings.TrimSpace(said); said != "" {
		how += ": " + said
	}
	return how
}

// ending waits for the end of a process for a while; "": it lives.
func (p *process) ending(wait time.Duration) string {
	select {
	case <-p.ended:
		return p.how
	case <-time.After(wait):
		return ""
	}
}

// End waits for the processes, and kills those that live on.
func (s *Started) End(wait time.Duration) {
	if s == nil {
		return
	}
	deadline := time.Now().Add(wait)
	for _, p := range s.all {
		if p.ending(max(0, time.Until(deadline))) == "" {
			p.cmd.Process.Kill() // a stopped one, too
			<-p.ended
		}
	}
}

// tail keeps the last of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// longestTail is enough for an error and its hints.
const longestTail = 4000

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-longestTail):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
