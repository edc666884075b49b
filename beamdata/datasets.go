package beamdata

import (
	"slices"

	"fulcrum/beamdata/conversation"
	"fulcrum/internal/list"
	"fulcrum/internal/option"
)

// Dataset is a value of data.name: the source of the data and the policies that read it. An entry is one file with
// its function and one line in Datasets.
type Dataset struct {
	Name string
	// Reads names the keys of section data that only some kinds of data read.
	Reads []string
	// Files returns the files and folders named by the options; nil if the data are made in memory.
	Files func(o Options) []*string
	// Check reports missing keys; nil if the data need no key.
	Check func(o Options) error
	// Conversations reads the sets for a token policy; nil if the data have none.
	Conversations func(o Options) (*conversation.Bundle, error)

	// sets reads the sets for a selector of examples; nil if the data have none.
	sets func(l *loader) error
}

// Datasets lists the values of data.name but for those of annexes (Options.More).
func Datasets() []Dataset {
	return []Dataset{shapesData(), okvqaData(), beamsData(), conversationsData(), textsData(), summariesData(),
		published("vqa", "OK-VQA's or VQAv2's published files", conversation.VQA),
		published("captions", "COCO's captions and images", conversation.Captions)}
}

// Datasets lists the values that name may have.
func (o Options) Datasets() []Dataset { return append(Datasets(), o.More...) }

// Dataset returns the entry that the options name; an unknown name is an error.
func (o Options) Dataset() (Dataset, error) {
	table := o.Datasets()
	k := slices.IndexFunc(table, func(d Dataset) bool { return d.Name == o.Name })
	if k < 0 {
		return Dataset{}, option.OneOf("name", o.Name, Names(table)...)
	}
	return table[k], nil
}

func Names(table []Dataset) []string {
	return list.Map(table, func(d Dataset) string { return d.Name })
}
