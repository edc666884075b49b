//go:build !core

package page

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"fulcrum/internal/parquet"
	"fulcrum/internal/testkit/golden"
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
		{"data as Markdown", data.Markdown, "| run_id | kl |\n|---|---|\n| a,b \"c\" | 0.3000 |\n|  | -Inf |\n| true | 7 |\n"},
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

// A table as Parquet: kinds by what the columns hold, more rows than one row group. pyarrow 26 and pandas 3.1 read
// testdata's file as intended: flag True False None, count 1 NaN -3, kl 0.5 7 NaN, text é NaN a_b, mixed 1 x 0.25, none NaN.
func TestTableParquet(t *testing.T) {
	data := NewData("", "flag", "count", "kl", "text", "mixed", "none")
	data.Rows = [][]any{{true, 1, 0.5, "é", 1, nil}, {false, nil, 7, nil, "x"}, {nil, -3, math.NaN(), Markup("a\\_b"), 0.25, nil}}
	var small bytes.Buffer
	if err := data.Parquet(&small); err != nil {
		t.Fatal(err)
	}
	golden.File(t, "testdata/table.parquet", small.Bytes())
	path := filepath.Join(t.TempDir(), "big.parquet")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	const rows = 120_001
	data.Rows, data.Stream = nil, func(yield func([]any) bool) {
		for i := range rows {
			if row := []any{nil, i * i, nil, fmt.Sprint("row ", i)}; !yield(row[:2+2*(i%2)]) {
				return
			}
		}
	}
	if err := data.Parquet(f); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	read, err := parquet.Open(path)
	if err != nil || read.Rows() != rows {
		t.Fatalf("%d rows, %v", read.Rows(), err)
	}
	for _, i := range []int64{0, 1, 49_999, 50_000, rows - 2, rows - 1} {
		for name, want := range map[string]string{"count": fmt.Sprint(i * i), "text": fmt.Sprint("row ", i)} {
			column, err := read.Column(name)
			if err != nil {
				t.Fatal(err)
			}
			got, there, err := column.Text(i)
			if name == "text" && i%2 == 0 {
				want = ""
			}
			if err != nil || got != want || there != (want != "") {
				t.Errorf("%s of row %d: %q %v %v, want %q", name, i, got, there, err, want)
			}
		}
	}
}

// A table that is wider than the terminal comes in parts that are not; a column without a name stays with the one before.
func TestTableWithinAWidth(t *testing.T) {
	table := NewTable([]string{"policy", ">mean", ">over initial", "", ">over similarity", ""}, [][]string{
		{"best", "0.4388 ± 0.0096", "+0.1215 [+0.1019, +0.1411]", "better", "–", ""},
		{"after grpo (epoch 4)", "0.4388 ± 0.0096", "+0.1215 [+0.1019, +0.1411]", "not separable †", "0", "same scores"}})
	for width, want := range map[int]int{0: 4, 80: 3*4 + 2, 200: 4} {
		var b bytes.Buffer
		if err := table.ConsoleWithin(&b, width); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(line) - 1; width > 0 && n > width {
				t.Errorf("%d columns, want at most %d: %s", n, width, line)
			}
		}
		if got := strings.Count(b.String(), "\n"); got != want || !strings.Contains(b.String(), "0.1411]  not separable †") {
			t.Errorf("%d lines within %d columns, want %d:\n%s", got, width, want, b.String())
		}
	}
}

// Each part of a wide table has all columns that name a row.
func TestPartsNameTheirRows(t *testing.T) {
	table := NewTable([]string{"method", ">shots", "first long column", "second long column"}, [][]string{{"sft", "1", "a", "b"},
		{"sft", "2", "c", "d"}})
	for named, want := range map[int]string{0: "method shots first long column sft 1 a sft 2 c method second long column sft b sft d",
		2: "method shots first long column sft 1 a sft 2 c method shots second long column sft 1 b sft 2 d"} {
		table.Named = named
		var b bytes.Buffer
		if err := table.ConsoleWithin(&b, 40); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(strings.ReplaceAll(b.String(), "─", "")), " "); got != want {
			t.Errorf("%d columns name a row: %s, want %s", named, got, want)
		}
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

// No text of a table is a formula in a spreadsheet; numbers stay numbers.
func TestCSVHasNoFormulas(t *testing.T) {
	table := NewData("", "=name", "b")
	table.Rows = [][]any{{"=1+1", -0.5}, {"-0.5", "@SUM(A1)"}, {"+grpo.lr=1", "~rce"}, {Markup("-x"), "-"}, {"-inf", "\t=1"}}
	for _, tc := range []struct {
		write func(*Table, io.Writer) error
		want  string
	}{
		{(*Table).CSV, "'=name,b\n'=1+1,-0.5\n-0.5,'@SUM(A1)\n'+grpo.lr=1,~rce\n'-x,-\n-inf,'\t=1\n"},
		{(*Table).CSVAsIs, "=name,b\n=1+1,-0.5\n-0.5,@SUM(A1)\n+grpo.lr=1,~rce\n-x,-\n-inf,\"\t=1\"\n"},
	} {
		var got strings.Builder
		if err := tc.write(table, &got); err != nil || got.String() != tc.want {
			t.Errorf("%q, %v; want %q", got.String(), err, tc.want)
		}
	}
}
