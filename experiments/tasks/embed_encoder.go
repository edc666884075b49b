//go:build !core

package tasks

import (
	"fmt"
	"path/filepath"

	"fulcrum/experiments/job"
	"fulcrum/experiments/workload"
	"fulcrum/internal/regular"
	"fulcrum/internal/usage"
	"fulcrum/selector/clip"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl"
)

// textEncoder turns questions into vectors. Tokens says whether a text was too long and lost its end.
type textEncoder interface {
	Tokens(text string) (ids []int64, cut bool)
	Texts(texts [][]int64) ([]float32, error) // [len(texts), dim]
	Free()
}

// readsText reports whether a folder's model is one of language, which encodes questions and no pictures.
func readsText(path string) bool {
	config, err := regular.ReadFile(filepath.Join(path, "config.json"))
	if err != nil {
		return false // what opens it says what is wrong
	}
	_, err = tokens.ModelType(vl.Kind, config)
	return err == nil
}

// open opens the model of encoder.path.
func (e *embedding) open(j *job.Job) (err error) {
	c, modality := encoderOf(j.Config), embedOf(j.Config).Modality
	path := *c.Path
	if err := workload.CheckDownloaded("encoder.path", path); err != nil {
		return err
	}
	if !readsText(path) {
		if e.clip, err = clip.Open(path, c.DType, j.Device); err != nil {
			return fmt.Errorf("encoder.path: want a CLIP folder as save_pretrained writes it, or a language model's: %w", err)
		}
		e.encoder, e.dim, e.digest = e.clip, e.clip.Dim, e.clip.Digest
		return nil
	}
	if modality != "text" {
		return usage.Errorf("embed.modality=%s: encoder.path=%s is a language model's folder, which encodes no pictures: want "+
			"embed.modality=text, or a CLIP folder", modality, path)
	}
	if e.digest, err = workload.Contents(path); err != nil {
		return err
	}
	of, err := vl.OpenEncoder(path, c.DType, j.Device)
	if err != nil {
		return fmt.Errorf("encoder.path=%s: %w", path, err)
	}
	e.encoder, e.dim = of, of.Config().Hidden
	return nil
}
