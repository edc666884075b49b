package main

import (
	"strings"
	"testing"
)

func TestSummarise(t *testing.T) {
	in := `{"Action":"build-output","ImportPath":"b","Output":"b.go:3: undefined: x\n"}
{"Action":"run","Package":"a","Test":"TestGood"}
{"Action":"output","Package":"a","Test":"TestGood","Output":"chatter\n"}
{"Action":"pass","Package":"a","Test":"TestGood","Elapsed":0.1}
{"Action":"output","Package":"a","Test":"TestBad","Output":"=== RUN   TestBad\n"}
{"Action":"output","Package":"a","Test":"TestBad","Output":"    a_test.go:9: got 1, want 2\n"}
{"Action":"fail","Package":"a","Test":"TestBad","Elapsed":0.1}
{"Action":"output","Package":"a","Test":"TestData","Output":"=== RUN   TestData\n"}
{"Action":"output","Package":"a","Test":"TestData","Output":"    a_test.go:5: no folder ../shared (set FULCRUM_SHARED)\n"}
{"Action":"output","Package":"a","Test":"TestData","Output":"--- SKIP: TestData (0.00s)\n"}
{"Action":"skip","Package":"a","Test":"TestData","Elapsed":0}
{"Action":"output","Package":"a","Test":"TestHangs","Output":"panic: test timed out\n"}
{"Action":"output","Package":"a","Output":"FAIL\ta\t0.2s\n"}
{"Action":"fail","Package":"a","Elapsed":0.2}
{"Action":"skip","Package":"c","Elapsed":0}
not json
`
	want := `b.go:3: undefined: x
a
=== RUN   TestBad
    a_test.go:9: got 1, want 2
FAIL	a	0.2s
FAIL  a                                           0.2 s  2 tests, 1 failed
not json
did not finish: a TestHangs
panic: test timed out
skipped a TestData: a_test.go:5: no folder ../shared (set FULCRUM_SHARED)
1 passed, 1 failed, 1 skipped
`
	var out strings.Builder
	reference := summarise(strings.NewReader(in), &out)
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
	if got := patterns(append(reference, test{"a", "TestMore/x"}, test{"a", "TestMore/y"},
		test{"b", "TestOther"})); got != "a ^(TestData|TestMore)$\nb ^(TestOther)$\n" {
		t.Errorf("patterns:\n%s", got)
	}
}
