package runreport_test

import (
	"os"
	"testing"

	"fulcrum/reports/record"
	"fulcrum/reports/runreport"
)

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
