package iclshapes

import (
	"bytes"
	"encoding/json"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/internal/rng"
	"fulcrum/internal/tensorfile"
)

func world(t *testing.T, opt Options) *World {
	t.Helper()
	w := NewWorld(opt)
	return w
}

// TestSimilarityHelpsAndIsNotEnough measures how often one of two demonstrations tells the answer, in pools of 64.
func TestSimilarityHelpsAndIsNotEnough(t *testing.T) {
	w := world(t, beamdata.DefaultICLShapesOptions())
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
	var random, similar, best int
	for q := w.opt.Records; q < len(w.asked); q++ {
		pool := rng.New(1, "pool", q).Perm(w.opt.Records)[:64]
		tells := func(rows []int) int {
			if slices.ContainsFunc(rows, func(row int) bool { return w.asked[row].key() == w.asked[q].key() }) {
				return 1
			}
			return 0
		}
		random, best = random+tells(pool[:2]), best+tells(pool)
		slices.SortStableFunc(pool, func(a, b int) int {
			if cosine(features[a], features[q]) > cosine(features[b], features[q]) {
				return -1
			}
			return 1
		})
		similar += tells(pool[:2])
	}
	n := w.opt.HeldOut
	t.Logf("of %d queries one of two demonstrations tells: random %d, similarity %d, any of the pool %d", n, random, similar, best)
	if 4*random > n || similar < 2*random || 10*similar > 7*n || best < n*95/100 {
		t.Errorf("random %d, similarity %d, best %d of %d: want random rarely, similarity at least twice as often and at most 70 %%, "+
			"and nearly every pool with one that tells", random, similar, best, n)
	}
}

// TestEveryEpisodeCanBeAnswered reads episodes as a model would.
func TestEveryEpisodeCanBeAnswered(t *testing.T) {
	opt := beamdata.DefaultICLShapesOptions()
	opt.Episodes = 300
	b := Episodes(opt)
	if b.Train.Len() != 300 || b.Val.Len() != heldEpisodes || b.Eval.Len() != heldEpisodes {
		t.Fatalf("%d, %d and %d samples", b.Train.Len(), b.Val.Len(), b.Eval.Len())
	}
	meanings := map[string]map[string]bool{} // of an ordinary word, over the episodes
	for i := range b.Train.Len() {
		s, err := b.Train.Sample(i)
		if err != nil {
			t.Fatal(err)
		}
		told := false
		for _, m := range s.Messages {
			told = told || m.Role == "assistant" && m.Text == s.Reference
		}
		if last := s.Messages[len(s.Messages)-1]; !told || last.Role != "user" {
			t.Fatalf("%s: nothing before %+v tells %q", s.Name, last, s.Reference)
		}
		name, word, _ := strings.Cut(s.Reference, " ")
		if meanings[name] == nil {
			meanings[name] = map[string]bool{}
		}
		meanings[name][word] = true
	}
	for name, of := range meanings {
		if len(of) < 5 {
			t.Errorf("%s is called %v only: it could be learned by heart", name, of)
		}
	}
}

func TestWrite(t *testing.T) {
	opt := beamdata.DefaultICLShapesOptions()
	opt.Records, opt.HeldOut = 20, 5
	w, dir := world(t, opt), t.TempDir()
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
