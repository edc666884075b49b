package board

import (
	"strings"

	"fulcrum/reports/curves"
	"fulcrum/reports/record"
	"fulcrum/reports/webchart"
)

// judging are the metrics of validation that tell how a run goes, the best first.
func judging() []string {
	return []string{"val_reward", "val_recorded_reward", "val_accuracy", "val_loss"}
}

// longFile is how many bytes of rows are read for a line of the list, thirty of which are in sight: where there are more, some thousand
// steps, their index has to be there, which the run's page makes.
const longFile = 1 << 20

// sparks returns of some runs (ids with commas) the first metric of judging at the start and at the ends of epochs: by id, by its name.
func (b *Board) sparks(ids string) map[string]map[string]webchart.Numbers {
	out := map[string]map[string]webchart.Numbers{}
	for _, id := range strings.Split(ids, ",") {
		e, ok := b.run(id)
		if !ok || sizeOf(e.dir, record.MetricsFile) > longFile && sizeOf(e.dir, curves.IndexFolder+"/curves.idx") == 0 {
			continue
		}
		_ = b.rows(id, e.dir, func(c *curves.Curves, _ bool) { // what cannot be read its page says
			series := curves.DrawnOf(c.Epochs, judging(), 24, false).Series
			for _, name := range judging() {
				if series[name] != nil && out[id] == nil {
					out[id] = map[string]webchart.Numbers{name: series[name].Mean}
				}
			}
		})
	}
	return out
}
