package mend_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/beamdata/mend"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func table(t *testing.T, path string, rows, columns int) {
	t.Helper()
	values := make([]float32, rows*columns)
	for i := range values {
		values[i] = float32(i%7) + 1
	}
	if err := tensorfile.WriteNPY(path, tensorfile.FromFloat32s("", []int{rows, columns}, values)); err != nil {
		t.Fatal(err)
	}
}

// told sorts what was said.
func told(said []string) (changed, left []string) {
	for _, line := range said {
		if what, ok := strings.CutPrefix(line, "mended "); ok {
			changed = append(changed, what)
		} else {
			left = append(left, strings.TrimPrefix(line, "left as it is: "))
		}
	}
	return changed, left
}

// Each fault is mended where it stands, and no other byte changes; what has two readings is named and left. The originals stay.
func TestFiles(t *testing.T) {
	const bom = "\ufeff"
	for _, tc := range []struct{ name, file, text, want, changed, left string }{
		{"sound", "b.json", ` {"3" : {"id_list": [[1, 3]],"score_list":[0.50] } }`, "", "", ""},
		{"a mark", "b.json", bom + `{"3": {"id_list": [[1, 3]], "score_list": [1]}}`, `{"3": {"id_list": [[1, 3]], "score_list": [1]}}`,
			"byte order mark removed", ""},
		{"ids in quotes", "b.json", `{"3": {"id_list": [["1",  "3"]], "score_list": ["x"]}, " 4": {"id_list": [[1,4]], "score_list": [1]}}`,
			`{"3": {"id_list": [[1,  3]], "score_list": ["x"]}, "4": {"id_list": [[1,4]], "score_list": [1]}}`,
			"string ids made numbers (records: 2)", ""},
		{"ids of trajectories", "rl.json",
			`{"3.0": {"candidate_pool_ids": ["1", "2"], "query": "7", "pointer_candidates": [{"pointer": ["1"], "pointer_pos": 0, "x": "1"}]}}`,
			`{"3": {"candidate_pool_ids": [1, 2], "query": "7", "pointer_candidates": [{"pointer": [1], "pointer_pos": [0], "x": "1"}]}}`,
			"string ids made numbers (records: 1); single values put into lists (records: 1)", ""},
		{"ids that collide", "b.json", `{"3": {"id_list": [["1", 3]], "score_list": 1}, "3.0": {"id_list": [[1,3]], "score_list": [1]}}`,
			`{"3": {"id_list": [["1", 3]], "score_list": [1]}, "3.0": {"id_list": [[1,3]], "score_list": [1]}}`,
			"single values put into lists (records: 1)", `the ids "3" and "3.0" would both be 3`},
		{"an id with an escape", "b.json", `{"17\n": {"id_list": [["1", 17]], "score_list": [1]}}`, "", "", `the id "17\n" is written with escapes`},
		{"an id with a letter", "b.json", `{"q3": {"id_list": [["q1", "q3"]], "score_list": [1]}}`, "", "", ""},
		{"one beam", "b.json", `{"3": {"id_list": ["1", 2, 3], "score_list": -0.5}}`, `{"3": {"id_list": [[1, 2, 3]], "score_list": [-0.5]}}`,
			"string ids made numbers (records: 1); single values put into lists (records: 1); " +
				"single beams put into lists of beams (records: 1)", ""},
		{"one beam or three", "b.json", `{"3": {"id_list": [1, 2, 3], "score_list": [1, 2, 3]}}`, "", "",
			"record 1: id_list is one list of ids beside 3 scores: which of them make a beam?"},
		{"a single trajectory", "rl.json", `{"3": {"candidate_pool_ids": [1], "pointer_candidates": {"pointer": "1"}}}`,
			`{"3": {"candidate_pool_ids": [1], "pointer_candidates": [{"pointer": [1]}]}}`, "", ""},
		{"records in an object", "t.json", bom + "{\"data\": [\n{\"messages\": [], \"answers\": \"a\"}] }\n",
			"[\n{\"messages\": [], \"answers\": [\"a\"]}]\n",
			"byte order mark removed; records taken out of the object around them; single values put into lists (records: 1)", ""},
		{"queries in an object", "b.json", bom + ` {"data": {"0" : {"id_list": [["1", 0]],"score_list": [1]}, "1": {}} } `,
			` {"0" : {"id_list": [[1, 0]],"score_list": [1]}, "1": {}} `,
			"byte order mark removed; records taken out of the object around them; string ids made numbers (records: 1)", ""},
		{"queries in an object beside others", "b.json", `{"data": {"0": {"id_list": [[1, 0]], "score_list": [1]}}, "more": {"2": {}}}`, "", "",
			`"more" stands beside the queries`},
		{"an object that is no data", "coco.json", `{"annotations": [{"id": "1", "answers": "x"}]}`, "", "", ""},
		{"one record", "t.jsonl", `{"id": 1, "messages": {"role": "user"}}`, `{"id": 1, "messages": [{"role": "user"}]}`, "", ""},
		{"two records", "t.jsonl", `{"messages": [], "meta": {"answers": "x", "pointer": 1}}` + "\n" + `{"messages": [], "completions": {}}`,
			`{"messages": [], "meta": {"answers": "x", "pointer": 1}}` + "\n" + `{"messages": [], "completions": [{}]}`, "", ""},
		{"half a file", "b.json", bom + `{"3": {"id_list": [["1", 3]], "score`, `{"3": {"id_list": [["1", 3]], "score`, "byte order mark removed",
			"not looked through: "},
		{"a file of another kind", "x.txt", bom + `{"3": {"score_list": 1}}`, "", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			golden.Write(t, dir, map[string]string{"in/" + tc.file: tc.text})
			_, said, err := mend.Write(filepath.Join(dir, "in", tc.file), filepath.Join(dir, "new", "out"))
			changed, left := told(said)
			if err != nil {
				t.Fatal(err)
			}
			if _, would, _ := mend.Write(filepath.Join(dir, "in", tc.file), ""); !slices.Equal(would, said) {
				t.Errorf("it would have said %q, not %q", would, said)
			}
			want := tc.want
			if want == "" {
				want = tc.text
			}
			if got := read(t, filepath.Join(dir, "new", "out", tc.file)); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if read(t, filepath.Join(dir, "in", tc.file)) != tc.text {
				t.Error("the original changed")
			}
			if len(changed) > 0 != (tc.want != "") || tc.changed != "" && changed[0] != tc.file+": "+tc.changed {
				t.Errorf("changed: %q", changed)
			}
			if len(left) > 0 != (tc.left != "") || tc.left != "" && !strings.HasPrefix(left[0], tc.file+": "+tc.left) {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// beams is a beam file whose ids go up to most.
func beams(most int) string {
	queries := map[string]any{}
	for id := range 12 {
		queries[fmt.Sprint(id)] = map[string]any{"id_list": [][]int{{most, 13, id}, {14, 15, id}}, "score_list": []float64{1, 0.5}}
	}
	text, _ := json.Marshal(queries)
	return string(text)
}

// A table is transposed if the ids of the folder's beams prove it, and left alone if they do not; a run takes the copy.
func TestTables(t *testing.T) {
	for _, tc := range []struct {
		name                string
		rows, columns, most int
		more                bool // a second table
		transposed, left    bool
	}{
		{"sound", 40, 8, 39, false, false, false},
		{"transposed", 8, 40, 39, false, true, false},
		{"wide and sound", 40, 80, 39, false, false, false},
		{"too small either way", 8, 30, 39, false, false, false},
		{"square", 40, 40, 39, false, false, true},
		{"far more columns than ids", 24, 100, 39, false, false, true},
		{"cut off", 37, 42, 39, false, false, true},
		{"two tables", 8, 40, 39, true, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
			golden.Write(t, in, map[string]string{"z.json": beams(tc.most), "pictures/a.json": "\ufeff{}"})
			table(t, filepath.Join(in, "emb.npy"), tc.rows, tc.columns)
			if tc.more {
				table(t, filepath.Join(in, "more.npy"), tc.rows, tc.columns)
			}
			_, said, err := mend.Write(in, out)
			if err != nil {
				t.Fatal(err)
			}
			if _, would, err := mend.Write(in, ""); err != nil || !slices.Equal(would, said) {
				t.Errorf("%v: it would have said %q, not %q", err, would, said)
			}
			if changed, left := told(said); len(changed) > 0 != tc.transposed || len(left) > 0 != tc.left {
				t.Errorf("changed %q, left %q", changed, left)
			}
			if !tc.transposed && read(t, filepath.Join(in, "emb.npy")) != read(t, filepath.Join(out, "emb.npy")) {
				t.Error("the table is no copy")
			}
			if read(t, filepath.Join(out, "pictures/a.json")) != "\ufeff{}" {
				t.Error("a file of a folder below changed")
			}
			if !tc.transposed {
				return
			}
			was, err := beamdata.OpenTable(filepath.Join(in, "emb.npy"))
			if err != nil {
				t.Fatal(err)
			}
			is, err := beamdata.OpenTable(filepath.Join(out, "emb.npy"))
			if err != nil || is.Rows != was.Dim || is.Dim != was.Rows {
				t.Fatal(is, err)
			}
			for i := range was.Rows {
				for j := range was.Dim {
					if was.Row(i)[j] != is.Row(j)[i] {
						t.Fatalf("[%d %d] differs", i, j)
					}
				}
			}
			if report, err := beamdata.Inspect(out, 0, beamdata.DefaultOptions()); err != nil || report.Faulty() {
				t.Errorf("a run refuses the copy: %v %+v", err, report)
			}
		})
	}
}

// The copy appears whole or not at all, and never in a folder that holds something or inside of the original.
func TestOut(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	golden.Write(t, dir, map[string]string{"in/b.json": beams(20), "full/x": "x", "file": "x"})
	if err := os.Symlink(in, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "bare"), filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "bare"), 0o755); err != nil {
		t.Fatal(err)
	}
	before := names(t, dir)
	for _, out := range []string{"full", "file", "in", "in/out", "in/new/out", "link/out", "away"} {
		if _, _, err := mend.Write(in, filepath.Join(dir, out)); err == nil {
			t.Errorf("--fix %s is taken", out)
		}
	}
	if err := os.Symlink("nowhere", filepath.Join(in, "broken")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := mend.Write(in, filepath.Join(dir, "out")); err == nil {
		t.Error("a file that cannot be copied is left out")
	}
	if err := os.Remove(filepath.Join(in, "broken")); err != nil {
		t.Fatal(err)
	}
	if after := names(t, dir); !reflect.DeepEqual(before, after) {
		t.Errorf("left behind: %v, before %v", after, before)
	}
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "full"), filepath.Join(in, "pictures")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := mend.Write(filepath.Join(dir, "link"), filepath.Join(dir, "empty")); err != nil {
		t.Error(err)
	}
	if read(t, filepath.Join(dir, "empty/pictures/x")) != "x" {
		t.Error("the linked pictures are not there")
	}
}

// names lists all below a folder.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
