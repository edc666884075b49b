package workload

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/reports/record"
)

// Each gen_method has a row, names of the file's own too.
func TestMethodsOf(t *testing.T) {
	query := beamdata.Query{ID: 0, Pool: []int32{1, 2}, Candidates: [][]int32{{0}, {1}, {0}}, Rewards: []float64{0.1, 0.9, 0.3},
		Methods: []string{"uniform", "teacher_beam", "uniform"}}
	set, err := beamdata.NewSet("test", beamdata.NewTable(3, 1, make([]float32, 3)), 1, []beamdata.Query{query}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []record.MethodSummary{{Name: "teacher_beam", Candidates: 1, Mean: 0.9}, {Name: "uniform", Candidates: 2, Mean: 0.2}}
	if got := methodsOf(set); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Where validation takes all queries of a file that has beams, the refusal does not say that it has none.
func TestAllQueriesValidate(t *testing.T) {
	dir := t.TempDir()
	path, table, dev := filepath.Join(dir, "beams.json"), filepath.Join(dir, "x.npy"), filepath.Join(dir, "dev.json")
	header := fmt.Sprintf("%-117s\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 1), }")
	for name, text := range map[string]string{path: `{"0":{"id_list":[[1,0],[2,0]],"score_list":[1,0]},"3":{"id_list":[[1,3]],"score_list":[1]}}`,
		dev:   `{"1":{"id_list":[[0,1]],"score_list":[1]},"2":{"id_list":[[0,2]],"score_list":[1]}}`,
		table: "\x93NUMPY\x01\x00\x76\x00" + header + strings.Repeat("\x00\x00\x80\x3f", 4)} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	opt := beamdata.DefaultOptions()
	opt.Name, opt.Beams, opt.Embeddings, opt.TrainRatio = "beams", &path, &table, 0.2
	b, err := beamdata.Load(opt)
	if err != nil {
		t.Fatal(err)
	}
	const split = "data.name=beams has none left (data.beams): validation has 2 of the 2 queries that were read"
	if _, err := NewPointerData(b).Beams("rce"); err == nil || !strings.Contains(err.Error(), split) {
		t.Errorf("got %v, want %s", err, split)
	}
	opt.TrainRatio, opt.Eval.Beams = 0.5, &dev
	if b, err = beamdata.Load(opt); err != nil {
		t.Fatal(err)
	}
	const cut = "validation has 1 of the 2 queries that were read, and the others have no candidates left"
	if _, err := NewPointerData(b).Beams("rce"); err == nil || !strings.Contains(err.Error(), cut) {
		t.Errorf("got %v, want %s", err, cut)
	}
	opt.TrainRatio, opt.Eval.Beams = 0.2, nil
	opt.ValBeams = &path
	if b, err = beamdata.Load(opt); err != nil {
		t.Fatal(err)
	}
	want := "phase rce needs recorded beams, and data.name=beams has none left: 2 of its 2 training queries are in data.val_beams too"
	if _, err := NewPointerData(b).Beams("rce"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	const online = "phase grpo_online samples new selections, and data.name=beams has no reader"
	if _, err := NewPointerData(b).Online("grpo_online"); err == nil || !strings.Contains(err.Error(), online) {
		t.Errorf("got %v, want %s", err, online)
	}
	b.All.Scorer = scorer{}
	want = strings.Replace(want, "rce needs recorded beams", "grpo_online needs queries to sample for", 1)
	if _, err := NewPointerData(b).Online("grpo_online"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

type scorer struct{ beamdata.Scorer }
