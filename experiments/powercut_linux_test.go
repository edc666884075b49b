package experiments_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// crash is the state of a disk that a power cut may leave.
type crash struct {
	after int               // how many of the recorded system calls came before
	tree  map[string]string // as diskNode.tree lists it
	saved int               // how many states had been reported as saved, 0 = none
	kind  string
}

// TestPowerCut records all writes, renames and fsyncs of a run and cuts the power behind every one of them: strictly,
// only what was synced is left, names in folders included, from the folders above the run downwards; and loosely, where
// each file and folder has either what was synced or all of it, or a part. What is left is resumed, and ends as the run
// did. No state that was complete once is lost.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(filepath.Dir(folder(t)))
	if err != nil {
		t.Fatal(err)
	}
	const at = "outputs/today/run"
	dir := filepath.Join(root, at)
	begin := time.Now()
	args := tiny("report.plots=false", "checkpoint.every_steps=4", "checkpoint.keep=2")
	ops := recordDisk(t, root, append(args, "hydra.run.dir="+dir)...)
	t.Logf("recorded in %v", time.Since(begin))
	want := outcomeOf(t, dir)
	crashes := crashesOf(t, root, at, ops, !testing.Short())
	states := len(crashes)
	if testing.Short() {
		crashes = sampled(crashes, 3, "/"+at+"/summary.json")
	}
	t.Logf("%d system calls, %d states of the disk, of which %d are resumed, %v", len(ops), states, len(crashes), time.Since(begin))
	if len(ops) < 100 || states < 30 {
		t.Fatalf("%d system calls and %d states of the disk: the recorder misses some", len(ops), states)
	}
	for _, c := range crashes {
		t.Run(fmt.Sprintf("%s after %d", c.kind, c.after), func(t *testing.T) {
			to := filepath.Join(filepath.Dir(folder(t)), at)
			restore(t, c.tree, strings.TrimSuffix(to, "/"+at))
			resumes := 1
			switch {
			case !exists(filepath.Join(to, ".hydra/config.yaml")): // nothing to resume yet: the same command starts over
				resumes = 0
				mustRun(t, append(args, "hydra.run.dir="+to)...)
			default:
				if exists(filepath.Join(to, "summary.json")) {
					resumes = 0
				}
				mustRun(t, "resume", to)
			}
			got := outcomeOf(t, to)
			want.Same(t, got, resumes)
			mustRun(t, "verify", to)
		})
	}
}

// crashesOf replays the system calls and returns every distinct state that a power cut leaves: the strict ones, and some
// loose ones each. It fails the test where one lacks a state that was reported as saved.
func crashesOf(t *testing.T, root, at string, ops []diskOp, loose bool) []crash {
	t.Helper()
	d := disk{newFolder()}
	var found []crash
	var order []string // states as they were first complete
	saved, saves := 0, map[string]int{}
	last := map[string]bool{}
	random := rand.New(rand.NewPCG(1, 2))
	add := func(c crash) {
		if key := digestOf(c.tree); !last[key] {
			last[key] = true
			found = append(found, c)
		}
		if c.saved > 0 && !keeps(c.tree, "/"+at+"/checkpoints/", saves, c.saved) {
			t.Errorf("%s, after %d system calls: the state %s, which was saved, is lost", c.kind, c.after, order[c.saved-1])
		}
	}
	for i, op := range ops {
		d.apply(op)
		if strings.HasPrefix(filepath.Base(op.to), ".") || !strings.HasSuffix(op.to, ".state") {
			if op.call == unix.SYS_FSYNC && op.path == at+"/checkpoints" {
				saved = len(order)
			}
		} else if op.call == unix.SYS_RENAMEAT || op.call == unix.SYS_RENAMEAT2 {
			order = append(order, filepath.Base(op.to))
			saves[filepath.Base(op.to)] = len(order)
		}
		if op.call == unix.SYS_FSYNC { // nothing else changes what is strictly left
			tree := map[string]string{}
			d.root.tree("", tree, strict)
			add(crash{i + 1, tree, saved, "strict"})
		}
		if loose && i%20 == 0 {
			tree := map[string]string{}
			d.root.tree("", tree, func(n *diskNode) ([]byte, map[string]*diskNode) {
				data, names := n.synced, n.stable
				if random.IntN(2) > 0 {
					names = n.names
				}
				if len(n.data) > len(n.synced) { // appended, in part
					data = n.data[:len(n.synced)+random.IntN(len(n.data)-len(n.synced)+1)]
				}
				return data, names
			})
			add(crash{i + 1, tree, saved, "loose"})
		}
	}
	if len(order) < 4 {
		t.Errorf("states %v: the recorder misses some", order)
	}
	whole := map[string]string{}
	d.root.tree("", whole, seen)
	real := treeOf(t, root)
	for _, path := range slices.Sorted(maps.Keys(real)) {
		if whole[path] != real[path] {
			t.Fatalf("the recorded system calls do not give %s: %d bytes, the run left %d", path, len(whole[path]), len(real[path]))
		}
	}
	if len(whole) != len(real) {
		t.Fatalf("the recorded system calls give %d files and folders, the run left %d", len(whole), len(real))
	}
	return found
}

// keeps reports whether a tree holds the state of that number or a later one.
func keeps(tree map[string]string, checkpoints string, saves map[string]int, saved int) bool {
	for name, number := range saves {
		if _, ok := tree[checkpoints+name+"/SHA256SUMS"]; ok && number >= saved {
			return true
		}
	}
	return false
}

// sampled returns n crashes, spread evenly, with the last, and the first that has a file.
func sampled(all []crash, n int, file string) []crash {
	out := []crash{all[slices.IndexFunc(all, func(c crash) bool { _, ok := c.tree[file]; return ok })]}
	for i := range n {
		out = append(out, all[(i+1)*len(all)/n-1])
	}
	return out
}

func digestOf(tree map[string]string) string {
	hash := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(tree)) {
		fmt.Fprintf(hash, "%q %d ", path, len(tree[path]))
		io.WriteString(hash, tree[path])
	}
	return string(hash.Sum(nil))
}

// restore makes a folder what a tree says.
func restore(t *testing.T, tree map[string]string, dir string) {
	t.Helper()
	for _, path := range slices.Sorted(maps.Keys(tree)) { // folders before what is in them
		name, content := filepath.Join(dir, path), tree[path]
		var err error
		switch target, link := strings.CutPrefix(content, "→"); {
		case strings.HasSuffix(path, "/"):
			err = os.MkdirAll(name, 0o755)
		case link:
			err = os.Symlink(target, name)
		default:
			err = os.WriteFile(name, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// treeOf lists a folder on the disk as diskNode.tree does.
func treeOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	tree := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, dir)
		switch {
		case e.IsDir():
			tree[name+"/"] = ""
		case e.Type()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			tree[name] = "→" + target
			return err
		default:
			tree[name] = read(t, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}
