// Package pixels turns images and videos into the patches that the vision tower of Qwen2.5-VL reads, equal
// bit for bit to what Qwen2VLImageProcessorPil of transformers 5 over Pillow 13 makes of Image.open(path).
//
//	config, err := pixels.OpenConfig("Qwen2.5-VL-3B-Instruct")
//	img, err := pixels.Decode("photo.jpg")
//	patches, err := config.Image(img) // Data [Rows, 1176], Grid {t, h, w}
//
// An image goes through: RGB on white as transformers converts (rgb.go), a size in multiples of 28 (SmartResize),
// Pillow's bicubic resize (resize.go), normalisation, and the order of the patches (Image, Video).
package pixels

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"math"

	"fulcrum/internal/digest"
)

// Config is what preprocessor_config.json says.
type Config struct {
	MinPixels, MaxPixels int // bounds of height × width after the resize
	PatchSize            int // 14
	TemporalPatchSize    int // 2 frames to a patch
	MergeSize            int // 2: a cell of 2×2 patches becomes one token
	Mean, Std            [3]float64
}

// DefaultConfig is that of the published Qwen2.5-VL models.
func DefaultConfig() Config {
	return Config{MinPixels: 4 * 28 * 28, MaxPixels: 16384 * 28 * 28, PatchSize: 14, TemporalPatchSize: 2, MergeSize: 2,
		Mean: [3]float64{0.48145466, 0.4578275, 0.40821073}, Std: [3]float64{0.26862954, 0.26130258, 0.27577711}}
}

// mostEnlarged bounds what a small picture is enlarged to, 8192×8192: more than any model reads, and less than memory.
const mostEnlarged = 1 << 26

// Validate reports the first value that cannot be.
func (c Config) Validate() error {
	switch {
	case c.PatchSize < 1 || c.PatchSize > 1024 || c.MergeSize < 1 || c.MergeSize > 64 || c.TemporalPatchSize < 1 ||
		c.TemporalPatchSize > 64:
		return fmt.Errorf("patch_size %d, merge_size %d, temporal_patch_size %d: want small positive numbers", c.PatchSize, c.MergeSize,
			c.TemporalPatchSize)
	case c.MinPixels < 1 || c.MaxPixels < c.MinPixels || c.MinPixels > mostEnlarged:
		return fmt.Errorf("min_pixels %d, max_pixels %d: want 0 < min ≤ max, and min at most %d", c.MinPixels, c.MaxPixels, mostEnlarged)
	case c.Std[0] <= 0 || c.Std[1] <= 0 || c.Std[2] <= 0:
		return fmt.Errorf("image_std %v: want positive numbers", c.Std)
	}
	return nil
}

// Within returns c with other bounds of pixels; 0 keeps one. An upper bound alone lowers the other.
func (c Config) Within(least, most int) (Config, error) {
	c.MinPixels, c.MaxPixels = cmp.Or(least, c.MinPixels), cmp.Or(most, c.MaxPixels)
	if least == 0 {
		c.MinPixels = min(c.MinPixels, c.MaxPixels)
	}
	return c, c.Validate()
}

// Width returns the values of one patch: 3 channels × frames × height × width.
func (c Config) Width() int { return 3 * c.TemporalPatchSize * c.PatchSize * c.PatchSize }

// Patches is what the vision tower reads of one image or video.
type Patches struct {
	Data []float32 // [Rows, Config.Width()]
	Rows int
	Grid [3]int // frame groups, height and width in patches; the rows are in the order of cells of MergeSize²

	SecondsPerGrid float32 // seconds from one frame group to the next; 0 for an image
	Key            string  // equal keys mean equal Data and Grid: for caches of features

	frames []*RGB // what Data was made of, eight times smaller: what a cache keeps
}

// Tokens returns how many tokens of the language model the patches become.
func (p Patches) Tokens(c Config) int { return p.Rows / (c.MergeSize * c.MergeSize) }

// SmartResize returns the size that an image is resized to: multiples of factor, close to its own
// proportions, with minPixels ≤ height × width ≤ maxPixels. Rounding is half to even. As in transformers 5, a side
// below factor is enlarged, and a long thin image keeps one factor on its short side, though it then exceeds maxPixels.
func SmartResize(height, width, factor, minPixels, maxPixels int) (h, w int, err error) {
	if float64(max(height, width))/float64(min(height, width)) > 200 {
		return 0, 0, fmt.Errorf("image of %d×%d (height × width): the sides want a ratio of at most 200", height, width)
	}
	f := float64(factor)
	h = factor * int(math.RoundToEven(float64(height)/f))
	w = factor * int(math.RoundToEven(float64(width)/f))
	switch {
	case h*w > maxPixels:
		b := math.Sqrt(float64(height) * float64(width) / float64(maxPixels))
		h = factor * max(1, int(math.Floor(float64(height)/b/f)))
		w = factor * max(1, int(math.Floor(float64(width)/b/f)))
	case h*w < minPixels:
		b := math.Sqrt(float64(minPixels) / (float64(height) * float64(width)))
		h = factor * int(math.Ceil(float64(height)*b/f))
		w = factor * int(math.Ceil(float64(width)*b/f))
	}
	return h, w, nil
}

// Image returns the patches of one image: a video of one frame that stands for all of a group.
func (c Config) Image(img image.Image) (Patches, error) {
	h, w, err := c.size(img)
	if err != nil {
		return Patches{}, err
	}
	return c.patches([]*RGB{ToRGB(img).Resize(w, h)}), nil
}

