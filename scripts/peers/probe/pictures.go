package main

import (
	"crypto/sha256"
	"encoding/hex"
	"unsafe"

	"fulcrum/selector/clip"
	"fulcrum/selector/vl/pixels"
)

// Picture is what a file became: digests of its bytes in RGB and of what a model reads, or why not.
type Picture struct {
	RGB    string `json:"rgb,omitempty"`
	Values string `json:"values,omitempty"`
	Grid   []int  `json:"grid,omitempty"`
	Error  string `json:"error,omitempty"`
}

// pictures reads the files in Texts as the model in Folder wants them: Qwen2.5-VL, or CLIP where Policy says so.
func (j *Job) pictures(a *Answer) error {
	read := func(path string, p *Picture) ([]float32, error) {
		c, err := pixels.OpenConfig(j.Folder)
		if err != nil {
			return nil, err
		}
		img, err := pixels.Decode(path)
		if err != nil {
			return nil, err
		}
		p.RGB = digest(pixels.ToRGB(img).Pix)
		patches, err := c.Image(img)
		p.Grid = patches.Grid[:]
		return patches.Data, err
	}
	if j.Policy == "clip" {
		e, err := clip.Open(j.Folder, "float32", "cpu")
		if err != nil {
			return err
		}
		read = func(path string, p *Picture) ([]float32, error) { return e.Picture(path) }
	}
	for _, path := range j.Texts {
		var p Picture
		values, err := read(path, &p)
		if err != nil {
			p.Error = err.Error()
		} else {
			p.Values = digest(unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), 4*len(values)))
		}
		a.Pictures = append(a.Pictures, p)
	}
	return nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
