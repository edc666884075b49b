package pixels

import (
	"fmt"
	"math"
)

// Sampling says which frames of a video file are taken and how large they may be, as the package
// qwen_vl_utils does it, through which most users of the published models go.
type Sampling struct {
	FPS                  float64 // frames taken of a second
	MinFrames, MaxFrames int
	MinPixels, MaxPixels int // bounds of one frame
	TotalPixels          int // bound of all frames
}

// DefaultSampling returns the published values.
func DefaultSampling() Sampling {
	const token = 28 * 28
	return Sampling{FPS: DefaultFPS, MinFrames: 4, MaxFrames: 768, MinPixels: 128 * token, MaxPixels: 768 * token,
		TotalPixels: 115200 * token}
}

// Frames returns the numbers of the frames to take of a video of total frames at rate frames a second,
// an even count from the first frame to the last, and the rate at which they then stand.
func (s Sampling) Frames(total int, rate float64) (frames []int, fps float64, err error) {
	if total < 2 || rate <= 0 || math.IsNaN(rate) || math.IsInf(rate, 0) {
		return nil, 0, fmt.Errorf("video of %d frames at %g a second: want two frames at least", total, rate)
	}
	const factor = 2
	lowest := (s.MinFrames + factor - 1) / factor * factor
	highest := min(s.MaxFrames, total) / factor * factor
	n := min(max(float64(total)/rate*s.FPS, float64(lowest)), float64(highest), float64(total))
	count := int(n/factor) * factor
	if count < factor {
		return nil, 0, fmt.Errorf("video of %d frames at %g a second: sampling at %g a second takes none", total, rate, s.FPS)
	}
	return linspace(total-1, count), float64(count) / float64(total) * rate, nil
}

// linspace returns n whole numbers from 0 to last, evenly spaced and rounded half to even, with
// torch.linspace's float32 arithmetic, which counts from both ends.
func linspace(last, n int) []int {
	step := float32(last) / float32(n-1)
	out := make([]int, n)
	for i := range out {
		x := step * float32(i)
		if i >= n/2 {
			x = float32(last) - step*float32(n-1-i)
		}
		out[i] = int(math.RoundToEven(float64(x)))
	}
	return out
}

// Bounds returns c with the bounds of one of n sampled frames, within its own.
func (s Sampling) Bounds(c Config, n int) Config {
	most := max(min(float64(s.MaxPixels), float64(s.TotalPixels)/float64(n)*2), float64(int(float64(s.MinPixels)*1.05)))
	c.MaxPixels = max(min(c.MaxPixels, int(most)), 1)
	c.MinPixels = min(max(c.MinPixels, s.MinPixels), c.MaxPixels)
	return c
}
