package runreport_test

import (
	"fmt"
	"os"
	"testing"

	"fulcrum/reports/record"
	"fulcrum/reports/runreport"
	"fulcrum/reports/stats"
)

func ExampleComparePaired() {
	similarity := []float64{0, 0, 0.1, 0, 0.4, 0, 0, 0.2, 0, 0.3, 0, 0.1}
	trained := []float64{0, 0.3, 0.2, 0, 0.6, 0.1, 0, 0.4, 0.2, 0.5, 0.1, 0.3}
	p, err := stats.ComparePaired(trained, similarity, nil, stats.DefaultOptions())
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Sentence("the trained policy", "similarity", "reward"))
	// Output: the trained policy is better than similarity: +0.1333 reward per question, 95% interval +0.0708 to
	// +0.1959, 12 questions, p = 0.0039; rough: 12 independent questions are few, and what happens on less than 25% of
	// all may not show
}

func ExampleLog() {
	dir, err := os.MkdirTemp("", "run")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	log, err := record.OpenLog(dir, record.LogOptions{LoggingOptions: record.DefaultLoggingOptions()})
	if err != nil {
		panic(err)
	}
	if err := log.Record("step", "rce", 1, 1, 1, map[string]any{"loss": 7.9}); err != nil {
		panic(err)
	}
	if err := log.Close(); err != nil {
		panic(err)
	}
	run, err := record.ReadRun(dir)
	if err != nil {
		panic(err)
	}
	fmt.Println(run.StepsOf("rce").Column("loss"))
	// Output: [7.9]
}

// Whatever stands in metrics.jsonl and evals.jsonl, reading them is a result or an error.
func FuzzReadRun(f *testing.F) {
	f.Add([]byte(`{"kind":"step","phase":"rce","epoch":1,"step":1,"global_step":1,"time":1.0,"loss":"nan","adv_hist":[1,2]}`+"\n"),
		[]byte(`{"split":"val","policy":"init","metric":"reward","query_ids":[1],"scores":[0.5]}`+"\n"))
	f.Add([]byte("{}\n"), []byte("[]\n"))
	f.Add([]byte(`{"kind":"epoch","phase":"","epoch":1e99,"step":-1,"global_step":0.5}`+"\n"), []byte("\n"))
	f.Fuzz(func(t *testing.T, metrics, evals []byte) {
		dir := t.TempDir()
		for name, data := range map[string][]byte{"metrics.jsonl": metrics, "evals.jsonl": evals} {
			if err := os.WriteFile(dir+"/"+name, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := record.ReadRun(dir); err != nil {
			return
		}
		if err := runreport.WriteReport(dir); err != nil {
			t.Logf("no report: %v", err)
		}
	})
}
