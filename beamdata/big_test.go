package beamdata

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"fulcrum/internal/hostmem"
	"fulcrum/internal/tensorfile"
)

// VQAv2's train split.
const vqaV2 = 443_757

// writeBig writes a beam file of queries × 5 beams of 2 picks, legacy or RL (with a pool of 64 and the
// usual fields), and returns its path and size.
func writeBig(t testing.TB, queries int, rl bool) (string, int64) {
	path := filepath.Join(t.TempDir(), "beams.json")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	r := rand.New(rand.NewPCG(1, 2))
	other := func(q int) int { return (q + 1 + r.IntN(queries/2)) % queries } // far from wrapping round to q
	w.WriteString("{")
	for q := range queries {
		if q > 0 {
			w.WriteString(",\n")
		}
		if !rl {
			a := other(q)
			fmt.Fprintf(w, `"%d": {"id_list": [`, q)
			for b := range 5 {
				sep := ", "
				if b == 0 {
					sep = ""
				}
				fmt.Fprintf(w, "%s[%d, %d, %d]", sep, a, (a+1+b)%queries, q)
			}
			w.WriteString(`], "score_list": [0.04849318191136267, 0.0451572313990262, 0.039207957774553805, ` +
				`0.037940358104904565, 1.2e-07]}`)
			continue
		}
		fmt.Fprintf(w, `"%d": {"query": {"query_id": %d, "question": "what is this?"}, "candidate_pool_ids": [`, q, q)
		base := (q + 1) % (queries - 100)
		for k := range 64 {
			if k > 0 {
				w.WriteString(", ")
			}
			fmt.Fprint(w, base+k)
		}
		w.WriteString(`], "pointer_candidates": [`)
		for b := range 5 {
			if b > 0 {
				w.WriteString(", ")
			}
			fmt.Fprintf(w, `{"pointer": [%d, %d], "pointer_pos": [%d, %d], "gen_method": "beam", "beam_rank": %d, `+
				`"beam_score": 0.8398584484652261, "logprob_score": -0.7504979707132904, "temperature": null, `+
				`"vqa_raw_generation": " a raw answer", "vqa_pred_answer": "answer", "vqa_correct": 1, "vqa_acc_score": 0.6, `+
				`"vqa_gt_prob": 0.5914855031843523, "vqa_rel_token_f1": 0.0, "vqa_rel_edit_sim": 0.93, "vqa_rel_score": `+
				`0.93, "vqa_eval_mode": "vqaEval", "eval_failed": false}`,
				base+b, base+b+9, b, b+9, b)
		}
		w.WriteString("]}")
	}
	w.WriteString("}\n")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	return path, info.Size()
}

// Beam files of VQAv2's size load as a run loads them (reading, checks, split, fingerprint), in less than
// a minute and 4 GB.
func TestVQAv2SizeLoads(t *testing.T) {
	queries := vqaV2
	if testing.Short() {
		queries = 20_000
	}
	table := filepath.Join(t.TempDir(), "emb.safetensors")
	const dim = 8 // the table is mapped, not read
	err := tensorfile.WriteSafetensors(table, []tensorfile.Tensor{{Name: "embeddings", DType: "F32", Shape: []int{queries, dim},
		Data: make([]byte, queries*dim*4)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, rl := range []bool{false, true} {
		path, size := writeBig(t, queries, rl)
		opt := testOptions()
		opt.Beams, opt.Embeddings = &path, &table
		debug.FreeOSMemory()
		resetPeak(t)
		begin := time.Now()
		b, err := Load(opt)
		if err != nil {
			t.Fatal(err)
		}
		took, peak := time.Since(begin), int(hostmem.Peak())>>20
		if b.RCE.Len()+b.Val.Len()+b.Counts["query_without_candidates"] != queries || b.All.NumCandidates(queries-1) != 5 {
			t.Errorf("%d and %d queries, %d candidates", b.RCE.Len(), b.Val.Len(), b.All.NumCandidates(queries-1))
		}
		last := b.All.Candidate(queries-1, 4)
		if pool := b.All.Pool(queries - 1); pool[last.Positions[0]] < 0 || last.Reward == 0 {
			t.Error("the last candidate is not what was written")
		}
		t.Logf("rl=%v: %d queries, %d MB in %.1f s (%.0f MB/s), peak %d MB", rl, queries, size>>20, took.Seconds(),
			float64(size)/1e6/took.Seconds(), peak)
		if took > time.Minute {
			t.Errorf("took %v, want less than a minute", took)
		}
		if peak > 4000 {
			t.Errorf("peak memory %d MB, want less than 4,000", peak)
		}
	}
}

// resetPeak starts the process's high-water mark anew, where the kernel lets it.
func resetPeak(t testing.TB) {
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Logf("the peak includes writing the file: %v", err)
	}
}

func BenchmarkReadLegacy(b *testing.B) { benchmarkRead(b, false) }
func BenchmarkReadRL(b *testing.B)     { benchmarkRead(b, true) }

func benchmarkRead(b *testing.B, rl bool) {
	path, size := writeBig(b, 20_000, rl)
	b.SetBytes(size)
	for b.Loop() {
		if _, err := readBeams(path, "data.beams", 20_000, testOptions()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(5*20_000*float64(b.N)/b.Elapsed().Seconds(), "beams/s")
}
