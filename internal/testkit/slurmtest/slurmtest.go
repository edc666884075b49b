// Package slurmtest starts a real Slurm with two nodes on this machine, for tests: its controller, its node
// daemons and munge, with their own configuration, ports and folder. Nothing of a Slurm that is installed
// here is touched, and nothing is left when the test ends, fails or is killed.
//
//	cluster := slurmtest.Start(t)        // SLURM_CONF is set until t ends
//	cluster.KillNode(); cluster.StartNode()
package slurmtest

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// RequireEnv, when set to 1, makes a test fail where it would be skipped because Slurm cannot be started.
const RequireEnv = "FULCRUM_REQUIRE_SLURM"

// Cluster is a running Slurm.
type Cluster struct {
	Dir  string // configuration, state and logs
	Conf string // slurm.conf

	t        testing.TB
	daemons  map[string]*daemon
	watchdog io.Closer
}

type daemon struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// node is the configuration of the cluster: 8 processors, whatever the machine has, and a requeued or
// ended job is looked at at once.
//
//go:embed slurm.conf
var node string

// reap kills, when its standard input ends, what belongs to the cluster: processes with its SLURM_CONF in
// their environment, and slurmstepds, which overwrite theirs, by their log file.
//
//go:embed reap.sh
var reap string

// Prefix begins the names of the tests that want a cluster: make test leaves them out, make test-slurm runs them.
const Prefix = "TestOnSlurm"

// Start starts a cluster and sets SLURM_CONF for the test and its children. Where Slurm is not installed or does not
// start the test is skipped with the reason, or fails if FULCRUM_REQUIRE_SLURM=1. The cluster ends with the test.
func Start(t testing.TB) *Cluster {
	t.Helper()
	if !strings.HasPrefix(t.Name(), Prefix) {
		t.Fatalf("%s starts a cluster: its name must begin with %s", t.Name(), Prefix)
	}
	c, err := start(t)
	if err == nil {
		return c
	}
	if os.Getenv(RequireEnv) == "1" {
		t.Fatalf("%s=1 and Slurm does not start: %v", RequireEnv, err)
	}
	t.Skipf("Slurm does not start here (scripts/setup-slurm.sh installs it): %v", err)
	return nil
}

