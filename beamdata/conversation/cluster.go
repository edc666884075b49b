package conversation

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"

	"fulcrum/beamdata/jsonrecords"
)

// Clusterer is a Source that knows which of its rows are no independent ones.
type Clusterer interface {
	// Cluster returns what a row has in common with those: its pictures (by = image), or the value of the key by; "" where
	// it has none.
	Cluster(row int64, by string) (string, error)
}

// Clusters returns what the samples have in common with each other, by sample id; nil where the source knows nothing.
func (s *Set) Clusters(by string) (map[int64]string, error) {
	if s.Len() == 0 {
		return nil, nil
	}
	c, ok := s.source.(Clusterer)
	if !ok {
		return nil, nil
	}
	out := make(map[int64]string, len(s.rows))
	for _, row := range s.rows {
		name, err := c.Cluster(row, by)
		if err != nil {
			return nil, err
		}
		if name != "" {
			out[row] = name
		}
	}
	return out, nil
}

func (f *file) Cluster(row int64, by string) (string, error) {
	if by == "image" {
		if group := f.groups[row]; group >= 0 {
			return strconv.Itoa(group), nil
		}
		return "", nil
	}
	raw, err := f.index.Read(row)
	if err != nil {
		return "", err
	}
	return Value(raw, by), nil
}

// Value returns what a record, the bytes of a JSON object, has under a key, as text: at its top, else in its meta object;
// "" where it has no such key, or null.
func Value(record []byte, key string) string {
	record = bytes.TrimSpace(record)
	if len(record) < 2 || record[0] != '{' {
		return ""
	}
	var own, meta string
	jsonrecords.Fields(record, func(name, value []byte) {
		switch value = bytes.TrimSpace(value); {
		case strings.Trim(string(name), `"`) == key:
			own = AsText(value)
		case string(name) == `"meta"`:
			meta = Value(value, key)
		}
	})
	return cmp.Or(own, meta)
}

// Cluster implements Clusterer: the questions about one scene belong together.
func (s *shapesSource) Cluster(row int64, by string) (string, error) {
	if by != "image" {
		return "", nil
	}
	if row >= captionRow {
		row -= captionRow
	}
	return strconv.Itoa(s.questions.Items[row].Scene), nil
}
