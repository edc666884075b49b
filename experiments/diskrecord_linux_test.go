package experiments_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// diskOp is one system call that changed something below a folder, or made it durable.
type diskOp struct {
	call     int    // unix.SYS_…
	path, to string // below the folder; to: the new name of a rename or link, or what a symbolic link says
	data     []byte // of a write
	at       int64  // offset of a write, or a new size
	folder   bool   // of unlinkat: rmdir
}

// recordDisk runs the program below a tracer and returns its changes below root in order. It sees all system calls of all
// threads, whoever makes them; one that it does not know and that changes a file fails the test when its result is
// compared with the folder.
func recordDisk(t *testing.T, root string, args ...string) []diskOp {
	t.Helper()
	type outcome struct {
		ops  []diskOp
		said string
		err  error
	}
	done := make(chan outcome)
	go func() {
		runtime.LockOSThread() // all requests come from the thread that is the tracer
		defer runtime.UnlockOSThread()
		var said bytes.Buffer
		out, err := os.CreateTemp(shared(), "traced")
		if err != nil {
			done <- outcome{err: err}
			return
		}
		defer out.Close()
		cmd := exec.Command(program(t), args...)
		cmd.Stdout, cmd.Stderr = out, out // a file: no goroutine of ours copies
		cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Setpgid: true, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			done <- outcome{err: err}
			return
		}
		tr := &tracer{root: root, pid: cmd.Process.Pid, calls: map[int]syscallInfo{}, known: map[int]bool{}}
		err = tr.loop()
		text, _ := os.ReadFile(out.Name())
		said.Write(text)
		done <- outcome{tr.ops, said.String(), err}
	}()
	r := <-done
	if errors.Is(r.err, syscall.EPERM) || errors.Is(r.err, syscall.ENOSYS) {
		t.Skipf("this system lets nobody trace a process: %v", r.err)
	}
	if r.err != nil {
		t.Fatalf("run %s below the tracer: %v\n%s", strings.Join(args, " "), r.err, r.said)
	}
	return r.ops
}

type tracer struct {
	root  string
	pid   int
	ops   []diskOp
	calls map[int]syscallInfo // by thread: the system call that it is in
	known map[int]bool
}

// syscallInfo is struct ptrace_syscall_info of linux/ptrace.h.
type syscallInfo struct {
	op         uint8 // 1: entry, 2: exit
	_          [3]uint8
	arch       uint32
	ip, sp     uint64
	numberOrRC uint64
	arguments  [6]uint64
	_          [2]uint64
	paths      [2]string // ours: read at the entry
}

// loop follows the process until it has ended, and returns an error unless it ended well.
func (tr *tracer) loop() error {
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(tr.pid, &ws, 0, nil); err != nil {
		return err
	}
	const options = syscall.PTRACE_O_TRACESYSGOOD | syscall.PTRACE_O_TRACECLONE | syscall.PTRACE_O_TRACEFORK |
		syscall.PTRACE_O_TRACEVFORK | unix.PTRACE_O_EXITKILL
	if err := syscall.PtraceSetOptions(tr.pid, options); err != nil {
		return err
	}
	tr.known[tr.pid] = true
	if err := syscall.PtraceSyscall(tr.pid, 0); err != nil {
		return err
	}
	for {
		tid, err := syscall.Wait4(-tr.pid, &ws, syscall.WALL, nil) // its process group alone: the tests have other children
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return err
		case tid == tr.pid && ws.Exited():
			if ws.ExitStatus() != 0 {
				return fmt.Errorf("exit code %d", ws.ExitStatus())
			}
			return nil
		case tid == tr.pid && ws.Signaled():
			return fmt.Errorf("ended by %v", ws.Signal())
		case !ws.Stopped():
			continue
		}
		deliver := 0
		switch signal := ws.StopSignal(); {
		case signal == syscall.SIGTRAP|0x80:
			if err := tr.stop(tid); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		case signal == syscall.SIGTRAP: // a new thread, told of by its maker
		case signal == syscall.SIGSTOP && !tr.known[tid]: // its first stop
		default:
			deliver = int(signal)
		}
		tr.known[tid] = true
		if err := syscall.PtraceSyscall(tid, deliver); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
}

