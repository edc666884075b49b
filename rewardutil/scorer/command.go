package scorer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"fulcrum/internal/secret"
	"fulcrum/internal/webapi"
)

// commandTransport runs a program: once for each batch, or kept between batches.
type commandTransport struct {
	argv []string
	keep bool
	idle chan *child // kept processes that wait for a batch
}

func (t *commandTransport) Name() string { return secret.Arguments(t.argv) }

// Close ends the kept processes by closing their input, then by force.
func (t *commandTransport) Close() error {
	for {
		select {
		case c := <-t.idle:
			c.kill()
		default:
			return nil
		}
	}
}

// score sends a batch to an idle process or a new one. A process that failed is not used again.
func (t *commandTransport) Ask(ctx context.Context, items [][]byte) ([]float64, error) {
	var c *child
	select {
	case c = <-t.idle:
	default:
		var err error
		if c, err = startChild(t.argv); err != nil {
			return nil, webapi.Permanent{Err: err}
		}
	}
	stop := context.AfterFunc(ctx, c.kill)
	defer stop()
	var scores []float64
	err := c.quiet()
	if err == nil {
		scores, err = c.Score(items, !t.keep)
	}
	if err != nil {
		c.kill()
		return nil, c.explain(ctx, err, t.keep)
	}
	if !t.keep {
		select {
		case <-c.ended: // it may have something to put away, and something to leave behind
			c.close()
		case <-ctx.Done():
			c.kill()
		}
		if ctx.Err() != nil { // else every batch would take as long
			err := errors.New("all scores are there, but the command, or what it started, goes on: keep=true keeps it for all batches")
			return nil, webapi.Permanent{Err: err}
		}
		return scores, nil
	}
	if !stop() { // killed meanwhile
		return scores, nil
	}
	select {
	case t.idle <- c:
	default:
		c.kill()
	}
	return scores, nil
}

type child struct {
	cmd    *exec.Cmd
	mark   string // of the processes that it has started
	in     io.WriteCloser
	pipe   *os.File
	out    *bufio.Reader // of pipe
	stderr *lastBytes
	ended  chan struct{} // closed when the process is gone and stderr is complete
}

// startChild starts the program. It dies with this process: the kernel's parent-death signal follows the thread
// that started it, so that thread is held until the child has ended.
func startChild(argv []string) (*child, error) {
	c := &child{cmd: exec.Command(argv[0], argv[1:]...), stderr: &lastBytes{}, ended: make(chan struct{}),
		mark: fmt.Sprintf("%s%d.", markOfAll(), started.Add(1))}
	c.cmd.Env = append(os.Environ(), c.mark)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.cmd.Stderr = c.stderr
	c.cmd.WaitDelay = time.Second // a grandchild may hold stderr open
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	ours, theirs, err := os.Pipe() // of our own: exec's would be closed before all of it is read
	if err != nil {
		return nil, err
	}
	c.cmd.Stdout, c.pipe, c.out = theirs, ours, bufio.NewReaderSize(ours, 1<<20)
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.cmd.Wait() // what it printed counts, not how it ended
			close(c.ended)
		}
	}()
	err = <-started
	theirs.Close()
	if err != nil {
		ours.Close()
		return nil, err
	}
	return c, nil
}

// kill ends the process and all that it has started, and reads and writes under way with it.
func (c *child) kill() {
	c.cmd.Process.Kill()
	killMarked(c.mark)
	c.close()
}

func (c *child) close() {
	c.in.Close()
	c.pipe.Close()
}

// quiet reports output before an item is sent: the following scores would belong to other items.
func (c *child) quiet() error {
	c.pipe.SetReadDeadline(time.Now())
	extra, _ := c.out.Peek(1)
	c.pipe.SetReadDeadline(time.Time{})
	if len(extra) > 0 {
		extra, _ = c.out.Peek(c.out.Buffered()) // the line may never end
		return webapi.Permanent{Err: fmt.Errorf("more scores than items: then came %q", webapi.Clip(string(extra)))}
	}
	return nil
}

// Score writes the items and reads a line for each. last closes the input after them: a program may read all of
// it before it answers.
func (c *child) Score(items [][]byte, last bool) ([]float64, error) {
	written := make(chan error, 1)
	go func() {
		_, err := c.in.Write(append(bytes.Join(items, []byte("\n")), '\n'))
		if last {
			err = errors.Join(err, c.in.Close())
		}
		written <- err
	}()
	out := make([]float64, 0, len(items))
	for len(out) < len(items) {
		text, err := c.out.ReadSlice('\n') // a line longer than the buffer is no score
		if line := strings.TrimSpace(string(text)); line != "" {
			v, bad := parseScoreLine(line)
			if bad != nil {
				return nil, webapi.Permanent{Err: bad}
			}
			out = append(out, v)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("the command ended after %d of %d scores", len(out), len(items))
		}
	}
	if !last {
		return out, errors.Join(<-written, c.quiet())
	}
	if rest, err := io.ReadAll(io.LimitReader(c.out, 1<<16)); err == nil && len(bytes.TrimSpace(rest)) > 0 {
		return nil, webapi.Permanent{Err: fmt.Errorf("more scores than items: then came %q", webapi.Clip(string(rest)))}
	}
	return out, nil
}

// parseScoreLine reads a number or {"score": number}.
func parseScoreLine(line string) (float64, error) {
	var v *float64
	if json.Unmarshal([]byte(line), &v) == nil && v != nil {
		return *v, nil
	}
	var object struct {
		Score *float64 `json:"score"`
	}
	if json.Unmarshal([]byte(line), &object) == nil && object.Score != nil {
		return *object.Score, nil
	}
	return 0, fmt.Errorf(`line %q: want a number or {"score": number} (messages belong on stderr)`, webapi.Clip(line))
}

// explain adds the command's stderr and a likely cause.
func (c *child) explain(ctx context.Context, err error, keep bool) error {
	<-c.ended // it was killed
	if c.signalled() {
		select { // a terminal sends its signal to all: this process is about to hear of it
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	if ctx.Err() != nil && keep {
		err = fmt.Errorf("%w (with keep=true the command must flush after every line)", err)
	}
	if said := webapi.Clip(c.stderr.String()); said != "" {
		err = fmt.Errorf("%w; stderr: %s", err, said)
	}
	return err
}

// signalled reports whether the process ended by a signal that a terminal or a queue sends, or as shells and Python do then.
func (c *child) signalled() bool {
	status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok {
		return false
	}
	sent := syscall.Signal(status.ExitStatus() - 128)
	if status.Signaled() {
		sent = status.Signal()
	}
	return sent == syscall.SIGINT || sent == syscall.SIGTERM || sent == syscall.SIGHUP
}

type lastBytes struct {
	mu  sync.Mutex
	buf []byte
}

func (l *lastBytes) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, p...)
	if over := len(l.buf) - 4096; over > 0 {
		l.buf = append(l.buf[:0], l.buf[over:]...)
	}
	return len(p), nil
}

func (l *lastBytes) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf)
}
