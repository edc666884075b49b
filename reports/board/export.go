package board

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/atomicfile"
	"fulcrum/reports/curves"
)

// exportPoints is how many points a curve has in a page of files.
const exportPoints = 600

// Export writes the page as files to dir, which may be empty, absent or an export of before, and returns how many runs
// it holds. The files need no server: data are scripts, which browsers load from a disk too.
func (b *Board) Export(dir string) (runs int, err error) {
	const mark = "board.js"
	if names, err := os.ReadDir(dir); err == nil && len(names) > 0 {
		if _, err := os.Stat(filepath.Join(dir, mark)); err != nil {
			return 0, fmt.Errorf("%s is not empty and no board: want a new folder", dir)
		}
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	if err := os.RemoveAll(filepath.Join(dir, "data")); err != nil {
		return 0, err
	}
	if err := atomicfile.MkdirAll(filepath.Join(dir, "data")); err != nil {
		return 0, err
	}
	write := func(name string, data []byte) error {
		return os.WriteFile(filepath.Join(dir, name), data, 0o644) // no sync: it can be written again
	}
	for _, name := range []string{mark, "board.css"} {
		if err := write(name, asset(name)); err != nil {
			return 0, err
		}
	}
	page := strings.Replace(string(asset("index.html")), "<html ", "<html data-static ", 1)
	if err := write("index.html", []byte(page)); err != nil {
		return 0, err
	}
	b.Scan(true)
	list := b.list(0, 0)
	list.Control, list.Roots = false, nil
	give := func(path string, answer any, err error) error {
		if err != nil {
			answer = map[string]string{"error": err.Error()}
		}
		data, err := json.Marshal(answer)
		if err != nil {
			return err
		}
		key, _ := json.Marshal(path) // text always marshals
		return write(filepath.Join("data", strings.ReplaceAll(path, "/", "-")+".js"), fmt.Appendf(nil, "boardData(%s,%s)\n", key, data))
	}
	if err := errors.Join(give("runs", list, nil), give("values", allValues(list.Runs), nil)); err != nil {
		return 0, err
	}
	var ids []string
	paths := []string{"sparks"}
	for _, e := range list.Runs {
		ids = append(ids, e.ID)
		paths = append(paths, "run/"+e.ID, "run/"+e.ID+"/curves", "run/"+e.ID+"/completions")
	}
	for _, s := range list.Sweeps {
		paths = append(paths, "sweep/"+s.ID, "sweep/"+s.ID+"/told", "sweep/"+s.ID+"/curves", "sweep/"+s.ID+"/compare")
	}
	slices.SortFunc(ids, func(x, y string) int { return strings.Compare(b.pathOf(x), b.pathOf(y)) })
	if len(ids) > 1 && len(ids) <= maxSelected { // of all runs, as above of a sweep's; for others the page says which command to call
		paths = append(paths, "compare", "compare/curves")
	}
	q := url.Values{"points": {fmt.Sprint(exportPoints)}, "hist": {"1"}, "ids": {strings.Join(ids, ",")}}
	for _, path := range paths {
		if id, ok := strings.CutSuffix(path, "/curves"); ok && strings.HasPrefix(id, "run/") {
			if err := b.readWhole(id[len("run/"):]); err != nil {
				return 0, err
			}
		}
		answer, err := b.known(path, q)
		if err := give(path, answer, err); err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

func (b *Board) pathOf(id string) string {
	e, _ := b.run(id)
	return e.Path
}

// readWhole waits until all rows of a run are read.
func (b *Board) readWhole(id string) error {
	e, _ := b.run(id)
	for complete := false; !complete; {
		if err := b.rows(id, e.dir, func(_ *curves.Curves, all bool) { complete = all }); err != nil {
			return err
		}
	}
	return nil
}
