package job

import (
	"os"

	"fulcrum/beamdata/icl"
	"fulcrum/internal/usage"
)

// Records reads the questions about images that in, which may be nil, or else the section data names: a file of records, or a
// folder of published files: OK-VQA's, VQAv2's, or COCO's captions.
func (c *Config) Records(in *string) (*icl.Set, error) {
	d := c.Data
	if in == nil {
		in = d.RecordsICL
	}
	switch {
	case in != nil:
		if info, err := os.Stat(*in); err == nil && info.IsDir() {
			return icl.LoadVQA(*in)
		}
		return icl.Load(*in)
	case d.Name == "vqa" && d.Root != nil:
		return icl.LoadVQA(*d.Root)
	case d.Name == "captions" && d.Root != nil:
		return icl.LoadCaptions(*d.Root)
	}
	return nil, usage.Errorf("no records: data.records_icl=FILE.jsonl, data=vqa data.root=DIR with the files of OK-VQA or VQAv2, or " +
		"data=captions data.root=DIR with COCO's")
}
