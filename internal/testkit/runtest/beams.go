package runtest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// record is one query of an RL beam file.
type BeamRecord struct {
	ID         int64            `json:"-"`
	Query      map[string]int64 `json:"query"`
	Pool       []int64          `json:"candidate_pool_ids"`
	Candidates []map[string]any `json:"pointer_candidates,omitempty"`
}

const (
	FixtureRows = 60 // of the embedding table
	fixturePool = 10
)

// Records makes 24 queries with ids in no order, each with a pool of ten others and four trajectories.
func Records() []BeamRecord {
	random := rand.New(rand.NewPCG(1, 2))
	var out []BeamRecord
	for _, id := range random.Perm(FixtureRows)[:24] {
		r := BeamRecord{ID: int64(id), Query: map[string]int64{"query_id": int64(id)}}
		for _, other := range random.Perm(FixtureRows) {
			if other != id && len(r.Pool) < fixturePool {
				r.Pool = append(r.Pool, int64(other))
			}
		}
		for g := range 4 {
			pos := random.Perm(fixturePool)[:2]
			r.Candidates = append(r.Candidates, map[string]any{
				"pointer": []int64{r.Pool[pos[0]], r.Pool[pos[1]]}, "gen_method": "beam", "beam_score": random.Float64(),
				"vqa_correct": g % 2, "vqa_acc_score": float64(g%2) * 0.6, "vqa_gt_prob": random.Float64(), "vqa_rel_score": random.Float64(),
			})
		}
		out = append(out, r)
	}
	return out
}

// Beams writes an RL beam file, in the order of its records, and an embedding table beside it, and
// returns the overrides that read them.
func Beams(t *testing.T, rs []BeamRecord) []string {
	t.Helper()
	return BeamText(t, BeamLines(t, rs))
}

// BeamLines is the text of an RL beam file.
func BeamLines(t *testing.T, rs []BeamRecord) string {
	t.Helper()
	var b bytes.Buffer
	b.WriteString(`{"_meta": {}`)
	for _, r := range rs {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, ",\n%q: %s", fmt.Sprint(r.ID), text)
	}
	b.WriteString("}\n")
	return strings.ReplaceAll(b.String(), `"NaN"`, "NaN") // as Python writes it
}

// BeamText is beams with the file's text.
func BeamText(t *testing.T, text string) []string {
	const dim = 24
	random := rand.New(rand.NewPCG(3, 4))
	rows := make([][]float32, FixtureRows)
	for i := range rows {
		for range dim {
			rows[i] = append(rows[i], float32(random.NormFloat64()))
		}
	}
	return BeamFiles(t, text, rows)
}

// BeamFiles writes a beam file and an embedding table.
func BeamFiles(t *testing.T, text string, rows [][]float32) []string {
	t.Helper()
	dir := filepath.Dir(Folder(t))
	Write(t, filepath.Join(dir, "beams.json"), text)
	var b bytes.Buffer
	header := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", len(rows), len(rows[0]))
	header += string(bytes.Repeat([]byte(" "), 63-(len(header)+10)%64)) + "\n"
	b.WriteString("\x93NUMPY\x01\x00")
	binary.Write(&b, binary.LittleEndian, uint16(len(header)))
	b.WriteString(header)
	for _, row := range rows {
		binary.Write(&b, binary.LittleEndian, row)
	}
	if err := os.WriteFile(filepath.Join(dir, "emb.npy"), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{"data=beams", "data.beams=" + filepath.Join(dir, "beams.json"), "data.embeddings=" + filepath.Join(dir, "emb.npy")}
}

// Small trains on a beam file: 6 optimizer steps, without preflight.
func Small(data []string, more ...string) []string {
	args := []string{"selector=v3", "threads=1", "data.batch_size=8", "selector.hidden_dim=16", "rce.epochs=1", "grpo.epochs=1",
		"report.plots=false", "checks.off=[preflight]"}
	return With(args, slices.Concat(data, more))
}
