package beamdata

import (
	"fulcrum/beamdata/icl"
	"fulcrum/internal/usage"
)

// OpenICL reads the records of in-context learning that the options name: records_icl, or the published files in root.
func (o Options) OpenICL() (*icl.Set, error) {
	switch {
	case o.RecordsICL != nil:
		return icl.Load(*o.RecordsICL)
	case o.Name == "vqa" && o.Root != nil:
		return icl.LoadVQA(*o.Root)
	}
	return nil, usage.Errorf("no records: data.records_icl=FILE.jsonl, or data=vqa data.root=DIR with the files of OK-VQA or VQAv2")
}
