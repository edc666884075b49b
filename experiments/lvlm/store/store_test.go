package store

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

func keyOf(i int) Key { return sha256.Sum256(binary.LittleEndian.AppendUint64(nil, uint64(i))) }

func valueOf(i int) []byte { return bytes.Repeat([]byte{byte(i)}, i%97) }

func open(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func put(t testing.TB, s *Store, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if err := s.Put(keyOf(i), valueOf(i)); err != nil {
			t.Fatal(err)
		}
	}
}

// holds fails unless s has the values from..to and no more than n in all.
func holds(t testing.TB, s *Store, from, to, n int) {
	t.Helper()
	for i := from; i < to; i++ {
		v, ok, err := s.Get(keyOf(i))
		if err != nil || !ok || !bytes.Equal(v, valueOf(i)) {
			t.Fatalf("value %d: %v, %v, %v", i, v, ok, err)
		}
	}
	if s.Len() != n {
		t.Errorf("%d values, want %d", s.Len(), n)
	}
}

func segments(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, e := range entries {
		paths = append(paths, filepath.Join(dir, e.Name()))
	}
	return paths
}

func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	first := open(t, dir)
	put(t, first, 0, 100)
	put(t, first, 0, 100) // what is there stays there
	holds(t, first, 0, 100, 100)
	if _, ok, err := first.Get(keyOf(100)); ok || err != nil {
		t.Errorf("a key without a value: %v, %v", ok, err)
	}

	second := open(t, dir) // while the first still writes
	holds(t, second, 0, 100, 100)
	put(t, second, 100, 150)
	put(t, first, 150, 200)
	second.looked = time.Time{}
	if err := second.Refresh(); err != nil {
		t.Fatal(err)
	}
	holds(t, second, 0, 200, 200)
	if n := len(segments(t, dir)); n != 2 {
		t.Errorf("%d segments of two writers", n)
	}
	for _, s := range []*Store{first, second} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	third := open(t, dir) // takes up a segment whose writer has gone
	put(t, third, 200, 210)
	holds(t, third, 0, 210, 210)
	if n := len(segments(t, dir)); n != 2 {
		t.Errorf("%d segments after a third writer, want 2", n)
	}
	if err := third.Put(keyOf(-1), make([]byte, maxValue+1)); err == nil {
		t.Error("a value of more than a MiB was taken")
	}
}

// A segment that was cut anywhere gives the records before the cut, and the next writer goes on behind them.
func TestTornEnd(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	ends := []int64{0}
	for i := range 6 {
		put(t, s, i, i+1)
		ends = append(ends, s.own.read)
	}
	s.Close()
	path := segments(t, dir)[0]
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) {
		if err := os.WriteFile(path, whole[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		n := 0
		for n < 6 && int64(cut) >= ends[n+1] {
			n++
		}
		s := open(t, dir)
		holds(t, s, 0, n, n)
		put(t, s, n, 8)
		s.Close()
		s = open(t, dir)
		holds(t, s, 0, 8, 8)
		if s.Damaged() != 0 || len(segments(t, dir)) != 1 {
			t.Fatalf("cut at %d: %d damaged bytes, %d segments", cut, s.Damaged(), len(segments(t, dir)))
		}
		s.Close()
	}
}

// Damage costs the record that it hits, and no other.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, 50, 60)
	s.Close()
	path := segments(t, dir)[0]
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := len(head); at < len(whole)-record-59; at++ { // not in the last record: there it is a torn end
		hit := bytes.Clone(whole)
		hit[at] ^= 0x10
		if err := os.WriteFile(path, hit, 0o644); err != nil {
			t.Fatal(err)
		}
		s := open(t, dir)
		if s.Len() != 9 || s.Damaged() < record {
			t.Fatalf("byte %d: %d of 10 values left, %d bytes damaged", at, s.Len(), s.Damaged())
		}
		for i := 50; i < 60; i++ {
			if v, ok, err := s.Get(keyOf(i)); err != nil || ok && !bytes.Equal(v, valueOf(i)) {
				t.Fatalf("byte %d: value %d: %v, %v", at, i, v, err)
			}
		}
		s.Close()
	}
	if err := os.WriteFile(path, []byte("something else, and longer than a head"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a file that is no segment: %v", err)
	}
}

// TestMain is also the process that the next test kills: it puts values from a number on and says each when Put has returned.
func TestMain(m *testing.M) {
	dir, from := os.Getenv("STORE_TEST_DIR"), os.Getenv("STORE_TEST_FROM")
	if dir == "" {
		os.Exit(m.Run())
	}
	s, err := Open(dir)
	if err != nil {
		panic(err)
	}
	first, err := strconv.Atoi(from)
	if err != nil {
		panic(err)
	}
	for i := first; ; i++ {
		if err := s.Put(keyOf(i), valueOf(i)); err != nil {
			panic(err)
		}
		fmt.Println(i)
	}
}

// Nothing that Put returned for is lost when its process is killed.
func TestKill(t *testing.T) {
	dir, next := t.TempDir(), 0
	for range 100 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "STORE_TEST_DIR="+dir, "STORE_TEST_FROM="+strconv.Itoa(next))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := func() {
			time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
			cmd.Process.Kill()
		}
		waited := rand.IntN(20) // for so many values, however slow the machine is: 0 may be killed while it opens the store
		if waited == 0 {
			go kill()
		}
		for said := bufio.NewScanner(out); said.Scan(); {
			if n, err := strconv.Atoi(said.Text()); err == nil && n >= next {
				next = n + 1
			}
			if waited--; waited == 0 {
				go kill()
			}
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the process ended by itself")
		}
		s := open(t, dir)
		if s.Len() < next || s.Damaged() > 0 {
			t.Fatalf("%d values of %d, %d bytes damaged", s.Len(), next, s.Damaged())
		}
		next = s.Len() // one may have been put and not said
		s.Close()
	}
	holds(t, open(t, dir), 0, next, next)
	if next < 100 {
		t.Errorf("%d values in all: the processes ended before they were killed", next)
	}
}

// BenchmarkTwoMillion reports the memory of the index of two million scores of four tokens, and what opening and asking takes.
func BenchmarkTwoMillion(b *testing.B) {
	const n = 2_000_000
	dir, value := b.TempDir(), make([]byte, 4*12)
	s := open(b, dir)
	start := time.Now()
	for i := range n {
		if err := s.Put(keyOf(i), value); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(n/time.Since(start).Seconds(), "puts/s")
	s.Close()
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		start := time.Now()
		s := open(b, dir)
		b.ReportMetric(time.Since(start).Seconds(), "s/open")
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB")
		start = time.Now()
		for i := range 100_000 {
			if _, ok, err := s.Get(keyOf(i * 19)); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
		b.ReportMetric(100_000/time.Since(start).Seconds(), "gets/s")
		s.Close()
	}
}
