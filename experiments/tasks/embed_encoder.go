//go:build !core

package tasks

import (
	"errors"
	"fmt"
	"path/filepath"

	"fulcrum/experiments/job"
	"fulcrum/experiments/workload"
	"fulcrum/internal/regular"
	"fulcrum/internal/tokenizer"
	"fulcrum/internal/usage"
	"fulcrum/selector/clip"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl"
)

// encoder turns pictures and questions into unit vectors. Tokens says whether a text was too long and lost its end.
type encoder interface {
	Picture(path string) ([]float32, error)
	Images(pictures [][]float32) ([]float32, error) // [len(pictures), dim]
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

// openEncoder opens the model of encoder.path.
func (e *embedding) openEncoder(j *job.Job) error {
	c := encoderOf(j.Config)
	path, modality := *c.Path, embedOf(j.Config).Modality
	if err := workload.CheckDownloaded("encoder.path", path); err != nil {
		return err
	}
	if !readsText(path) {
		of, err := clip.Open(path, c.DType, j.Device)
		if err != nil {
			return fmt.Errorf("encoder.path: want a CLIP folder as save_pretrained writes it, or a language model's: %w", err)
		}
		e.encoder, e.dim, e.digest = of, of.Dim, of.Digest
		return nil
	}
	if modality != "text" {
		return usage.Errorf("embed.modality=%s: encoder.path=%s is a language model's folder, which encodes no pictures: want embed.modality=text, or a "+
			"CLIP folder", modality, path)
	}
	of, err := openReader(path, c.DType, j.Device)
	if err != nil {
		return fmt.Errorf("encoder.path=%s: %w", path, err)
	}
	e.encoder, e.dim = of, of.model.Config().Hidden
	e.digest, err = workload.Contents(path)
	return err
}

// reader is a language model as an encoder: a text's vector is the mean of its last hidden states.
type reader struct {
	model *vl.Model
	text  *tokenizer.Tokenizer
}

func openReader(path, dtype, device string) (*reader, error) {
	text, err := tokenizer.Open(path)
	if err != nil {
		return nil, err
	}
	opt := vl.DefaultOptions()
	opt.Path, opt.DType, opt.LoRA.Enabled = &path, dtype, false
	model, err := vl.Open(opt, device, 0, nil)
	return &reader{model, text}, err
}

func (r *reader) Free() { r.model.Free() }

func (r *reader) Tokens(text string) (ids []int64, cut bool) {
	ids = r.text.EncodeSpecial(text)
	if most := r.model.Config().Positions; most > 0 && len(ids) > most {
		return ids[:most], true
	}
	return ids, false
}

func (r *reader) Texts(texts [][]int64) ([]float32, error) {
	rows, err := r.model.Means(texts)
	if err != nil {
		return nil, err
	}
	return clip.Unit(rows, r.model.Config().Hidden)
}

func (r *reader) Picture(string) ([]float32, error) {
	return nil, errors.New("a language model sees no pictures")
}
func (r *reader) Images([][]float32) ([]float32, error) { return r.Picture("") }
