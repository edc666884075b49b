package curves

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/reports/record"
	"fulcrum/reports/webchart"
)

func putRows(t *testing.T, dir, rows string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, record.MetricsFile), []byte(rows), 0o644); err != nil {
		t.Fatal(err)
	}
}

// rowsTo are rows of n steps; the loss of step i is 1/i, and 1000 at a spike.
func rowsTo(n, spike int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		loss := 1 / float64(i)
		if i == spike {
			loss = 1000
		}
		fmt.Fprintf(&b, `{"kind":"step","phase":"rce","epoch":1,"step":%d,"global_step":%d,"time":%d.5,"loss":%g}`+"\n", i, i, 1700000000+i, loss)
	}
	return b.String()
}

// Rows that a resume cut off are no longer shown, whatever the index beside the file says.
func TestIndexOfACutFile(t *testing.T) {
	dir := t.TempDir()
	putRows(t, dir, rowsTo(500, 7))
	c := New()
	if _, err := c.Update(dir, 1<<30); err != nil {
		t.Fatal(err)
	}
	c.save(dir)
	again := New()
	if again.load(dir); again.Steps.Rows != 500 || again.Offset != c.Offset {
		t.Fatalf("the index holds %d rows, want 500", again.Steps.Rows)
	}
	putRows(t, dir, strings.ReplaceAll(rowsTo(600, 0), ".5,", ".25,"))
	if _, err := again.Update(dir, 1<<30); err != nil || again.Steps.Rows != 600 {
		t.Errorf("%d rows (%v), want the 600 of the file that was written anew", again.Steps.Rows, err)
	}
	if highest, _ := again.Steps.Of("loss").Best(false); highest != 1 {
		t.Errorf("the largest loss is %g, want 1: that of before the cut is gone", highest)
	}
	again.Steps.Rows = 1 << 40 // more than its buckets hold
	again.save(dir)
	putRows(t, dir, strings.ReplaceAll(rowsTo(601, 0), ".5,", ".25,"))
	unsound := New()
	if _, err := unsound.Update(dir, 1<<30); err != nil || unsound.Steps.Rows != 601 {
		t.Errorf("with an index that contradicts itself: %d rows (%v), want 601", unsound.Steps.Rows, err)
	}
	if err := os.WriteFile(filepath.Join(dir, IndexFolder, indexFile), []byte("no index"), 0o644); err != nil {
		t.Fatal(err)
	}
	fresh := New()
	if _, err := fresh.Update(dir, 1<<30); err != nil || fresh.Steps.Rows != 601 {
		t.Errorf("with a damaged index: %d rows (%v), want 601", fresh.Steps.Rows, err)
	}
}

// The quick reader of rows and the careful one agree, and what is no row is refused.
func TestFlatRow(t *testing.T) {
	var r flatRow
	line := `{"kind":"step","phase":"a\"b","epoch":1,"step":2,"global_step":12,"time":17.25,"loss":"nan","x":-1.5e-3,` +
		`"text":"}{,","list":[1,"nan"],"o":{"a":[1]},"y":true,"adv_hist":[1, 2,3]}`
	if err := r.parse([]byte(line + "\n")); err != nil {
		t.Fatal(err)
	}
	if string(r.kind) != "step" || r.step != 12 || r.time != 17.25 || len(r.names) != 2 || string(r.names[1]) != "x" ||
		r.values[1] != -1.5e-3 ||
		!math.IsNaN(r.values[0]) || !slices.Equal(r.hist, []float64{1, 2, 3}) {
		t.Errorf("read %s %d %g %q %v %v", r.kind, r.step, r.time, r.names, r.values, r.hist)
	}
	for _, damaged := range []string{"", "{", "{}", "[]", `{"kind":"step"`, `{"kind":"step",}x`, `{"kind" "step"}`,
		`{"kind":}`, `{"kind":"step","a":[1}`, `{"a":1}`, "\x00", `{"kind":"st`} {
		if err := r.parse([]byte(damaged)); err == nil {
			t.Errorf("%q passes for a row", damaged)
		}
	}
}

func FuzzFlatRow(f *testing.F) {
	f.Add([]byte(`{"kind":"step","phase":"rce","global_step":1,"loss":0.5,"adv_hist":[1,2]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		var r flatRow
		if r.parse(line) == nil && len(r.names) != len(r.values) {
			t.Errorf("%d names and %d values", len(r.names), len(r.values))
		}
	})
}

// The mean over runs stands at the steps that all of them have with a finite number, its interval by Student's t.
func TestOver(t *testing.T) {
	run := func(steps []int64, loss, only []float64) *webchart.Drawn {
		d := &webchart.Drawn{Steps: steps, Times: make([]float64, len(steps)), Width: 1,
			Series: map[string]*webchart.DrawnColumn{"loss": {Mean: loss}}}
		if only != nil {
			d.Series["only"] = &webchart.DrawnColumn{Mean: only}
		}
		return d
	}
	nan := math.NaN()
	runs := []*webchart.Drawn{run([]int64{1, 2, 3, 4}, []float64{1, 2, 3, 4}, []float64{7, 7, 7, 7}),
		run([]int64{1, 3, 4, 5}, []float64{2, nan, 8, 9}, nil)}
	over := Over(runs)
	if c := over.Series["loss"]; !slices.Equal(over.Steps, []int64{1, 3, 4}) || c.Mean[0] != 1.5 ||
		!math.IsNaN(c.Mean[1]) || c.Mean[2] != 6 {
		t.Errorf("steps %v, means %v", over.Steps, c.Mean)
	} else if half := 12.706205 * 2.0; // t(0.975, 1), a standard error of 2
	math.Abs(c.Low[2]-(6-half)) > 1e-4 || math.Abs(c.High[2]-(6+half)) > 1e-4 {
		t.Errorf("the interval of 4 and 8 is %g to %g", c.Low[2], c.High[2])
	}
	if c := over.Series["only"]; !math.IsNaN(c.Mean[0]) {
		t.Errorf("a metric of one run has a mean: %v", c.Mean)
	}
	if low, high := MeanBand("val_reward", []float64{3}); !math.IsNaN(low) || !math.IsNaN(high) {
		t.Errorf("one seed has an interval, %g to %g", low, high)
	}
	runs[1].Width = 2
	if over := Over(runs); len(over.Steps) != 0 {
		t.Errorf("points of one and of two rows are averaged at %v", over.Steps)
	}
	shown := []Shown{{Started: 10, Steps: run([]int64{1}, []float64{1}, nil), Epochs: run(nil, nil, nil)},
		{Started: 100, Steps: run([]int64{1}, []float64{2}, nil), Epochs: run(nil, nil, nil)}}
	shown[0].Steps.Times[0], shown[1].Steps.Times[0] = 12, 104
	if m := OverSeeds("x", shown); m.Seeds != 2 || m.Steps.Times[0] != 3 {
		t.Errorf("%d seeds, at %v s, want 2 at 3 s from their starts", m.Seeds, m.Steps.Times)
	}
}
