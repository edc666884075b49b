package bench

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"fulcrum/internal/list"
	"fulcrum/internal/rng"
	"fulcrum/internal/stat"
	"fulcrum/internal/tensorfile"
)

// Files are the paths of a workload's data.
type Files struct {
	Beams      string
	Embeddings string
}

// Overrides returns the settings of a run on these files.
func (f Files) Overrides(d Dataset) []string {
	return []string{"data=beams", "data.beams='" + f.Beams + "'", "data.embeddings='" + f.Embeddings + "'",
		"data.max_samples=" + strconv.Itoa(d.Queries)}
}

// cut returns the data set with fewer queries, under a name of its own. Candidates that are drawn from the
// queries still need a pool of them.
func (d Dataset) cut(queries int) Dataset {
	if d.Examples == 0 {
		queries = max(queries, d.Pool+1)
	}
	if queries < d.Queries {
		d.Name += "_" + strconv.Itoa(queries)
		d.Queries = queries
	}
	return d
}

// Generate writes the data set's files into dir, unless they are there already.
func (d Dataset) Generate(dir string) (Files, error) {
	f := Files{filepath.Join(dir, d.Name+".json"), filepath.Join(dir, d.Name+".safetensors")}
	if _, err := os.Stat(f.Beams); err == nil {
		return f, nil
	}
	rows, err := d.writeBeams(f.Beams + ".new")
	if err != nil {
		return f, err
	}
	if err := d.writeEmbeddings(f.Embeddings, rows); err != nil {
		return f, err
	}
	return f, os.Rename(f.Beams+".new", f.Beams)
}

// writeEmbeddings draws unit rows that share a direction, as CLIP features do.
func (d Dataset) writeEmbeddings(path string, rows int) error {
	r := rng.New(7, "bench embeddings")
	common := list.Make(d.Dim, func(int) float64 { return 0.7 * r.NormFloat64() })
	data := make([]byte, 0, rows*d.Dim*4)
	row := make([]float64, d.Dim)
	for range rows {
		norm := 0.0
		for i := range row {
			row[i] = r.NormFloat64() + common[i]
			norm += row[i] * row[i]
		}
		for _, x := range row {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(x/math.Sqrt(norm))))
		}
	}
	table := tensorfile.Tensor{Name: "embeddings", DType: "F32", Shape: []int{rows, d.Dim}, Data: data}
	return tensorfile.WriteSafetensors(path, []tensorfile.Tensor{table}, nil)
}

// writeBeams writes the beam file and returns how many embedding rows it needs.
func (d Dataset) writeBeams(path string) (rows int, err error) {
	file, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	w := &beamWriter{Dataset: d, out: bufio.NewWriterSize(file, 1<<20), r: rng.New(7, "bench beams"), examples: d.Examples,
		query: d.Examples}
	if d.Examples == 0 {
		w.examples = d.Queries
	}
	w.taken, w.used = make([]bool, w.examples), make([]bool, w.examples)
	w.out.WriteString("{")
	for range d.Queries {
		if d.RL {
			w.trajectories()
			continue
		}
		w.beams(list.Make(d.Min+w.r.IntN(d.Max-d.Min+1), func(int) []int { return w.draw(d.Shots, w.examples) }))
	}
	if !d.RL {
		w.fill()
	}
	w.out.WriteString("}\n")
	return max(w.query, w.examples), w.out.Flush()
}

type beamWriter struct {
	Dataset
	out      *bufio.Writer
	r        *rand.Rand
	examples int    // rows that candidates are drawn from
	query    int    // global id of the next query
	records  int    // written so far
	taken    []bool // scratch of draw
	used     []bool // examples that stand in a beam
}

// legacyRecord lists examples, the best first, each list ending in the query.
type legacyRecord struct {
	IDs    [][]int   `json:"id_list"`
	Scores []float64 `json:"score_list"`
}

// rlRecord has a pool of its own.
type rlRecord struct {
	Query struct {
		ID int `json:"query_id"`
	} `json:"query"`
	Pool       []int        `json:"candidate_pool_ids"`
	Candidates []trajectory `json:"pointer_candidates"`
}

type trajectory struct {
	Pointer  []int   `json:"pointer"` // positions in the pool
	Global   []int   `json:"pointer_global"`
	Method   string  `json:"gen_method"`
	Correct  int     `json:"vqa_correct"`
	Accuracy float64 `json:"vqa_acc_score"`
	Prob     float64 `json:"vqa_gt_prob"`
	Rel      float64 `json:"vqa_rel_score"`
	Mode     string  `json:"vqa_eval_mode"`
	Failed   bool    `json:"eval_failed"`
}

// draw returns n distinct numbers below limit, none of them the query.
func (w *beamWriter) draw(n, limit int) []int {
	out := make([]int, 0, n)
	for len(out) < n {
		if x := w.r.IntN(limit); !w.taken[x] && x != w.query {
			w.taken[x] = true
			out = append(out, x)
		}
	}
	for _, x := range out {
		w.taken[x] = false
	}
	return out
}

// write writes the record of a query and goes on to the next one.
func (w *beamWriter) write(record any) {
	if w.records > 0 {
		w.out.WriteString(",\n")
	}
	w.records++
	text, _ := json.Marshal(record) // numbers and words always marshal
	fmt.Fprintf(w.out, `"%d": %s`, w.query, text)
	w.query++
}

// beams writes a legacy record.
func (w *beamWriter) beams(beams [][]int) {
	var r legacyRecord
	for i, beam := range beams {
		for _, id := range beam {
			w.used[id] = true
		}
		r.IDs = append(r.IDs, append(beam, w.query))
		r.Scores = append(r.Scores, 0.06-0.03*(float64(i)+w.r.Float64())/float64(len(beams)))
	}
	w.write(r)
}

// fill adds queries that no step sees, whose beams name the examples that are in no beam yet: the pool
// of a legacy file is what its beams name, and it must hold exactly Pool.
func (w *beamWriter) fill() {
	missing := list.Filter(stat.Indices(len(w.used)), func(id int) bool { return !w.used[id] })
	for len(missing) > 0 {
		beams := make([][]int, w.Max)
		for i := range beams {
			n := min(w.Shots, len(missing))
			beams[i] = append(beams[i], missing[:n]...)
			missing = missing[n:]
			for len(beams[i]) < w.Shots {
				if x := w.r.IntN(w.examples); !slices.Contains(beams[i], x) {
					beams[i] = append(beams[i], x)
				}
			}
		}
		w.beams(beams)
	}
}

// trajectories writes an RL record.
func (w *beamWriter) trajectories() {
	r := rlRecord{Pool: w.draw(w.Pool, w.examples)}
	r.Query.ID = w.query
	for range w.Min + w.r.IntN(w.Max-w.Min+1) {
		t := trajectory{Pointer: w.draw(w.Shots, len(r.Pool)), Method: "beam", Mode: "vqaEval"}
		t.Global = list.Map(t.Pointer, func(at int) int { return r.Pool[at] })
		if w.r.IntN(2) == 1 {
			t.Correct, t.Accuracy = 1, []float64{0.3, 0.6, 0.9, 1}[w.r.IntN(4)]
		}
		t.Prob, t.Rel = w.r.Float64(), w.r.Float64()
		r.Candidates = append(r.Candidates, t)
	}
	w.write(r)
}