// Patches returns the patches of an image whose sides are multiples of a cell's, without resizing.
func (c Config) Patches(img *RGB) Patches { return c.patches([]*RGB{img}) }

// Video returns the patches of n frames sampled at fps frames a second; 0 stands for 2, the default of the published models. The
// frames are read one after the other, and each is resized before the next comes. All take the size of the first; a last group that
// is not full repeats the last frame.
func (c Config) Video(n int, frame func(i int) (image.Image, error), fps float64) (Patches, error) {
	fps = cmp.Or(fps, DefaultFPS)
	if fps < 0 || math.IsNaN(fps) || math.IsInf(fps, 0) {
		return Patches{}, fmt.Errorf("video: fps %g, want a positive number", fps)
	}
	if n == 0 {
		return Patches{}, errors.New("video: no frames")
	}
	resized := make([]*RGB, n)
	var h, w int
	for i := range resized {
		img, err := frame(i)
		if err == nil && i == 0 {
			h, w, err = c.size(img)
		}
		if err != nil {
			return Patches{}, err
		}
		resized[i] = ToRGB(img).resizeFrame(w, h)
	}
	p := c.patches(resized)
	p.SecondsPerGrid = c.secondsPerGrid(fps)
	return p, nil
}

func (c Config) secondsPerGrid(fps float64) float32 {
	return float32(float64(c.TemporalPatchSize) / fps)
}

// DefaultFPS is the rate at which videos are sampled, in frames a second.
const DefaultFPS = 2.0

// size returns the height and width that an image is resized to.
func (c Config) size(img image.Image) (h, w int, err error) {
	return c.resized(img.Bounds().Dy(), img.Bounds().Dx())
}

func (c Config) resized(height, width int) (h, w int, err error) {
	return SmartResize(height, width, c.PatchSize*c.MergeSize, c.MinPixels, c.MaxPixels)
}

// Check reads the header of an image file and reports what Decode and Image would refuse it for: no image,
// or one of a size that has no patches.
func (c Config) Check(path string) error {
	h, w, err := Size(path)
	if err != nil {
		return err
	}
	if _, _, err := c.resized(h, w); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// patches cuts frames of one size, its sides multiples of a cell's.
func (c Config) patches(frames []*RGB) Patches {
	h, w := frames[0].H, frames[0].W
	groups := (len(frames) + c.TemporalPatchSize - 1) / c.TemporalPatchSize
	p := Patches{Grid: [3]int{groups, h / c.PatchSize, w / c.PatchSize}, frames: frames}
	p.Rows = groups * p.Grid[1] * p.Grid[2]
	p.Data = c.normalised(p)
	sum := digest.New()
	fmt.Fprint(sum, len(frames), h, w, c.PatchSize, c.MergeSize, c.TemporalPatchSize, c.Mean, c.Std)
	for _, frame := range frames {
		sum.Write(frame.Pix)
	}
	p.Key = sum.Hex()[:32]
	return p
}

// normalised makes the rows of a patches' frames.
func (c Config) normalised(p Patches) []float32 {
	data := make([]float32, p.Rows*c.Width())
	table := c.table()
	for i, frame := range p.frames {
		copies := 1
		if i == len(p.frames)-1 {
			copies = p.Grid[0]*c.TemporalPatchSize - i
		}
		c.scatter(data, frame, table, i, copies)
	}
	return data
}

// table returns the normalised value of each byte of each channel, in the types of the reference:
// float32(float64(byte)·(1/255)), then (x - mean)/std in float32.
func (c Config) table() *[3][256]float32 {
	const scale = 1.0 / 255
	var t [3][256]float32
	for ch := range t {
		for b := range t[ch] {
			x := float32(float64(b) * float64(scale))
			t[ch][b] = (x - float32(c.Mean[ch])) / float32(c.Std[ch])
		}
	}
	return &t
}

// scatter writes frame number at, and its copies behind it, into data. The rows of data go through
// (frame group, cell row, cell column, row in the cell, column in the cell), each row through
// (channel, frame in the group, y, x).
func (c Config) scatter(data []float32, img *RGB, table *[3][256]float32, at, copies int) {
	p, m, t := c.PatchSize, c.MergeSize, c.TemporalPatchSize
	group, slot := at/t, at%t
	gridH, gridW := img.H/p, img.W/p
	area := p * p
	row := data[group*gridH*gridW*c.Width():]
	for cellY := 0; cellY < gridH; cellY += m {
		for cellX := 0; cellX < gridW; cellX += m {
			for y := cellY; y < cellY+m; y++ {
				for x := cellX; x < cellX+m; x++ {
					for ch := range 3 {
						values := &table[ch]
						block := row[(ch*t+slot)*area:][:copies*area]
						for py := range p {
							from := img.Pix[((y*p+py)*img.W+x*p)*3:][:3*p]
							to := block[py*p:][:p]
							for px := range to {
								to[px] = values[from[3*px+ch]]
							}
						}
						for k := 1; k < copies; k++ {
							copy(block[k*area:][:area], block[:area])
						}
					}
					row = row[c.Width():]
				}
			}
		}
	}
}

// Thumbnail returns a picture as a small JPEG whose longer side has at most so many pixels. Equal pictures give equal bytes.
func Thumbnail(img image.Image, side int) ([]byte, error) {
	m := ToRGB(img)
	if longer := max(m.W, m.H); longer > side {
		m = m.Resize(max(m.W*side/longer, 1), max(m.H*side/longer, 1))
	}
	var out bytes.Buffer
	err := jpeg.Encode(&out, m, &jpeg.Options{Quality: 80})
	return out.Bytes(), err
}
