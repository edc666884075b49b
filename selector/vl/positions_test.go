package vl

import (
	"slices"
	"testing"
)

// TestPositions compares position ids and deltas with Hugging Face's, exactly. Its left-padded batches are checked row by
// row without the padding, which we do not have.
func TestPositions(t *testing.T) {
	arrays := fixture(t, "rope_index")
	cases := expectations(t).RopeIndex
	if len(cases) != 10 {
		t.Fatalf("%d cases, want 10", len(cases))
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := &Config{ImageToken: tc.ImageToken, VideoToken: tc.VideoToken, Vision: &Vision{Merge: 2, TokensPerSecond: tc.PerSecond}}
			input, _ := arrays.Get(name + ".input_ids")
			batch, length := input.Shape[0], input.Shape[1]
			all, want := ints(t, arrays, name+".input_ids"), ints(t, arrays, name+".position_ids")
			mask := slices.Repeat([]int64{1}, batch*length)
			if tc.HasMask {
				mask = ints(t, arrays, name+".attention_mask")
			}
			images, videos := grids(tc.Images, nil), grids(tc.Videos, tc.Seconds)
			for row := range batch {
				var ids []int64
				for i := row * length; i < (row+1)*length; i++ {
					if mask[i] == 1 {
						ids = append(ids, all[i])
					}
				}
				// grids are listed for the whole batch, in order of appearance
				nImages, nVideos := runs(ids, tc.ImageToken, images), runs(ids, tc.VideoToken, videos)
				at, next, err := cfg.positions(ids, images[:nImages], videos[:nVideos])
				if err != nil {
					t.Fatal(err)
				}
				images, videos = images[nImages:], videos[nVideos:]
				k := 0
				for i := range length {
					if mask[row*length+i] == 0 {
						continue
					}
					for axis := range 3 {
						if w := want[(axis*batch+row)*length+i]; at[k][axis] != int(w) {
							t.Fatalf("row %d, token %d, axis %d: got %d, want %d", row, i, axis, at[k][axis], w)
						}
					}
					k++
				}
				if got := next - length; got != tc.Deltas[row] { // HF counts from the padded length
					t.Errorf("row %d: delta %d, want %d", row, got, tc.Deltas[row])
				}
			}
		})
	}
}

func grids(thw [][3]int, seconds []float32) []grid {
	out := make([]grid, len(thw))
	for i, g := range thw {
		out[i] = grid{g[0], g[1], g[2], 0}
		if seconds != nil {
			out[i].seconds = seconds[i]
		}
	}
	return out
}

// runs counts how many of the grids the placeholders among ids fill.
func runs(ids []int64, pad int64, of []grid) int {
	n := 0
	for _, id := range ids {
		if id == pad {
			n++
		}
	}
	for i, g := range of {
		if n == 0 {
			return i
		}
		n -= g.t * g.h * g.w / 4
	}
	return len(of)
}

func TestPositionsNameWhatDoesNotFit(t *testing.T) {
	cfg := &Config{ImageToken: 8, VideoToken: 9, Vision: &Vision{Merge: 2, TokensPerSecond: 2}}
	one := []grid{{1, 4, 4, 0}}
	for _, tc := range []struct {
		name   string
		ids    []int64
		images []grid
		want   string
	}{
		{"a placeholder without image", []int64{1, 8}, nil, "token 1 of the prompt is an image placeholder, but there is no image left"},
		{"too few placeholders", []int64{8, 8, 8, 1}, one,
			"the placeholder at token 0 repeats 3 times, want 4 for a grid of 1×4×4 patches"},
		{"an image without placeholder", []int64{1, 2}, one, "1 images and 0 videos have no placeholder in the prompt"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, _, err := cfg.positions(tc.ids, tc.images, nil); err == nil || err.Error() != tc.want {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
