package hffolder

import (
	"fmt"
	"os"
	"path/filepath"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/tensorfile"
)

// ShardBytes is where save_pretrained starts the next shard.
const ShardBytes = 5_000_000_000

// Write makes path a model folder with these weights, which keep their order. They go into one file, or into shards of
// at most shardBytes (0: ShardBytes) with an index. generation may be nil.
func Write(path string, config, generation []byte, weights []tensorfile.Tensor, shardBytes int) error {
	if shardBytes == 0 {
		shardBytes = ShardBytes
	}
	if err := atomicfile.MkdirAll(path); err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(path, configName), config, 0o644); err != nil {
		return err
	}
	if generation != nil {
		if err := atomicfile.Write(filepath.Join(path, generationName), generation, 0o644); err != nil {
			return err
		}
	}
	meta := map[string]string{"format": "pt"} // transformers refuses files without it
	shards, total := split(weights, shardBytes)
	if len(shards) == 1 {
		if err := tensorfile.WriteSafetensors(filepath.Join(path, singleName), weights, meta); err != nil {
			return err
		}
		return os.RemoveAll(filepath.Join(path, indexName))
	}
	index := struct {
		Metadata  map[string]int    `json:"metadata"`
		WeightMap map[string]string `json:"weight_map"`
	}{map[string]int{"total_size": total}, map[string]string{}}
	for i, shard := range shards {
		file := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
		for _, t := range shard {
			index.WeightMap[t.Name] = file
		}
		if err := tensorfile.WriteSafetensors(filepath.Join(path, file), shard, meta); err != nil {
			return err
		}
	}
	if err := atomicfile.WriteJSON(filepath.Join(path, indexName), index); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(path, singleName)) // a reader would prefer it
}

// split fills shards in order; a tensor larger than a shard has one of its own.
func split(weights []tensorfile.Tensor, shardBytes int) (shards [][]tensorfile.Tensor, total int) {
	size := 0
	for _, t := range weights {
		if len(shards) == 0 || size+len(t.Data) > shardBytes && size > 0 {
			shards, size = append(shards, nil), 0
		}
		last := len(shards) - 1
		shards[last] = append(shards[last], t)
		size += len(t.Data)
		total += len(t.Data)
	}
	return shards, total
}
