// Package mend writes a corrected copy of data, as `run data inspect --fix` does. It mends what has one reading, names and leaves what
// has more, and copies all else byte for byte.
package mend

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/beamdata"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/interrupt"
	"fulcrum/internal/nearpath"
	"fulcrum/internal/regular"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/usage"
)

// writer makes a copy.
type writer struct {
	dry    bool        // nothing is written
	said   []string    // what was mended, and what was seen and left, a line each
	top    int64       // the largest id of all files; -1: none was read
	tables [][2]string // paths of the embedding tables, and of their copies
}

// Write copies a file or folder into the folder out, which appears when it is complete, and mends the files at its top. It returns the
// copy's path and what it did, a line for each file. A folder out that holds something is refused; with out "" nothing is written.
func Write(from, out string) (copied string, said []string, err error) {
	root, _ := filepath.Abs(from)
	c := &writer{dry: out == "", top: -1}
	if c.dry {
		err = c.all(real(root), "")
		return "", c.said, err
	}
	out, _ = filepath.Abs(out)
	info, err := os.Stat(root)
	if err != nil {
		return "", nil, fmt.Errorf("%w%s", err, nearpath.Hint(from))
	}
	if copied = filepath.Join(out, filepath.Base(root)); info.IsDir() {
		copied, root = out, real(root)
	}
	parent := filepath.Dir(out)
	there, err := os.ReadDir(out)
	link, _ := os.Readlink(out)
	if from == "" || link != "" || len(there) > 0 || err != nil && !os.IsNotExist(err) || strings.HasPrefix(real(parent)+"/", root+"/") {
		return "", nil, usage.Errorf("--fix %s: want a new or empty folder, outside of what it copies", out)
	}
	if err := atomicfile.MkdirAll(parent); err != nil {
		return "", nil, err
	}
	tmp, remove, err := interrupt.Folder(parent, "."+filepath.Base(out)+".tmp*")
	if err != nil {
		return "", nil, err
	}
	defer remove()
	if err = c.all(root, tmp); err == nil {
		os.Remove(out) // an empty folder
		err = errors.Join(os.Chmod(tmp, 0o755), os.Rename(tmp, out), atomicfile.SyncDir(parent))
	}
	return copied, c.said, err
}

// real is an absolute path without links, of which the end need not exist.
func real(path string) string {
	if to, err := filepath.EvalSymlinks(path); err == nil || path == filepath.Dir(path) {
		return to
	}
	return filepath.Join(real(filepath.Dir(path)), filepath.Base(path))
}

// all copies what is below root, the tables last: the ids of the beams say how they lie.
func (c *writer) all(root, tmp string) error {
	err := filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		name, isTop := strings.TrimPrefix(at, root+"/"), filepath.Dir(at) == root
		if at == root {
			name, isTop = filepath.Base(at), true
		}
		to, ext := filepath.Join(tmp, name), strings.ToLower(filepath.Ext(name))
		switch folder := real(at); {
		case err != nil || entry.IsDir() && at == root:
			return err
		case c.dry && entry.IsDir():
			return filepath.SkipDir
		case c.dry && regular.Check(at) != nil:
			return nil
		case entry.IsDir():
			return os.Mkdir(to, 0o755)
		case folder != at && regular.Check(at) != nil: // a link to a folder stays one
			return os.Symlink(folder, to)
		case isTop && (ext == ".json" || ext == ".jsonl"):
			return c.json(at, to)
		case isTop && slices.Contains([]string{".npy", ".pt", ".pth", ".safetensors"}, ext):
			c.tables = append(c.tables, [2]string{at, to})
			return nil
		}
		return c.plain(at, to)
	})
	for _, t := range c.tables {
		if err == nil {
			err = c.table(t[0], t[1])
		}
	}
	return err
}

// plain copies a file as it is.
func (c *writer) plain(at, to string) error {
	from, err := regular.Open(at)
	if err != nil {
		return err
	}
	defer from.Close()
	return c.write(to, from)
}

func (c *writer) write(to string, from io.Reader) error {
	if c.dry {
		return nil
	}
	return atomicfile.Stream(to, func(w *bufio.Writer) error {
		_, err := io.Copy(w, from)
		return err
	})
}

// table copies an embedding table. It is transposed if the ids of the beams pass its rows and end where its columns do.
func (c *writer) table(at, to string) error {
	t, err := beamdata.OpenTable(at)
	if err != nil { // the inspection names it
		return c.plain(at, to)
	}
	switch rows, columns := int64(t.Rows), int64(t.Dim); {
	case c.top < 0 || c.top >= columns || c.top < rows && rows != columns:
		return c.plain(at, to)
	case rows == columns || len(c.tables) > 1 || c.top+1 != columns: // or it is cut off, or that of other queries
		c.said = append(c.said, fmt.Sprintf("left as it is: %s: a table [%d %d], ids up to %d: nothing tells whether it is transposed",
			filepath.Base(at), rows, columns, c.top))
		return c.plain(at, to)
	}
	to = strings.TrimSuffix(to, filepath.Ext(to)) + ".npy"
	c.said = append(c.said, fmt.Sprintf("mended %s: table transposed to [%d %d], float32", filepath.Base(to), t.Dim, t.Rows))
	if c.dry {
		return nil
	}
	values := make([]float32, len(t.Data))
	for i, v := range t.Data {
		values[i%t.Dim*t.Rows+i/t.Dim] = v
	}
	return tensorfile.WriteNPY(to, tensorfile.FromFloat32s("", []int{t.Dim, t.Rows}, values))
}