// stop looks at a thread that enters or leaves a system call.
func (tr *tracer) stop(tid int) error {
	var now syscallInfo
	const request = 0x420e // PTRACE_GET_SYSCALL_INFO
	size, to := unsafe.Offsetof(now.paths), uintptr(unsafe.Pointer(&now))
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PTRACE, request, uintptr(tid), size, to, 0, 0); e != 0 {
		return e
	}
	if now.op == 1 {
		a := now.arguments
		switch int(now.numberOrRC) {
		case unix.SYS_OPENAT, unix.SYS_MKDIRAT, unix.SYS_UNLINKAT:
			now.paths[0] = tr.path(tid, a[0], a[1])
		case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT:
			now.paths = [2]string{tr.path(tid, a[0], a[1]), tr.path(tid, a[2], a[3])}
		case unix.SYS_SYMLINKAT:
			now.paths = [2]string{tr.path(tid, a[1], a[2]), tr.text(tid, a[0])}
		}
		tr.calls[tid] = now
		return nil
	}
	call := tr.calls[tid]
	delete(tr.calls, tid)
	if rc := int64(now.numberOrRC); rc >= 0 && call.op == 1 {
		tr.record(tid, call, rc)
	}
	return nil
}

// record keeps a system call that has succeeded.
func (tr *tracer) record(tid int, call syscallInfo, rc int64) {
	op := diskOp{call: int(call.numberOrRC), path: call.paths[0], to: call.paths[1]}
	a := call.arguments
	switch op.call {
	case unix.SYS_OPENAT:
		if a[2]&(syscall.O_CREAT|syscall.O_TRUNC) == 0 {
			return
		}
		if a[2]&syscall.O_TRUNC != 0 {
			op.at = 1
		}
	case unix.SYS_WRITE, unix.SYS_PWRITE64:
		if op.path = tr.file(tid, a[0]); op.path == "" {
			return
		}
		op.data, op.at = tr.memory(tid, a[1], int(rc)), int64(a[3])
		if op.call == unix.SYS_WRITE {
			op.at = tr.position(tid, a[0]) - rc
		}
	case unix.SYS_FTRUNCATE:
		op.path, op.at = tr.file(tid, a[0]), int64(a[1])
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		op.path = tr.file(tid, a[0])
	case unix.SYS_UNLINKAT:
		op.folder = a[2]&unix.AT_REMOVEDIR != 0
	case unix.SYS_MKDIRAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT, unix.SYS_SYMLINKAT:
	default:
		return
	}
	if op.path != "" {
		tr.ops = append(tr.ops, op)
	}
}

// below returns a path relative to the root, "" for one elsewhere.
func (tr *tracer) below(path string) string {
	if path == tr.root {
		return "."
	}
	rest, ok := strings.CutPrefix(path, tr.root+"/")
	if !ok {
		return ""
	}
	return rest
}

func (tr *tracer) file(tid int, fd uint64) string {
	path, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, int32(fd)))
	return tr.below(path)
}

func (tr *tracer) position(tid int, fd uint64) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", tid, int32(fd)))
	_, rest, _ := strings.Cut(string(text), "pos:")
	n, _ := strconv.ParseInt(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]), 10, 64)
	return n
}

// path is the name at an address, which starts in the folder fd.
func (tr *tracer) path(tid int, fd, address uint64) string {
	path := tr.text(tid, address)
	if !filepath.IsAbs(path) {
		from := fmt.Sprintf("/proc/%d/cwd", tid)
		if int32(fd) != unix.AT_FDCWD {
			from = fmt.Sprintf("/proc/%d/fd/%d", tid, int32(fd))
		}
		dir, _ := os.Readlink(from)
		path = filepath.Join(dir, path)
	}
	return tr.below(filepath.Clean(path))
}

