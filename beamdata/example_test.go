package beamdata_test

import (
	"fmt"
	"os"
	"path/filepath"

	"fulcrum/beamdata"
	"fulcrum/internal/tensorfile"
)

func ExampleLoad() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	beams, table := filepath.Join(dir, "beams.json"), filepath.Join(dir, "emb.safetensors")
	rows := tensorfile.FromFloat32s("emb", []int{3, 2}, []float32{1, 0, 0.6, 0.8, 0, 1})
	if err := tensorfile.WriteSafetensors(table, []tensorfile.Tensor{rows}, nil); err != nil {
		panic(err)
	}
	if err := os.WriteFile(beams, []byte(`{"0": {"id_list": [[1, 0], [2, 0]], "score_list": [0.7, 0.2]}}`), 0o644); err != nil {
		panic(err)
	}
	opt := beamdata.DefaultOptions()
	opt.Name, opt.Beams, opt.Embeddings, opt.TrainRatio = "beams", &beams, &table, 1
	b, err := beamdata.Load(opt)
	if err != nil {
		panic(err)
	}
	fmt.Println("pool of query 0:", b.RCE.Pool(0))
	for g := range b.RCE.NumCandidates(0) {
		c := b.RCE.Candidate(0, g)
		fmt.Println("candidate", g, "positions", c.Positions, "reward", c.Reward)
	}
	fmt.Println("most similar:", beamdata.Similarity(b.RCE, 1)[0])
	// Output:
	// pool of query 0: [1 2]
	// candidate 0 positions [0] reward 0.7
	// candidate 1 positions [1] reward 0.2
	// most similar: [0]
}
