package icl

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// listed returns the records of a table.
func listed(t *Table) (out []Record) {
	for _, r := range t.All() {
		out = append(out, r)
	}
	return out
}

// TestTable: records come out as they went in, whatever their texts hold and however long they are, and answers may come later.
func TestTable(t *testing.T) {
	long := strings.Repeat("long ", 1<<18) // more than a chunk
	want := []Record{
		{ID: 1, Image: "a.png", Question: "what?", Answers: []string{"red", "red", long, "", strings.Repeat("x", shortText+1)}, ImageID: 9},
		{ID: -2, Question: "", HeldOut: true},
		{ID: 3, Image: "a.png", Question: long, Answers: []string{"blue\x00", "red"}, ImageID: -1},
	}
	for i := range mostWords + 9000 { // more words than are shared
		want = append(want, Record{ID: int64(i), Image: fmt.Sprint(i/3, ".png"), Question: fmt.Sprintf(" what  is the number after %d? ", i),
			Answers: []string{fmt.Sprint(i), fmt.Sprint(i % 7)}})
	}
	table := TableOf(want...)
	check := func() {
		t.Helper()
		if got := listed(table); !reflect.DeepEqual(got, want) {
			t.Fatal("the records are others")
		}
	}
	check()
	want[1].Answers, want[0].Answers, want[5].Answers = []string{"late", "red"}, nil, append(want[5].Answers, "one more")
	for _, i := range []int{0, 1, 5} {
		table.answer(i, want[i].Answers)
	}
	table.reorder([]int{2, 1, 0})
	table.seal()
	want[0], want[2], want = want[2], want[0], want[:3]
	if check(); table.Answered(2) || !table.Answered(1) || table.ID(1) != -2 || table.ImageID(2) != 9 {
		t.Errorf("answered %v and %v, id %d, image %d", table.Answered(2), table.Answered(1), table.ID(1), table.ImageID(2))
	}
}

// TestRecordsTakeLittleMemory: records of ten annotators each take at most three quarters of their file, those with long questions half of
// it, so that with the collector's slack while they are read a dry run grows by no more than the file. As structs they took twice the file.
func TestRecordsTakeLittleMemory(t *testing.T) {
	words := func(i, n int) string { // of a vocabulary of 5,000, as a language's most frequent
		said := []string{"what is the man"}
		for k := range n {
			said = append(said, fmt.Sprintf("word%d", (i*n+k)*2654435761>>7%5000))
		}
		return strings.Join(said, " ")
	}
	answers := strings.Join([]string{"running", "running", "walking", "run", "running", "a walk", "jogging", "running", "going home",
		"running"}, `", "`)
	for _, tc := range []struct {
		name            string
		records, length int // words of a question
		answers         string
		most            float64 // bytes of memory a byte of file
	}{{"short questions", 50_000, 3, answers, 0.75}, {"long questions", 20_000, 60, "running", 0.5}} {
		t.Run(tc.name, func(t *testing.T) {
			var b strings.Builder
			for i := range tc.records {
				fmt.Fprintf(&b, `{"id": %d, "image": "val2014/COCO_val2014_%012d.jpg", "question": "%s", "answers": ["%s"], "image_id": %d}`+"\n",
					i, i/3, words(i, tc.length), tc.answers, i/3)
			}
			path := filepath.Join(t.TempDir(), "r.jsonl")
			if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			size := b.Len()
			b.Reset()
			live := func() int {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return int(m.HeapAlloc)
			}
			before := live()
			s, err := Load(path)
			if err != nil {
				t.Fatal(err)
			}
			took := float64(live()-before) / float64(size)
			t.Logf("%d records of a file of %d bytes take %.2f of it", s.Records.Len(), size, took)
			if took > tc.most {
				t.Errorf("want at most %.2f", tc.most)
			}
			runtime.KeepAlive(s)
		})
	}
}
