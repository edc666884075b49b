package job

import (
	"errors"
	"io/fs"
	"os"

	"fulcrum/beamdata/icl"
	"fulcrum/internal/nearpath"
	"fulcrum/internal/usage"
)

// Records reads the questions about images that in (embed.in), which may be nil, or else the section data names: a file of records, or a
// folder of published files: OK-VQA's, VQAv2's, or COCO's captions.
func (c *Config) Records(in *string) (*icl.Set, error) {
	d, key := c.Data, "embed.in"
	if in == nil {
		in, key = d.RecordsICL, "data.records_icl"
	}
	switch {
	case in != nil:
		info, err := os.Stat(*in)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, usage.Errorf("%s: no such file%s: set %s to an existing one", *in, nearpath.Hint(*in), key)
		}
		if err == nil && info.IsDir() {
			if icl.HasCaptions(*in) {
				return icl.LoadCaptions(key, *in)
			}
			return icl.LoadVQA(key, *in)
		}
		return icl.Load(*in)
	case d.Name == "vqa" && d.Root != nil:
		return icl.LoadVQA("data.root", *d.Root)
	case d.Name == "captions" && d.Root != nil:
		return icl.LoadCaptions("data.root", *d.Root)
	}
	return nil, usage.Errorf("no records: data.records_icl=FILE.jsonl, data=vqa data.root=DIR with the files of OK-VQA or VQAv2, or " +
		"data=captions data.root=DIR with COCO's")
}
