package workload

import (
	"reflect"
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
