//go:build !core

package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep"
	"fulcrum/internal/usage"
	"fulcrum/reports/board"
)

// boardVerb shows runs and sweeps as a local web page.
func boardVerb() *verb {
	f := usage.Flags()
	port := f.Int("port", 0, "port on 127.0.0.1; 0 = any that is free")
	export := f.String("export", "", "write the page as files to this folder and serve nothing")
	return &verb{
		usage: `run board
run board outputs multirun/lr --port 8080

run board [FOLDER…] [--port N] [--export DIR]
Shows the runs and sweeps below the folders (default: outputs and multirun) as a web page that follows them: curves,
comparisons, sweeps, notes. It prints the page's address and serves it on this machine alone until Ctrl-C; --export
writes the same page as files that need no server. docs/board.md has the tour.
`,
		flags: f,
		run: func(s *session, args []string) error {
			if *port < 0 || *port > 65535 {
				return usage.Errorf("--port %d: want a number in [0, 65535]", *port)
			}
			if *export == "" && f.Changed("export") {
				return usage.Errorf("--export: want a folder")
			}
			if *export != "" && f.Changed("port") {
				return usage.Errorf("--export writes files and serves nothing: want no --port with it")
			}
			roots, err := boardRoots(args)
			if err != nil {
				return err
			}
			b := board.Open(board.Options{Roots: roots, Sweep: sweep.ReadJobs, Locked: runfolder.Locked, Stop: stopProcess, Resume: resumeDetached,
				Starts: startsOf})
			if *export != "" {
				n, err := b.Export(*export)
				if err == nil {
					fmt.Fprintf(s.out, "%d runs → %s/index.html\n", n, strings.TrimSuffix(*export, "/"))
				}
				return err
			}
			return serveBoard(s, b, *port)
		},
	}
}

// boardRoots are the folders to show: those given, else where runs and sweeps are written by default.
func boardRoots(args []string) ([]string, error) {
	for _, dir := range args {
		if err := runfolder.CheckExists(dir); err != nil {
			return nil, err
		}
		if info, err := os.Stat(dir); err == nil && !info.IsDir() {
			return nil, usage.Errorf("%s: a file: want a folder with runs", dir)
		}
	}
	if len(args) > 0 {
		return args, nil
	}
	return []string{"outputs", "multirun"}, nil
}

// boardMemory is where Go's collector begins to save memory, in bytes.
const boardMemory = 200 << 20

// serveBoard listens on this machine until the program is told to end.
func serveBoard(s *session, b *board.Board, port int) error {
	debug.SetMemoryLimit(boardMemory)
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return usage.Errorf("--port %d: another program listens there; without --port any free one is taken", port)
		}
		return err
	}
	token := rand.Text()
	server := board.NewServer(b, token).HTTP()
	fmt.Fprintf(s.out, "%s\nthe board of this user's runs; Ctrl-C ends it\n", board.Address(listener.Addr(), token))
	go b.Scan(false)
	return server.Serve(listener) // until a signal ends the process: what is still being sent is of no use to anybody
}

// stopProcess tells the process at work on a run or sweep to save its state and to end, as Ctrl-C does.
func stopProcess(dir string) error {
	if !runfolder.Locked(dir) {
		return errors.New("no process is at work on it")
	}
	pid, err := runfolder.Holder(dir)
	if err != nil {
		return err
	}
	if pid == 0 || pid == os.Getpid() {
		return errors.New("the process at work on it runs on another machine or belongs to another user: stop it there")
	}
	return syscall.Kill(pid, syscall.SIGINT)
}