func start(t testing.TB) (*Cluster, error) {
	for _, name := range []string{"munged", "slurmctld", "slurmd", "sbatch"} {
		if _, err := path(name); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "slurmtest-")
	if err != nil {
		return nil, err
	}
	me, err := user.Current()
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	host, _, _ = strings.Cut(host, ".")
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	key := make([]byte, 128)
	rand.Read(key)
	c := &Cluster{Dir: dir, Conf: filepath.Join(dir, "slurm.conf"), t: t, daemons: map[string]*daemon{}}
	err = errors.Join(os.Chmod(dir, 0o755), os.Mkdir(filepath.Join(dir, "state"), 0o755),
		os.MkdirAll(filepath.Join(dir, "spool", "localhost"), 0o755), os.Mkdir(filepath.Join(dir, "spool", "second"), 0o755),
		os.WriteFile(filepath.Join(dir, "munge.key"), key, 0o600),
		os.WriteFile(c.Conf, fmt.Appendf(nil, node, dir, ports[0], ports[1], me.Username, host, MaxArraySize, ports[2]), 0o644))
	if err != nil {
		return nil, err
	}
	dog := exec.Command("/bin/sh", "-c", reap, "sh", dir)
	dog.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // outlives a Ctrl-C
	if c.watchdog, err = dog.StdinPipe(); err != nil {
		return nil, err
	}
	if err := dog.Start(); err != nil {
		return nil, err
	}
	t.Setenv("SLURM_CONF", c.Conf)
	t.Cleanup(func() {
		if t.Failed() {
			for _, name := range []string{"slurmctld.log", "slurmd.log"} {
				text, _ := os.ReadFile(filepath.Join(dir, name))
				lines := strings.Split(strings.TrimSpace(string(text)), "\n")
				t.Logf("end of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-20):], "\n"))
			}
		}
		c.watchdog.Close()
		late := time.AfterFunc(limit, func() { dog.Process.Kill() })
		dog.Wait()
		if !late.Stop() {
			t.Errorf("the cluster's processes are not gone after %v", limit)
		}
	})
	if err := c.launch("munged", "--foreground", "--force", "--num-threads=2", "--key-file="+dir+"/munge.key", "--socket="+dir+"/munge.socket",
		"--pid-file="+dir+"/munged.pid", "--log-file="+dir+"/munged.log", "--seed-file="+dir+"/munged.seed"); err != nil {
		return nil, err
	}
	if err := c.until("munged", func() bool { _, err := os.Stat(dir + "/munge.socket"); return err == nil }); err != nil {
		return nil, err
	}
	if err := errors.Join(c.launch("slurmctld", "-D"), c.launch("slurmd", "-D", "-N", "localhost"),
		c.launch("second", "-D", "-N", "second")); err != nil {
		return nil, err
	}
	return c, c.until("the node", c.idle)
}

// MaxArraySize is the cluster's: array indices are below it.
const MaxArraySize = 101

// path finds a program, daemons included.
func path(name string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/sbin"} {
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("there is no %s", name)
}

func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// launch starts a daemon that dies with this process; name is its program's, or second.
func (c *Cluster) launch(name string, args ...string) error {
	bin, err := path(strings.Replace(name, "second", "slurmd", 1))
	if err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(c.Dir, name+".out"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	d := &daemon{cmd: exec.Command(bin, args...), ended: make(chan struct{})}
	d.cmd.Stdout, d.cmd.Stderr = out, out
	d.cmd.Env = append(os.Environ(), "SLURM_CONF="+c.Conf)
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the parent-death signal follows this thread
		defer runtime.UnlockOSThread()
		err := d.cmd.Start()
		started <- err
		if err == nil {
			d.cmd.Wait()
			close(d.ended)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	c.daemons[name] = d
	return nil
}

// limit is how long a daemon may take to start or end, and a command of Slurm's to answer. A busy machine is slow.
const limit = time.Minute

// until waits for ready, as long as the daemons live.
func (c *Cluster) until(what string, ready func() bool) error {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ready() {
			return nil
		}
		for name, d := range c.daemons {
			select {
			case <-d.ended:
				text, _ := os.ReadFile(filepath.Join(c.Dir, name+".out"))
				return fmt.Errorf("%s ends at once: %v: %s", name, d.cmd.ProcessState, strings.TrimSpace(string(text)))
			default:
			}
		}
	}
	return fmt.Errorf("%s does not come up in %v", what, limit)
}

func (c *Cluster) idle() bool {
	state, err := command("sinfo", "--noheader", "--format=%T", "--partition=main")
	return err == nil && (state == "idle" || state == "mixed" || state == "allocated")
}

func (c *Cluster) end(name string, signal syscall.Signal) {
	c.t.Helper()
	d := c.daemons[name]
	if d == nil {
		c.t.Fatalf("%s does not run", name)
	}
	d.cmd.Process.Signal(signal)
	select {
	case <-d.ended:
	case <-time.After(limit):
		c.t.Fatalf("%s does not end within %v of %v", name, limit, signal)
	}
	delete(c.daemons, name)
}

// KillNode kills the node's daemon. Its jobs go on.
func (c *Cluster) KillNode() { c.t.Helper(); c.end("slurmd", syscall.SIGKILL) }

// StartNode starts it again.
func (c *Cluster) StartNode() { c.t.Helper(); c.start("slurmd", "-D", "-N", "localhost") }

// StopController stops Slurm's controller: no command answers. It saves what it knows; killed, it would
// forget the jobs of the last seconds.
func (c *Cluster) StopController() { c.t.Helper(); c.end("slurmctld", syscall.SIGTERM) }

// StartController starts it again, with the jobs that it knew.
func (c *Cluster) StartController() { c.t.Helper(); c.start("slurmctld", "-D") }

func (c *Cluster) start(name string, args ...string) {
	c.t.Helper()
	if err := c.launch(name, args...); err != nil {
		c.t.Fatal(err)
	}
	if err := c.until(name, c.idle); err != nil {
		c.t.Fatal(err)
	}
}

// Run runs a command of Slurm's and returns what it prints. The test ends when it fails.
func (c *Cluster) Run(name string, args ...string) string {
	c.t.Helper()
	out, err := command(name, args...)
	if err != nil {
		c.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// command runs a command of Slurm's that must end within limit and returns what it prints.
func command(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("no answer in %v", limit))
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return strings.TrimSpace(string(out)), err
}

// Release lets a job start without Slurm's wait of two minutes after a requeue. It may not wait yet; sooner than after a second its node
// would take it for the one that was stopped.
func (c *Cluster) Release(job string) {
	c.t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		state := c.Run("squeue", "--noheader", "--array", "--format=%T", "--jobs="+job)
		if state == "PENDING" {
			if out, err := command("scontrol", "update", "jobid="+job, "StartTime=now+2"); err == nil {
				return
			} else if time.Now().After(end) {
				c.t.Fatalf("scontrol update %s: %s", job, out)
			}
		}
		if time.Now().After(end) {
			c.t.Fatalf("job %s does not wait in the queue but is %q", job, state)
		}
	}
}
