//go:build !core

package tasks

import (
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/option"
)

// EmbedOptions configures task=embed.
type EmbedOptions struct {
	// records, or the folder of OK-VQA's or VQAv2's published files; null = data.records_icl, or data=vqa or data=captions with data.root=DIR
	In *string `koanf:"in"`
	// file to write, by its ending: .safetensors, .npy or .pt; null = embeddings.safetensors in the run folder
	Out *string `koanf:"out"`
	// what is encoded: image, text (the question), or both, one after the other in a row
	Modality string `koanf:"modality" enum:"image,text,both"`
}

// Validate refuses an ending that is no table's.
func (o EmbedOptions) Validate() error {
	endings := []string{".safetensors", ".npy", ".pt"}
	return option.Want(o.Out == nil || slices.Contains(endings, filepath.Ext(*o.Out)), "out", "want a file that ends in %s",
		strings.Join(endings, ", "))
}
