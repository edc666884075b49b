package shapes

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"fulcrum/internal/rng"
)

// small is a set that takes a fraction of a second.
func small() Options {
	o := DefaultOptions()
	o.TrainQueries, o.ReaderQuestions, o.ValQueries, o.DevQueries = 240, 60, 30, 60
	return o
}

var whole = sync.OnceValues(func() (*Data, error) { return Generate(DefaultOptions()) })

func generate(t *testing.T, opt Options) *Data {
	t.Helper()
	d, err := Generate(opt)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *Data) queries() []Query { return slices.Concat(d.Train, d.Val, d.Dev) }

// digest covers everything a run can see of a set.
func digest(t *testing.T, d *Data) string {
	t.Helper()
	h := sha256.New()
	put := func(v any) {
		if err := binary.Write(h, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	put(d.Embeddings)
	for _, it := range d.Items {
		fmt.Fprintln(h, it.Split, it.Scene, it.Question, it.Answer, it.Answers)
	}
	for _, q := range d.queries() {
		put(q.Row)
		put(q.Pool)
		fmt.Fprintf(h, "%.4f %.4f %.4f %.6f %s\n", q.Score, q.DemoAcc, q.PriorScore, q.PriorAcc, q.PriorTop)
		for _, b := range q.Beams {
			fmt.Fprintf(h, "%v %.9f\n", b.Positions, b.Soft)
		}
		for _, r := range q.Records {
			fmt.Fprintf(h, "%v %s %d %.5f %v %s %v %.9f\n", r.Positions, r.Method, r.BeamRank, r.LogProb, r.Temperature, r.Answer,
				r.Accuracy, r.Soft)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

func TestSameOptionsSameBits(t *testing.T) {
	// A change of the set changes this: then every number measured on it is void.
	const golden = "278adbaa089768faae0ec00ef07dec76483a8d5d10d334fef06b902f8318eb39"
	got := digest(t, generate(t, small()))
	old := runtime.GOMAXPROCS(1)
	alone := digest(t, generate(t, small()))
	runtime.GOMAXPROCS(5)
	many := digest(t, generate(t, small()))
	runtime.GOMAXPROCS(old)
	if got != alone || got != many {
		t.Errorf("the set depends on the number of processors: %s with %d, %s with 1, %s with 5", got, old, alone, many)
	}
	if runtime.GOARCH == "amd64" && got != golden {
		t.Errorf("digest %s, want %s", got, golden)
	}
	other := small()
	other.Seed++
	if digest(t, generate(t, other)) == got {
		t.Error("another seed gives the same set")
	}
}

func TestSplitsAreHonest(t *testing.T) {
	d := generate(t, small())
	splitOf := map[int]string{}
	pictures := map[string]string{}
	for i, it := range d.Items {
		if s, ok := splitOf[it.Scene]; ok && s != it.Split {
			t.Errorf("scene %d is in %s and in %s", it.Scene, s, it.Split)
		}
		splitOf[it.Scene] = it.Split
		picture := string(d.scenes[it.Scene].render().Pix)
		if s, ok := pictures[picture]; ok && s != it.Split {
			t.Errorf("row %d: a picture of %s is in %s too", i, s, it.Split)
		}
		pictures[picture] = it.Split
	}
	for split, want := range map[string]int{Train: 300, Val: 30, Dev: 60} {
		n := 0
		for _, it := range d.Items {
			if it.Split == split {
				n++
			}
		}
		if n != want {
			t.Errorf("%s has %d rows, want %d", split, n, want)
		}
	}
	for split, queries := range map[string][]Query{Train: d.Train, Val: d.Val, Dev: d.Dev} {
		for _, q := range queries {
			if got := d.Items[q.Row].Split; got != split {
				t.Errorf("query %d of %s is a row of %s", q.Row, split, got)
			}
		}
	}
	for row := 240; row < 300; row++ { // the prior's questions are no queries
		if slices.ContainsFunc(d.Train, func(q Query) bool { return int(q.Row) == row }) {
			t.Errorf("row %d is in the reader's prior and a query", row)
		}
	}
	if d.Prior.N != 60 {
		t.Errorf("the prior saw %g questions, want 60", d.Prior.N)
	}
}

func TestEveryQuestionHasTenAnswers(t *testing.T) {
	d := generate(t, small())
	right, total := 0, 0
	for id := range d.scenes {
		r := rng.New(d.Options.Seed, "shapes questions", id)
		items := slices.DeleteFunc(slices.Clone(d.Items), func(it Item) bool { return it.Scene != id })
		for i, q := range d.scenes[id].questions(r, len(items)) {
			q.answers(r) // keeps the stream in step
			total++
			if items[i].Answer == q.truth {
				right++
			}
		}
	}
	if share := float64(right) / float64(total); total != 390 || share < 0.9 || share == 1 {
		t.Errorf("the most frequent answer is true for %d of %d questions, want most but not all of 390", right, total)
	}
	distinct := map[string]bool{}
	for i, it := range d.Items {
		n := 0
		for k, a := range it.Answers {
			n += a.Count
			if k > 0 && a.Count > it.Answers[k-1].Count {
				t.Errorf("row %d: answers are not sorted: %v", i, it.Answers)
			}
		}
		if n != 10 || it.Answer != it.Answers[0].Answer {
			t.Errorf("row %d: %d answers, answer %q of %v", i, n, it.Answer, it.Answers)
		}
		distinct[it.Answer] = true
	}
	if len(distinct) < 20 {
		t.Errorf("only %d different answers: %v", len(distinct), slices.Sorted(maps.Keys(distinct)))
	}
}

// The short form agrees with the official definition: the mean over the ten subsets of nine annotators.
func TestVQAAccuracyIsTheOfficialOne(t *testing.T) {
	for count := range annotators + 1 {
		want := 0.0
		for left := range annotators {
			others := count
			if left < count {
				others--
			}
			want += math.Min(1, float64(others)/3) / annotators
		}
		if got := vqaAccuracy(count); math.Abs(got-want) > 1e-12 {
			t.Errorf("%d of 10: %v, want %v", count, got, want)
		}
	}
}

func TestEmbeddings(t *testing.T) {
	d := generate(t, small())
	if len(d.Embeddings) != len(d.Items)*Dim || d.Dim != Dim {
		t.Fatalf("%d numbers for %d rows of %d", len(d.Embeddings), len(d.Items), Dim)
	}
	byText := map[string][]float32{}
	for i, it := range d.Items {
		row := d.Embeddings[i*Dim : (i+1)*Dim]
		sum := 0.0
		for k, v := range row {
			sum += float64(v) * float64(v)
			if scaled := float64(v) * grid; scaled != math.Round(scaled) {
				t.Fatalf("row %d, column %d: %v is not on the grid", i, k, v)
			}
		}
		if math.Abs(math.Sqrt(sum)-1) > 3e-4 { // rounding to 1/8192 moves the length of 256 columns by about 1e-4
			t.Errorf("row %d has length %v", i, math.Sqrt(sum))
		}
		if old, ok := byText[it.Question]; ok && !slices.Equal(old, row[:questionDim]) {
			t.Errorf("row %d: %q has two question blocks: something but its words went in", i, it.Question)
		}
		byText[it.Question] = row[:questionDim]
	}
}

func TestPools(t *testing.T) {
	d := generate(t, small())
	e := d.embed()
	for _, q := range d.queries() {
		if len(q.Pool) != d.Options.PoolSize {
			t.Fatalf("query %d: pool of %d", q.Row, len(q.Pool))
		}
		in := map[int32]bool{}
		for _, j := range q.Pool {
			if in[j] || j < 0 || int(j) >= d.Options.trainRows() || d.Items[j].Split != Train || d.Items[j].Scene == d.Items[q.Row].Scene {
				t.Errorf("query %d: candidate %d is twice in the pool, no training question or about the query's scene", q.Row, j)
			}
			in[j] = true
		}
		c := d.cosines(e, int(q.Row))
		for name, cos := range map[string][]float64{"question": c.question, "whole": c.whole, "image": c.image} {
			inside, outside := 0, 0.0 // the pool holds the nearest: how many are at least as near as any that is left out?
			for j, v := range cos {
				if !in[int32(j)] && d.Items[j].Scene != d.Items[q.Row].Scene {
					outside = math.Max(outside, v)
				}
			}
			for j := range in {
				if cos[j] >= outside {
					inside++
				}
			}
			if want := map[string]int{"question": 10, "whole": 10, "image": 4}[name]; inside < want {
				t.Errorf("query %d: %d of the pool are nearest by %s, want at least %d", q.Row, inside, name, want)
			}
		}
	}
}

// Soft and Predict, from their tables, agree with the reader's definition over answer texts.
func TestReaderFollowsItsDefinition(t *testing.T) {
	d := generate(t, small())
	r := rng.New(1, "test")
	for _, q := range d.Dev {
		for shots := 0; shots <= 4; shots++ {
			var set []int32
			for _, p := range r.Perm(len(q.Pool))[:shots] {
				set = append(set, int32(p))
			}
			item := d.Items[q.Row]
			mass := map[string]float64{}
			total := math.Exp(q.PriorScore)
			for a := range d.Prior.All {
				mass[a] += math.Exp(q.PriorScore) * d.Prior.At(Head(item.Question), a)
			}
			shown := map[string]bool{q.PriorTop: true}
			for _, p := range set {
				w := math.Exp(q.Score[p])
				total += w
				for _, a := range d.Items[q.Pool[p]].Answers {
					mass[a.Answer] += w * float64(a.Count) / 10
					shown[a.Answer] = true
				}
			}
			want, sum := 0.0, 0.0
			best := ""
			for a, m := range mass {
				want += m / total * vqaAccuracy(countOf(item.Answers, a))
				sum += m / total
				if shown[a] && (best == "" || m > mass[best]+1e-9 || math.Abs(m-mass[best]) < 1e-9 && a > best) {
					best = a
				}
			}
			if math.Abs(sum-1) > 1e-12 {
				t.Fatalf("query %d: answer probabilities sum to %v", q.Row, sum)
			}
			if got := q.Soft(set); math.Abs(got-want) > 1e-4 { // the tables are rounded to 4 digits
				t.Errorf("query %d, positions %v: soft %v, want %v", q.Row, set, got, want)
			}
			answer, accuracy := d.Predict(&q, set)
			if answer != best || accuracy != vqaAccuracy(countOf(item.Answers, best)) {
				t.Errorf("query %d, positions %v: predicts %q (%v), want %q", q.Row, set, answer, accuracy, best)
			}
			before := q.Soft(set)
			slices.Reverse(set)
			if math.Abs(q.Soft(set)-before) > 1e-12 {
				t.Errorf("query %d: the order of %v matters", q.Row, set)
			}
		}
	}
}

func TestBeams(t *testing.T) {
	d := generate(t, small())
	optimal := 0
	for _, q := range d.queries() {
		if len(q.Beams) != 5 {
			t.Fatalf("query %d has %d beams", q.Row, len(q.Beams))
		}
		seen := map[string]bool{}
		for i, b := range q.Beams {
			if i > 0 && b.Soft > q.Beams[i-1].Soft || seen[SetKey(b.Positions)] || len(b.Positions) != 2 {
				t.Errorf("query %d: beam %d %v is no set of two, out of order or there twice", q.Row, i, b)
			}
			seen[SetKey(b.Positions)] = true
			if math.Abs(b.Soft-q.Soft(b.Positions)) > 1e-9 {
				t.Errorf("query %d: beam %d scored %v, reader says %v", q.Row, i, b.Soft, q.Soft(b.Positions))
			}
		}
		best := 0.0
		for a := range q.Pool {
			for b := range a {
				best = math.Max(best, q.Soft([]int32{int32(a), int32(b)}))
			}
		}
		if best < q.Beams[0].Soft-1e-9 {
			t.Errorf("query %d: the beam claims %v, exhaustive search %v", q.Row, q.Beams[0].Soft, best)
		}
		if best < q.Beams[0].Soft+1e-6 {
			optimal++
		}
	}
	if n := len(d.queries()); optimal < n*95/100 {
		t.Errorf("the beam search finds the best pair for %d of %d queries", optimal, n)
	}
}

func TestRecords(t *testing.T) {
	d := generate(t, small())
	order := []string{"beam", "retrieval", "sample", "random"}
	for _, q := range d.Train {
		seen := map[string]bool{}
		last := 0
		for i, r := range q.Records {
			at := slices.Index(order, r.Method)
			if at < last || seen[SetKey(r.Positions)] || len(r.Positions) != 2 || r.Positions[0] == r.Positions[1] {
				t.Errorf("query %d: record %d %v is no set of two, out of order or there twice", q.Row, i, r)
			}
			last = at
			seen[SetKey(r.Positions)] = true
			answer, accuracy := d.Predict(&q, r.Positions)
			if math.Abs(r.Soft-q.Soft(r.Positions)) > 1e-9 || r.Answer != answer || r.Accuracy != accuracy {
				t.Errorf("query %d: record %v, reader says %v %q %v", q.Row, r, q.Soft(r.Positions), answer, accuracy)
			}
			if (r.Method == "beam") != (r.BeamRank >= 0) || (r.Method == "sample") == math.IsNaN(r.LogProb) || r.LogProb > 0 {
				t.Errorf("query %d: %+v has fields of another method", q.Row, r)
			}
		}
		if !seen[SetKey(similarPair(d, &q))] {
			t.Errorf("query %d: the most similar pair is not recorded", q.Row)
		}
		if n := len(q.Records); n < 8 || n > 14 {
			t.Errorf("query %d has %d records", q.Row, n)
		}
	}
}

// similarPair returns the positions of the two candidates nearest by cosine, ties by position.
func similarPair(d *Data, q *Query) []int32 {
	cos := make([]float64, len(q.Pool))
	row := func(i int32) []float32 { return d.Embeddings[int(i)*Dim : int(i+1)*Dim] }
	for p, j := range q.Pool {
		for k, v := range row(q.Row) {
			cos[p] += float64(v) * float64(row(j)[k])
		}
	}
	return order(cos)[:2]
}

// The set leaves room: similarity is decent, the best choice far better, and most pools can help.
func TestDifficulty(t *testing.T) {
	d, err := whole()
	if err != nil {
		t.Fatal(err)
	}
	var none, random, similarity, oracle, helpful float64
	r := rng.New(1, "test")
	n := float64(len(d.Dev))
	for _, q := range d.Dev {
		none += q.Soft(nil) / n
		for range 10 {
			p := r.Perm(len(q.Pool))
			random += q.Soft([]int32{int32(p[0]), int32(p[1])}) / n / 10
		}
		similarity += q.Soft(similarPair(d, &q)) / n
		oracle += q.Beams[0].Soft / n
		if slices.Max(q.DemoAcc) > 0.5 {
			helpful += 1 / n
		}
	}
	t.Logf("dev: none %.4f, random %.4f, similarity %.4f, oracle %.4f, helpful pools %.3f", none, random, similarity, oracle, helpful)
	if !(none < random && random+0.05 < similarity && similarity+0.25 < oracle && oracle < 0.9 && helpful > 0.9) {
		t.Errorf("want none < random << similarity << oracle < 0.9 and helpful pools; see the line above")
	}
}

func TestOptionsAreChecked(t *testing.T) {
	o := DefaultOptions()
	o.TrainQueries, o.ReaderQuestions = 20, 10
	if _, err := Generate(o); err == nil || !strings.Contains(err.Error(), "data.shapes.pool_size: want at most 27") {
		t.Errorf("a pool larger than the training set: %v", err)
	}
	o = small()
	o.Shots, o.PoolSize, o.ValQueries = 4, 16, 0
	d := generate(t, o)
	if len(d.Val) != 0 || len(d.Dev[0].Beams[0].Positions) != 4 || len(d.Dev[0].Pool) != 16 {
		t.Error("sizes are not as asked")
	}
}

func BenchmarkGenerate(b *testing.B) {
	for b.Loop() {
		if _, err := Generate(DefaultOptions()); err != nil {
			b.Fatal(err)
		}
	}
}
