package conversation

import (
	"bytes"
	"hash/fnv"
	"slices"
	"strings"

	"fulcrum/beamdata/jsonrecords"
	"fulcrum/internal/rng"
)

// pictureGroup hashes the values of a record's keys image, images, video and videos, and those of the parts of
// its messages or its prompt, as they stand; 0 where there are none.
func pictureGroup(record []byte) uint64 {
	h := fnv.New64a()
	found := false
	add := func(value []byte) {
		value = bytes.Trim(value, "[] \t\r\n") // one image, alone or in a list, is the same image
		if len(value) > 0 && string(value) != "null" && string(value) != `""` {
			h.Write(value)
			h.Write([]byte{0})
			found = true
		}
	}
	jsonrecords.Fields(record, func(key, value []byte) {
		switch strings.ToLower(string(key)) { // as decoding matches them
		case `"image"`, `"images"`, `"video"`, `"videos"`:
			add(value)
		case `"messages"`, `"prompt"`:
			for _, key := range []string{`"image"`, `"image_url"`, `"video"`, `"video_url"`, `"frames"`, `"path"`, `"url"`} {
				for rest := value; ; {
					at := bytes.Index(rest, []byte(key))
					if at < 0 {
						break
					}
					rest = bytes.TrimLeft(rest[at+len(key):], " \t\r\n")
					if bytes.HasPrefix(rest, []byte(":")) {
						add(rest[1:][:jsonrecords.ValueEnd(rest[1:])])
					}
				}
			}
		}
	})
	if !found {
		return 0
	}
	return max(1, h.Sum64())
}

// Split chooses the validation rows: all but floor(ratio·n), by seed and row alone, so that a training seed
// moves no sample. Rows of one group go to one side together: two questions about one picture never
// stand on both. groups may be nil.
func Split(n int, groups []uint64, ratio float64, seed int64) (train, val []int64) {
	order := make([]int, n)
	mates := map[uint64][]int{}
	for i := range order {
		order[i] = i
		if groups != nil && groups[i] != 0 {
			mates[groups[i]] = append(mates[groups[i]], i)
		}
	}
	r := rng.New(seed, "split")
	r.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
	isVal := make([]bool, n)
	want := n - int(float64(n)*ratio)
	take := func(i int) {
		if !isVal[i] {
			isVal[i] = true
			want--
		}
	}
	for _, i := range slices.Backward(order) {
		if want <= 0 {
			break
		}
		take(i)
		if groups != nil && groups[i] != 0 {
			for _, mate := range mates[groups[i]] {
				take(mate)
			}
		}
	}
	for i, v := range isVal {
		if v {
			val = append(val, int64(i))
		} else {
			train = append(train, int64(i))
		}
	}
	return train, val
}
