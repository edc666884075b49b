package conversation

import (
	"bytes"
	"encoding/json"
	"hash/fnv"
	"strings"

	"fulcrum/beamdata/jsonrecords"
	"fulcrum/beamdata/split"
	"fulcrum/internal/list"
)

// grouping joins the rows that have a picture in common, with each other or with a third one.
type grouping struct {
	first map[uint64]int // row that had a picture first, by its hash
	above []int          // of each row: one of its group before it, or itself; -1 = no pictures
}

// add enters the next row.
func (g *grouping) add(pictures []uint64) {
	row := len(g.above)
	if g.above = append(g.above, row); len(pictures) == 0 {
		g.above[row] = -1
	}
	for _, p := range pictures {
		first, ok := g.first[p]
		if !ok {
			g.first[p], first = row, row
		}
		a, b := g.root(first), g.root(row)
		g.above[max(a, b)] = min(a, b)
	}
}

// root is the first row of a row's group; -1 = no pictures.
func (g *grouping) root(row int) int {
	for g.above[row] >= 0 && g.above[row] != row {
		g.above[row] = g.above[g.above[row]]
		row = g.above[row]
	}
	return g.above[row]
}

// picturesOf hashes the values of a record's keys image, images, video and videos, and those of the parts of
// its messages or its prompt, each as it stands.
func picturesOf(record []byte) (hashes []uint64) {
	var add func(value []byte)
	add = func(value []byte) {
		if value = bytes.TrimSpace(value); bytes.HasPrefix(value, []byte("[")) {
			var all []json.RawMessage
			if json.Unmarshal(value, &all) == nil { // else decoding the record reports it
				for _, one := range all {
					add(one)
				}
			}
		} else if !empty(value) {
			h := fnv.New64a()
			h.Write(value)
			hashes = append(hashes, h.Sum64())
		}
	}
	jsonrecords.Fields(record, func(key, value []byte) {
		switch strings.ToLower(string(key)) { // as decoding matches them
		case `"image"`, `"images"`, `"video"`, `"videos"`:
			add(value)
		case `"messages"`, `"prompt"`:
			for _, key := range []string{`"image"`, `"image_url"`, `"video"`, `"video_url"`, `"frames"`, `"path"`, `"url"`} {
				for _, rest := range bytes.Split(value, []byte(key))[1:] {
					if rest, ok := bytes.CutPrefix(bytes.TrimLeft(rest, " \t\r\n"), []byte(":")); ok {
						add(rest[:jsonrecords.ValueEnd(rest)])
					}
				}
			}
		}
	})
	return hashes
}

// Split chooses the validation rows: all but floor(ratio·n), by seed and row alone, so that a training seed
// moves no sample. Rows of one group go to one side together: two questions about one picture never
// stand on both. groups may be nil; one below 0 is none.
func Split(n int, groups []int, ratio float64, seed int64) (train, val []int64) {
	rows := Rows(n)
	isVal := split.ByID(rows, func(row int) (int64, bool) {
		if groups == nil || groups[row] < 0 {
			return 0, false
		}
		return int64(groups[row]), true
	}, ratio, seed)
	side := func(val bool) []int64 { return list.Filter(rows, func(row int64) bool { return isVal[row] == val }) }
	return side(false), side(true)
}
