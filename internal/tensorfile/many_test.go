package tensorfile

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fulcrum/internal/testkit/golden"
)

// A header names its tensors in any order, however many they are: the time grows with their number.
func TestManyTensors(t *testing.T) {
	n, most := 100_000, 10*time.Second
	if !testing.Short() {
		n, most = 600_000, 40*time.Second
	}
	type entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets []int  `json:"data_offsets"`
	}
	header := map[string]entry{}
	for i, at := range rand.New(rand.NewPCG(1, 1)).Perm(n) {
		header[fmt.Sprintf("t%06d", i)] = entry{"F32", []int{1}, []int{4 * at, 4*at + 4}}
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	data := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	path := filepath.Join(t.TempDir(), "many.safetensors")
	if err := os.WriteFile(path, append(data, make([]byte, 4*n)...), 0o644); err != nil {
		t.Fatal(err)
	}
	begin := golden.ProcessorTime(t)
	f, err := ReadSafetensors(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	took := golden.ProcessorTime(t) - begin
	if t.Logf("%d tensors: %v of CPU", n, took); took > most || len(f.Tensors) != n {
		t.Errorf("%d tensors read in %v of CPU, want %d in %v", len(f.Tensors), took, n, most)
	}
}
