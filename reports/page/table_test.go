package page

import (
	"bytes"
	"io"
	"math"
	"slices"
	"testing"
)

// One value renders everywhere: escapes of Markdown are gone outside of it, numbers are whole where programs read them.
func TestTableRenders(t *testing.T) {
	table := NewTable([]string{"policy", ">gain", "`a\\|b`"}, [][]string{
		{"best\\_of [n](x.md)", "+0.02 [−0.01, +0.05]", "`x < y_z`"}, {"a<br>b & 5 %", "", "&lt;i>"}})
	table.Title = "Reward on val_1"
	third := 0.1
	third *= 3 // no decimal of 16 digits reads back to it
	data := NewData("", "run_id", "kl")
	data.Rows = [][]any{{"a,b\n\"c\"", third}, {nil, math.Inf(-1)}, {true, 7}}
	for _, tc := range []struct {
		name  string
		write func(io.Writer) error
		want  string
	}{
		{"Markdown as written", table.Markdown, "| policy | gain | `a\\|b` |\n|---|---:|---|\n" +
			"| best\\_of [n](x.md) | +0.02 [−0.01, +0.05] | `x < y_z` |\n| a<br>b & 5 % |  | &lt;i> |\n"},
		{"a terminal", table.Console, " policy                     gain  a|b\n──────────────────────────────────────────\n" +
			" best_of n  +0.02 [−0.01, +0.05]  x < y_z\n a b & 5 %                        <i>\n"},
		{"LaTeX", table.LaTeX, "% Reward on val_1\n\\begin{tabular}{lrl}\n\\toprule\npolicy & gain & a|b \\\\\n\\midrule\n" +
			"best\\_of n & +0.02 [$-$0.01, +0.05] & x \\textless{} y\\_z \\\\\na b \\& 5 \\% &  & \\textless{}i\\textgreater{} \\\\\n" +
			"\\bottomrule\n\\end{tabular}\n"},
		{"CSV", table.CSV, "policy,gain,a|b\nbest_of n,\"+0.02 [−0.01, +0.05]\",x < y_z\na b & 5 %,,<i>\n"},
		{"data as CSV", data.CSV, "run_id,kl\n\"a,b\n\"\"c\"\"\",0.30000000000000004\n,-inf\ntrue,7\n"},
		{"data as JSON", data.JSON, "[\n {\"run_id\": \"a,b\\n\\\"c\\\"\", \"kl\": 0.30000000000000004},\n" +
			" {\"run_id\": null, \"kl\": \"-inf\"},\n {\"run_id\": true, \"kl\": 7}\n]\n"},
		{"data as Markdown", data.Markdown, "| run\\_id | kl |\n|---|---|\n| a,b \"c\" | 0.3000 |\n|  | -Inf |\n| true | 7 |\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got bytes.Buffer
			if err := tc.write(&got); err != nil || got.String() != tc.want {
				t.Errorf("%v, got\n%s\nwant\n%s", err, got.String(), tc.want)
			}
		})
	}
	var held, streamed bytes.Buffer
	stream := *data
	stream.Rows, stream.Stream = nil, slices.Values(data.Rows)
	if err := data.CSV(&held); err != nil {
		t.Fatal(err)
	}
	if err := stream.CSV(&streamed); err != nil || held.String() != streamed.String() {
		t.Errorf("streamed rows give %q (%v), held ones %q", streamed.String(), err, held.String())
	}
}

// What Markdown begins a line with is text in a cell.
func TestPlainText(t *testing.T) {
	for markdown, want := range map[Markup]string{"- a_b_": "- a_b_", "# *x*": "# x", "1. `y`": "1. y", "\\[z\\]": "[z]", "": "",
		"> q \\*": "> q *", Markup(Plain("a | `b` <c> [d](e) **f**")): "a | `b` <c> [d](e) **f**", "`&lt;`": "&lt;"} {
		if got := PlainText(markdown); got != want {
			t.Errorf("PlainText(%q) = %q, want %q", markdown, got, want)
		}
	}
}
