// Command testsummary reads `go test -json` and prints what a person wants to see of it: a line for
// each package with its number of tests, the output of what failed, the reason of what was skipped,
// and the counts. It judges nothing: the exit status is go test's own (set -o pipefail). With -reference it writes
// down which tests were skipped because they want reference data: a line for each package, with a pattern for -run.
//
//	go test -json ./... | go run ./scripts/testsummary -reference build/reference-tests
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// event is one line of `go test -json`; see `go doc cmd/test2json`.
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64 // seconds
}

// test is a test function or subtest while it runs: what it has printed so far.
type test struct{ pkg, name string }

func main() {
	reference := flag.String("reference", "", "write the tests that were skipped for want of reference data to this `file`")
	flag.Parse()
	skipped := summarise(os.Stdin, os.Stdout)
	if *reference == "" {
		return
	}
	if err := os.WriteFile(*reference, []byte(patterns(skipped)), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// wantsReference stands in the reason of every test that is skipped for want of reference data (internal/testkit/golden).
const wantsReference = "(set FULCRUM_SHARED)"

// patterns returns one line for each package with skipped tests: the package, and the pattern that runs them.
func patterns(skipped []test) string {
	names := map[string][]string{}
	for _, t := range skipped {
		top, _, _ := strings.Cut(t.name, "/")
		if !slices.Contains(names[t.pkg], top) {
			names[t.pkg] = append(names[t.pkg], top)
		}
	}
	var b strings.Builder
	for _, pkg := range slices.Sorted(maps.Keys(names)) {
		slices.Sort(names[pkg])
		fmt.Fprintf(&b, "%s ^(%s)$\n", pkg, strings.Join(names[pkg], "|"))
	}
	return b.String()
}

// summarise prints the summary and returns the tests that were skipped for want of reference data.
func summarise(in io.Reader, out io.Writer) (reference []test) {
	output := map[test][]string{}
	counts := map[string]map[string]int{} // package → action → tests
	total := map[string]int{}
	var skipped []string
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) != nil {
			out.Write(line) // not from test2json: show it as it is
		} else {
			key := test{e.Package, e.Test}
			switch e.Action {
			case "output":
				output[key] = append(output[key], e.Output)
			case "build-output":
				fmt.Fprint(out, e.Output)
			case "pass", "fail", "skip":
				text := strings.Join(output[key], "")
				delete(output, key)
				if e.Test == "" {
					packageLine(out, e, counts[e.Package], text)
					break
				}
				if counts[e.Package] == nil {
					counts[e.Package] = map[string]int{}
				}
				counts[e.Package][e.Action]++
				total[e.Action]++
				if e.Action == "fail" {
					fmt.Fprintf(out, "%s\n%s", e.Package, text)
				}
				if e.Action == "skip" {
					if strings.Contains(text, wantsReference) {
						reference = append(reference, key)
					}
					skipped = append(skipped, fmt.Sprintf("%s %s: %s", e.Package, e.Test, reason(text)))
				}
			}
		}
		if err != nil {
			break
		}
	}
	unfinished(out, output)
	slices.Sort(skipped)
	for _, line := range skipped {
		fmt.Fprintln(out, "skipped", line)
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", total["pass"], total["fail"], total["skip"])
	return reference
}

// packageLine prints a package's result; a failed one's own output too (a panic, a failing TestMain).
func packageLine(out io.Writer, e event, count map[string]int, text string) {
	switch {
	case e.Action == "skip": // no test files
	case e.Action == "fail":
		fmt.Fprintf(out, "%sFAIL  %-40s %6.1f s  %d tests, %d failed\n", text, e.Package, e.Elapsed, count["pass"]+count["fail"], count["fail"])
	default:
		fmt.Fprintf(out, "ok    %-40s %6.1f s  %d tests\n", e.Package, e.Elapsed, count["pass"])
	}
}

// unfinished prints the output of tests that never ended: a crash or a timeout stopped them.
func unfinished(out io.Writer, output map[test][]string) {
	var keys []test
	for key := range output {
		if key.name != "" {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b test) int { return strings.Compare(a.pkg+" "+a.name, b.pkg+" "+b.name) })
	for _, key := range keys {
		fmt.Fprintf(out, "did not finish: %s %s\n%s", key.pkg, key.name, strings.Join(output[key], ""))
	}
}

// reason is what a skipped test said: its output without the framework's lines.
func reason(text string) string {
	var said []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			said = append(said, line)
		}
	}
	return strings.Join(said, " ")
}
