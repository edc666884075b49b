package beamdata

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// Questions have their image in common, or the value of another key of items.jsonl.
func TestItemsKnowTheirClusters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "items.jsonl")
	text := `{"idx": 0, "image_id": 7, "question": "what", "source": "web", "page": 9007199254740993}
{"idx": 2, "image_id": 7, "question": "who", "answer_counts": {"a": 3}, "source": 5, "page": 9007199254740992}
{"idx": 1, "question": "what", "source": null}
`
	write(t, path, text)
	for key, want := range map[string]string{"": "[7  7  ]", "image_id": "[7  7  ]", "question": "[what what who  ]",
		"source": "[web  5  ]", "page": "[9007199254740993  9007199254740992  ]", "sauce": "[    ]"} {
		items := &Items{}
		if _, _, err := items.readItems(path, key, 4); err != nil {
			t.Fatal(err)
		}
		b := Bundle{Items: items, cluster: key}
		if got := fmt.Sprint([]string{b.Cluster(0), b.Cluster(1), b.Cluster(2), b.Cluster(3), (&Bundle{}).Cluster(0)}); got != want {
			t.Errorf("key %q: got %s, want %s", key, got, want)
		}
	}
}

// A row has one line: files that tell the same of it are read, and nothing says which of two others is right.
func TestItemsDisagree(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "items.jsonl"), filepath.Join(dir, "items_old.jsonl")
	write(t, a, `{"idx": 0, "question": "what", "tags": ["x"]}`+"\n"+`{"idx": 1, "answer": "yes"}`)
	for text, want := range map[string]string{
		`{"idx": 1, "answer": "yes"} {"idx": 0, "question": "what", "tags": ["x"]}`: "<nil>",
		`{"idx": 2, "answer": null, "image_id": null, "tags": null}`:                "<nil>",
		`{"idx": 2, "image_id": "a.jpg"}`: b +
			": image_id: line 1 (byte 23): found a string, want an integer",
		`{"idx": 2, "answer_counts": {"no": -3}}`: b +
			`: answer_counts: line 1 (byte 37): "no" was given -3 times: want 0 or more`,
		`{"idx": 2, "answer_counts": {"no": "3"}}`: b +
			": answer_counts: line 1 (byte 35): found a string, want an integer",
		`{"idx": 2}` + "\n\x00\n" + `{"idx": 3}`: b + ": line 2 (byte 11): a NUL byte",
		`{"idx": 2}` + "\n" + `{"idx": 1, "answer": "no"}`: b + ": line 2 (byte 37): idx 1 has other values than in line 2 of " + a +
			": want one line for each idx",
	} {
		write(t, b, text)
		items := &Items{}
		_, _, err := items.readItems(a, "", 4)
		if err == nil {
			_, _, err = items.readItems(b, "", 4)
		}
		if fmt.Sprint(err) != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// Records of beam files say their picture, too, by number or by name: questions about it are one cluster, and no candidates of training.
func TestBeamsKnowTheirPictures(t *testing.T) {
	about := func(id int, image string) string {
		return fmt.Sprintf(`"%d":{"query":{"query_id":%[1]d,"image_id":%s},"candidate_pool_ids":[10,11,12,13],`+
			`"pointer_candidates":[{"pointer":[10,11],%s}]}`, id, image, traj)
	}
	for _, change := range []func(*Options){nil, func(o *Options) { o.Compat = true }} {
		b, err := loadContent(t, "{"+about(0, "7")+","+about(1, `"7"`)+","+about(2, `"a.jpg"`)+","+about(3, `"a.jpg"`)+","+about(4, "null")+
			","+about(5, "[8]")+"}", change)
		if err != nil {
			t.Fatal(err)
		}
		if b.Cluster(0) != "7" || b.Cluster(1) != "7" || b.Cluster(2) == "" || b.Cluster(2) != b.Cluster(3) || b.Cluster(2) == "7" ||
			b.Cluster(4)+b.Cluster(5)+b.Cluster(6) != "" {
			t.Errorf("clusters %q %q %q %q %q", b.Cluster(0), b.Cluster(1), b.Cluster(2), b.Cluster(3), b.Cluster(4))
		}
	}
	for text, want := range map[string]string{"7.0": "7", `"7.0"`: "7", "7e0": "7", `" 7"`: "7", "NaN": "", "-1": "", `"None"`: "", `" "`: "", "Infinity": "",
		`"nan"`: ""} {
		if b, err := loadContent(t, "{"+about(0, text)+"}", nil); err != nil || b.Cluster(0) != want {
			t.Errorf("image_id %s: cluster %q (%v), want %q", text, b.Cluster(0), err, want)
		}
	}
	b, err := loadContent(t, "{"+about(0, "7")+"}", func(o *Options) { o.Cluster = "doc_id" })
	if err != nil || b.Cluster(0) != "" {
		t.Errorf("another key's cluster is %q (%v)", b.Cluster(0), err)
	}
	val := filepath.Join(t.TempDir(), "val.json")
	write(t, val, "{"+about(14, "7")+"}") // about the picture of row 0, which is a candidate of query 1
	b, err = loadContent(t, "{"+about(0, "7")+","+strings.ReplaceAll(about(1, "8"), "13]", "0]")+"}", func(o *Options) { o.ValBeams = &val })
	if err != nil || fmt.Sprint(b.RCE.Pool(byID(b.RCE)[1])) != "[10 11 12]" {
		t.Errorf("the pool of query 1 is %v (%v), want no question about a held-out picture", b.RCE.Pool(byID(b.RCE)[1]), err)
	}
}

// A picture of most queries is a placeholder: none for the split, for pools and for clusters. The other pictures stay.
func TestAPictureOfMostQueriesIsNone(t *testing.T) {
	var beams, eval []string
	for id := range 16 { // rows 16 to 19 are of no query
		about := func(image, last int) string {
			return fmt.Sprintf(`"%d":{"query":{"image_id":%d},"candidate_pool_ids":[16,17,%d],"pointer_candidates":[{"pointer":[16,17],%s}]}`,
				id, image, last, traj)
		}
		picture := 0
		if id >= 10 {
			picture = id / 2 // 10 and 11, 12 and 13, 14 and 15
		}
		beams, eval = append(beams, about(picture, (id+1)%16)), append(eval, about(0, 18))
	}
	b, err := loadContent(t, "{"+strings.Join(beams, ",")+"}", nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := b.Val.Len(); n != 4 && n != 5 { // a fifth of 16, and one more where the last is half of a picture
		t.Errorf("%d validation queries, want 4 or 5", n)
	}
	held := heldOutRows(b)
	for i := range b.RCE.Len() {
		if id := b.RCE.IDs[i]; id < 9 && !held[int32(id+1)] && b.RCE.PoolSize(i) != 3 {
			t.Errorf("the pool of query %d is %v: it lost a question with the placeholder", id, b.RCE.Pool(i))
		}
	}
	if b.Cluster(0) != "" || b.Cluster(10) != "5" || b.Cluster(11) != "5" {
		t.Errorf("clusters %q, %q and %q, want none, 5 and 5", b.Cluster(0), b.Cluster(10), b.Cluster(11))
	}
	alone := filepath.Join(t.TempDir(), "eval.json")
	write(t, alone, "{"+strings.Join(eval, ",")+"}")
	opt := testOptions()
	opt.Eval.Beams, opt.Embeddings = &alone, ptr(writeTable(t, t.TempDir(), 20))
	if b, err = Load(opt); err != nil || b.Cluster(0) != "" {
		t.Errorf("evaluation alone: cluster %q (%v), want none", b.Cluster(0), err)
	}
}
