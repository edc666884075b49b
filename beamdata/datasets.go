package beamdata

import (
	"slices"

	"fulcrum/beamdata/conversation"
	"fulcrum/internal/list"
	"fulcrum/internal/option"
)

// Dataset is a value of data.name: where the data comes from, and which policies read it. An entry is one file with
// its function and one line in Datasets.
type Dataset struct {
	Name string
	// Reads names the keys of section data that are not for every kind of data.
	Reads []string
	// Files returns the files and folders that the options name; nil where the data is made in memory.
	Files func(o Options) []*string
	// Check reports keys of the options that the data needs; nil where it needs none.
	Check func(o Options) error

	// sets reads the sets of a selector of examples; nil where there are none.
	sets func(l *loader) error
	// conversations reads what a token policy trains on; nil where there is nothing for one.
	conversations func(o Options) (*conversation.Bundle, error)
}

// Datasets lists the values of data.name.
func Datasets() []Dataset {
	return []Dataset{shapesData(), okvqaData(), beamsData(), conversationsData(), textsData(), summariesData(), iclShapesData(),
		published("vqa", "OK-VQA's or VQAv2's published files", conversation.VQA),
		published("captions", "COCO's captions and images", conversation.Captions)}
}

// Dataset returns the entry that the options name; an unknown name is an error.
func (o Options) Dataset() (Dataset, error) { return o.datasetOf(Datasets()) }

func (o Options) datasetOf(table []Dataset) (Dataset, error) {
	k := slices.IndexFunc(table, func(d Dataset) bool { return d.Name == o.Name })
	if k < 0 {
		return Dataset{}, option.OneOf("name", o.Name, names(table)...)
	}
	return table[k], nil
}

// names returns the names of the entries.
func names(table []Dataset) []string {
	return list.Map(table, func(d Dataset) string { return d.Name })
}
