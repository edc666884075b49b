//go:build !core

package vl

import (
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/vl/processor"
)

// TestEncoder: a text's vector is the mean of the rows that predict what follows each of its beginnings, computed one by one, whatever
// stands beside it in the batch.
func TestEncoder(t *testing.T) {
	for _, tc := range familyCases(t) {
		t.Run(tc.Name, func(t *testing.T) {
			m := mustOpenAt(t, tc.folder(t, nil))
			if m.vision != nil { // its case has placeholders of pictures
				tc.IDs = []int64{5, 17, 3, 41}
			}
			got, err := (&Encoder{Model: m}).Texts([][]int64{tc.IDs[:3], tc.IDs, tc.IDs[1:2]})
			if err != nil {
				t.Fatal(err)
			}
			width := m.cfg.Hidden
			for i, text := range [][]int64{tc.IDs[:3], tc.IDs, tc.IDs[1:2]} {
				want := make([]float64, width)
				for n := range text {
					for k, v := range lastRow(t, m, text[:n+1]) {
						want[k] += v / float64(len(text))
					}
				}
				row := make([]float64, width)
				for k := range row {
					row[k] = float64(got[i*width+k])
				}
				golden.Close(t, row, want, 1e-5) // float32 sums of other shapes
			}
			if _, err := (&Encoder{Model: m}).Texts([][]int64{tc.IDs, {}}); err == nil {
				t.Error("an empty text has a vector")
			}
		})
	}
}

// lastRow is the decoder's row behind the last token.
func lastRow(t *testing.T, m *Model, ids []int64) []float64 {
	t.Helper()
	defer torchx.Scope()()
	hidden, _, err := m.Hidden([]Group{{Prompt: &processor.Prompt{IDs: ids}, Completions: [][]int64{{1}}}}, &lora.Pass{})
	if err != nil {
		t.Fatal(err)
	}
	return hidden.Floats()
}