// text is the string that ends with a zero at an address; it may lie at the end of a page.
func (tr *tracer) text(tid int, address uint64) string {
	var text []byte
	for len(text) < unix.PathMax {
		part := tr.memory(tid, address, int(64-address%64))
		if len(part) == 0 {
			return ""
		}
		if end := bytes.IndexByte(part, 0); end >= 0 {
			return string(append(text, part[:end]...))
		}
		text, address = append(text, part...), address+uint64(len(part))
	}
	return ""
}

func (tr *tracer) memory(tid int, address uint64, n int) []byte {
	if n == 0 {
		return nil
	}
	data := make([]byte, n)
	local := []unix.Iovec{{Base: &data[0]}}
	local[0].SetLen(n)
	got, err := unix.ProcessVMReadv(tid, local, []unix.RemoteIovec{{Base: uintptr(address), Len: n}}, 0)
	if err != nil {
		return nil
	}
	return data[:got]
}

// disk is a folder as a file system keeps it: what processes see, and what a power cut leaves of it.
type disk struct{ root *diskNode }

// diskNode is a file, a folder or a symbolic link. Strictly, only fsync makes anything durable: of a file its content, of
// a folder its names.
type diskNode struct {
	folder        bool
	link          string
	data, synced  []byte
	names, stable map[string]*diskNode
}

func newFolder() *diskNode {
	return &diskNode{folder: true, names: map[string]*diskNode{}, stable: map[string]*diskNode{}}
}

func (d *disk) parent(path string) (*diskNode, string) {
	at := d.root
	parts := strings.Split(path, "/")
	for _, part := range parts[:len(parts)-1] {
		at = at.names[part]
	}
	return at, parts[len(parts)-1]
}

func (d *disk) node(path string) *diskNode {
	if path == "." {
		return d.root
	}
	in, name := d.parent(path)
	return in.names[name]
}

// apply does what a system call did.
func (d *disk) apply(op diskOp) {
	switch op.call {
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		n := d.node(op.path)
		if n == nil { // an unlinked file
			return
		}
		n.synced = bytes.Clone(n.data)
		n.stable = map[string]*diskNode{}
		for name, child := range n.names {
			n.stable[name] = child
		}
		return
	case unix.SYS_WRITE, unix.SYS_PWRITE64:
		n := d.node(op.path)
		for int64(len(n.data)) < op.at+int64(len(op.data)) {
			n.data = append(n.data, 0)
		}
		copy(n.data[op.at:], op.data)
		return
	case unix.SYS_FTRUNCATE:
		n := d.node(op.path)
		n.data = append(n.data, make([]byte, max(0, op.at-int64(len(n.data))))...)[:op.at]
		return
	}
	in, name := d.parent(op.path)
	switch op.call {
	case unix.SYS_OPENAT:
		if in.names[name] == nil {
			in.names[name] = &diskNode{}
		} else if op.at > 0 {
			in.names[name].data = nil
		}
	case unix.SYS_MKDIRAT:
		in.names[name] = newFolder()
	case unix.SYS_UNLINKAT:
		delete(in.names, name)
	case unix.SYS_SYMLINKAT:
		in.names[name] = &diskNode{link: op.to}
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT:
		to, newName := d.parent(op.to)
		to.names[newName] = in.names[name]
		if op.call != unix.SYS_LINKAT {
			delete(in.names, name)
		}
	}
}

// tree lists a folder: contents by path, folders with a slash at the end, links with an arrow before what they say.
// lasting chooses, of every file and folder, what is there of it.
func (n *diskNode) tree(prefix string, into map[string]string, lasting func(*diskNode) ([]byte, map[string]*diskNode)) {
	data, names := lasting(n)
	switch {
	case n.link != "":
		into[prefix] = "→" + n.link
	case !n.folder:
		into[prefix] = string(data)
	default:
		into[prefix+"/"] = ""
		for name, child := range names {
			child.tree(prefix+"/"+name, into, lasting)
		}
	}
}

// seen is what processes see, strict what a power cut leaves at the least.
func seen(n *diskNode) ([]byte, map[string]*diskNode)   { return n.data, n.names }
func strict(n *diskNode) ([]byte, map[string]*diskNode) { return n.synced, n.stable }
