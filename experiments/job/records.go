package job

import (
	"errors"
	"io/fs"
	"os"

	"fulcrum/beamdata/icl"
	"fulcrum/internal/nearpath"
	"fulcrum/internal/usage"
)

// Records reads the questions about images that in, which may be nil, or else the section data names: a file of records, or the
// folder of OK-VQA's or VQAv2's published files.
func (c *Config) Records(in *string) (*icl.Set, error) {
	switch d := c.Data; {
	case in != nil:
		if info, err := os.Stat(*in); err == nil && info.IsDir() {
			return icl.LoadVQA(*in)
		}
		return loadRecords(*in, "embed.in")
	case d.RecordsICL != nil:
		return loadRecords(*d.RecordsICL, "data.records_icl")
	case d.Name == "vqa" && d.Root != nil:
		return icl.LoadVQA(*d.Root)
	}
	return nil, usage.Errorf("no records: data.records_icl=FILE.jsonl, or data=vqa data.root=DIR with the files of OK-VQA or VQAv2")
}

// loadRecords reads the file of records that a key names.
func loadRecords(path, key string) (*icl.Set, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, usage.Errorf("%s: no such file%s: set %s to an existing one", path, nearpath.Hint(path), key)
	}
	return icl.Load(path)
}
