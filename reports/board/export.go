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
	list := b.list(0)
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
	if err := give("runs", list, nil); err != nil {
		return 0, err
	}
	var ids []string
	for _, e := range list.Runs {
		ids = append(ids, e.ID)
		d, err := b.detail(e.ID)
		if err := give("run/"+e.ID, d, err); err != nil {
			return 0, err
		}
		if err := b.readWhole(e.ID); err != nil {
			return 0, err
		}
		c, err := b.curves(e.ID, url.Values{"points": {fmt.Sprint(exportPoints)}, "hist": {"1"}})
		if err := give("run/"+e.ID+"/curves", c, err); err != nil {
			return 0, err
		}
		rows, err := b.completions(e.ID, nil)
		if err := give("run/"+e.ID+"/completions", rows, err); err != nil {
			return 0, err
		}
	}
	for _, s := range list.Sweeps {
		page, err := b.sweepPage(s.ID)
		if err := give("sweep/"+s.ID, page, err); err != nil {
			return 0, err
		}
	}
	if len(ids) > 1 && len(ids) <= maxSelected { // of all runs; for other selections the page says which command to call
		slices.SortFunc(ids, func(x, y string) int { return strings.Compare(b.pathOf(x), b.pathOf(y)) })
		c, err := b.comparison(strings.Join(ids, ","))
		if err := give("compare", c, err); err != nil {
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
