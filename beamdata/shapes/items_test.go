package shapes

import (
	"image"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestQuestionsAreThoseOfTheWholeSet(t *testing.T) {
	opt := DefaultOptions()
	opt.TrainQueries, opt.ReaderQuestions, opt.ValQueries, opt.DevQueries, opt.PoolSize = 60, 10, 7, 9, 16
	whole, err := Generate(opt)
	if err != nil {
		t.Fatal(err)
	}
	q := MakeQuestions(opt)
	if !reflect.DeepEqual(q.Items, whole.Items) {
		t.Error("MakeQuestions and Generate make different items")
	}
	if from, to := q.Split(Dev); from != 77 || to != 86 || q.Items[from].Split != Dev || q.Items[from-1].Split != Val {
		t.Errorf("dev is rows %d to %d, want 77 to 86", from, to)
	}
	for _, row := range []int{0, 59, 75, 85} {
		if !reflect.DeepEqual(q.Image(row), image.Image(whole.scenes[whole.Items[row].Scene].render())) {
			t.Errorf("row %d has another picture", row)
		}
	}
}

func BenchmarkMakeQuestions(b *testing.B) {
	opt := DefaultOptions()
	opt.TrainQueries = 100_000
	for range b.N {
		MakeQuestions(opt)
	}
	b.ReportMetric(float64(b.N*opt.TrainQueries)/b.Elapsed().Seconds(), "questions/s")
}

func TestCaptionNamesEveryObject(t *testing.T) {
	opt := DefaultOptions()
	opt.TrainQueries = 90
	q := MakeQuestions(opt)
	for row := range 90 {
		s := newScene(opt.Seed, q.Items[row].Scene)
		got := strings.Split(q.Caption(row), ", ")
		var want []string
		for _, o := range s.objects {
			want = append(want, map[bool]string{false: "small ", true: "big "}[o.big]+hues[o.hue].name+" "+shapeNames[o.shape])
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("row %d: caption %q, want the objects %q", row, got, want)
		}
	}
}
