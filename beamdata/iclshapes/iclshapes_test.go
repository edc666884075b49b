package iclshapes

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fulcrum/beamdata"
	"fulcrum/internal/rng"
	"fulcrum/internal/tensorfile"
)

// reads is the chance that a reader without fault answers with these demonstrations: it takes a tongue of theirs for the query's.
func (w *World) reads(q thing, shown ...int) (chance float64) {
	for _, row := range shown {
		if w.tongues[w.asked[row].village] == w.tongues[q.village] {
			chance += 1 / float64(len(shown))
		}
	}
	return chance
}

// TestDemonstrationsMatter measures what a reader without fault would answer in pools of 12, by chance, with the most similar and
// with the best two.
func TestDemonstrationsMatter(t *testing.T) {
	w := NewWorld(beamdata.DefaultICLShapesOptions())
	cosine := func(a, b []float32) (c float32) {
		for i := range a {
			c += a[i] * b[i]
		}
		return c
	}
	features := make([][]float32, len(w.asked))
	for row := range features {
		features[row] = w.asked[row].features()
		if n := cosine(features[row], features[row]); n < 0.999 || n > 1.001 {
			t.Fatalf("record %d has features of squared length %v, want 1", row, n)
		}
	}
	var random, similar, best float64
	n := float64(w.opt.HeldOut)
	for row := w.opt.Records; row < len(w.asked); row++ {
		q := w.asked[row]
		pool := rng.New(1, "pool", row).Perm(w.opt.Records)[:12]
		random += w.reads(q, pool[:2]...) / n
		slices.SortStableFunc(pool, func(a, b int) int {
			return cmp.Compare(cosine(features[b], features[row]), cosine(features[a], features[row]))
		})
		similar += w.reads(q, pool[:2]...) / n
		top := 0.0
		for i, a := range pool {
			for _, b := range pool[:i] {
				top = max(top, w.reads(q, a, b))
			}
		}
		best += top / n
	}
	t.Logf("read right: random %.2f, similarity %.2f, best two %.2f", random, similar, best)
	if random > 0.4 || similar > 0.75 || similar < random+0.05 || best < 0.9 {
		t.Error("want chance a third, similarity somewhat better, and nearly every pool with two that tell")
	}
}

// TestAnswersAreNotInTheText counts how often the demonstrations of an episode hold the answer's words, as often as by chance, and
// how many lessons there are.
func TestAnswersAreNotInTheText(t *testing.T) {
	opt := beamdata.DefaultICLShapesOptions()
	opt.Episodes = 600
	b := Episodes(opt)
	if b.Train.Len() != 600 || b.Val.Len() != heldEpisodes || b.Eval.Len() != heldEpisodes {
		t.Fatalf("%d, %d and %d samples", b.Train.Len(), b.Val.Len(), b.Eval.Len())
	}
	held, same, asked := 0, 0, map[string]int{}
	for i := range b.Val.Len() {
		s, err := b.Val.Sample(i)
		if err != nil {
			t.Fatal(err)
		}
		told := ""
		for _, m := range s.Messages {
			if m.Role == "assistant" {
				told += m.Text + " "
			}
		}
		for _, word := range strings.Fields(s.Reference) {
			if held++; strings.Contains(told, word) {
				same++
			}
		}
	}
	for i := range b.Train.Len() {
		s, err := b.Train.Sample(i)
		if err != nil {
			t.Fatal(err)
		}
		asked[s.Messages[len(s.Messages)-1].Parts[1].Text]++
	}
	if part := float64(same) / float64(held); held != heldEpisodes || part < 0.5 || part > 0.62 {
		t.Errorf("demonstrations hold %.2f of %d words of the answers, want 5 of 9: what chance gives", part, held)
	}
	if asked["colour"] < 150 || asked["tongue"] < 150 || asked["one colour"] < 60 || asked["two colour"] < 30 {
		t.Errorf("lessons ask %v", asked)
	}
}

func TestWrite(t *testing.T) {
	opt := beamdata.DefaultICLShapesOptions()
	opt.Records, opt.HeldOut = 20, 5
	w, dir := NewWorld(opt), t.TempDir()
	if err := w.Write(dir); err != nil {
		t.Fatal(err)
	}
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	records := bytes.Split(bytes.TrimSpace(read(RecordsFile)), []byte("\n"))
	var r struct {
		ID      int
		Image   string
		Answers []string
		Split   string
	}
	if err := json.Unmarshal(records[24], &r); err != nil || len(records) != 25 || r.ID != 24 || r.Split != "val" || len(r.Answers) != 10 {
		t.Errorf("%d records, the last %+v, %v", len(records), r, err)
	}
	if img, err := png.Decode(bytes.NewReader(read(r.Image))); err != nil || img.Bounds().Dx() != 64 {
		t.Errorf("%s: %v", r.Image, err)
	}
	f, err := tensorfile.ReadSafetensors(filepath.Join(dir, FeaturesFile))
	if err != nil || len(f.Tensors) != 1 || f.Tensors[0].Shape[0] != 25 {
		t.Errorf("features: %v", err)
	}
}

// Jobs that start together write one world. What the first has written whole it reads, and no other empties it meanwhile.
func TestWriteLeavesWhatIsThere(t *testing.T) {
	opt, dir := beamdata.DefaultICLShapesOptions(), t.TempDir()
	opt.Records, opt.HeldOut = 20, 5
	w := NewWorld(opt)
	path, old := filepath.Join(dir, imageOf(3)), time.Unix(1e9, 0)
	for range 2 {
		if err := w.Write(dir); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err == nil && old.Equal(info.ModTime()) {
			return
		}
		if err = errors.Join(err, os.Chtimes(path, old, old)); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("a picture that was there is written again")
}
