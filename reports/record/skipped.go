package record

import (
	_ "embed"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/reports/page"
)

// SkippedText puts a count of DataSummary.Skipped, which is data that is not used, into words: "3 queries without beams".
func SkippedText(reason string, n int) string {
	who, name, ok := strings.Cut(reason, ": ") // of one phase
	if ok {
		return who + ": " + SkippedText(name, n)
	}
	table := list.Map(strings.Split(strings.TrimSuffix(skippedLines, "\n"), "\n"), func(line string) [3]string {
		return [3]string(strings.Split(line, "\t"))
	})
	at := slices.IndexFunc(table, func(row [3]string) bool { return row[0] == reason })
	if at < 0 {
		return page.Thousands(n) + " " + strings.ReplaceAll(reason, "_", " ")
	}
	noun, rest := table[at][1], table[at][2]
	if reason == "query_dropped_from_its_pool" && n == 1 {
		rest = "in its own candidate pool"
	}
	return strings.TrimSuffix(page.Plural(n, noun)+" "+rest, " ")
}

// skippedLines lists reasons, what one of the skipped is, and what is wrong with it: a line each, parted by tabs. A
// query is dropped from its own pool because no question may show its own answer.
//
//go:embed skipped.tsv
var skippedLines string
