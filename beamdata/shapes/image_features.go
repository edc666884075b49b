package shapes

import (
	"image"
	"math"

	"fulcrum/internal/rng"
)

const (
	contextDim = 58
	regionDim  = hueBins*formDim + countBins
	imageDim   = regionDim + contextDim

	hueBins   = 12
	formDim   = 6 // descriptors of a region's form
	countBins = 6

	colourCells = 4 // the picture in 4 × 4 cells, each with a colour histogram
	colourBins  = 9 // six hues, weighted by saturation, and three greys
	edgeCells   = 2
	edgeBins    = 8
	thumb       = 8 // the picture at 8 × 8 pixels

	// regionShare is the part of the image block's squared length that describes regions; the rest
	// describes the picture as a whole, where background and positions weigh most.
	regionShare = 0.25
)

// imageModel embeds pictures. Its context part (colour histograms by cell, edge histograms, thumbnail)
// goes through a fixed random projection; its region part is used as it is.
type imageModel struct {
	project []float64 // [contextDim, rawContext]
}

const rawContext = colourCells*colourCells*colourBins + edgeCells*edgeCells*edgeBins + 3*thumb*thumb

func newImageModel(seed int64) *imageModel {
	r := rng.New(seed, "shapes image projection")
	m := &imageModel{project: make([]float64, contextDim*rawContext)}
	for i := range m.project {
		m.project[i] = float64(r.IntN(2)*2 - 1)
	}
	return m
}

// embed returns the unit image block [imageDim] of a picture.
func (m *imageModel) embed(img *image.RGBA) []float64 {
	colours := coloursOf(img)
	raw := make([]float64, 0, rawContext)
	raw = append(raw, scale(colourHistograms(colours), 1)...)
	raw = append(raw, scale(edgeHistograms(img), 0.7)...)
	raw = append(raw, scale(thumbnail(img), 0.7)...)
	context := make([]float64, contextDim)
	for d := range context {
		sum := 0.0
		for i, w := range m.project[d*rawContext : (d+1)*rawContext] {
			sum += w * raw[i]
		}
		context[d] = sum
	}
	out := make([]float64, 0, imageDim)
	out = append(out, scale(regionBag(colours), math.Sqrt(regionShare))...)
	return unit(append(out, scale(context, math.Sqrt(1-regionShare))...))
}

// scale brings x to length by.
func scale(x []float64, by float64) []float64 {
	unit(x)
	for i := range x {
		x[i] *= by
	}
	return x
}

// pixel returns red, green, blue in 0..255.
func pixel(img *image.RGBA, x, y int) (r, g, b float64) {
	at := y*img.Stride + 4*x
	return float64(img.Pix[at]), float64(img.Pix[at+1]), float64(img.Pix[at+2])
}

// colour is a pixel's hue in turns [0, 1), its saturation (largest minus smallest channel) and its largest channel.
type colour struct{ hue, sat, value float64 }

// coloursOf returns the pixels of a picture, row by row.
func coloursOf(img *image.RGBA) []colour {
	out := make([]colour, ImageSize*ImageSize)
	for at := range out {
		out[at].hue, out[at].sat, out[at].value = chroma(pixel(img, at%ImageSize, at/ImageSize))
	}
	return out
}

func chroma(r, g, b float64) (hue, sat, value float64) {
	high, low := max(r, g, b), min(r, g, b)
	sat = high - low
	if sat == 0 {
		return 0, 0, high
	}
	switch high {
	case r:
		hue = (g - b) / sat / 6
	case g:
		hue = ((b-r)/sat + 2) / 6
	default:
		hue = ((r-g)/sat + 4) / 6
	}
	if hue < 0 {
		hue++
	}
	return hue, sat, high
}

// addCircular splits weight w between the two bins nearest to hue on a circle of bins.
func addCircular(bins []float64, hue, w float64) {
	at := hue * float64(len(bins))
	i := int(at)
	part := at - float64(i)
	bins[i%len(bins)] += w * (1 - part)
	bins[(i+1)%len(bins)] += w * part
}

func colourHistograms(colours []colour) []float64 {
	out := make([]float64, colourCells*colourCells*colourBins)
	for y := range ImageSize {
		for x := range ImageSize {
			cell := out[(y*colourCells/ImageSize*colourCells+x*colourCells/ImageSize)*colourBins:]
			c := colours[y*ImageSize+x]
			addCircular(cell[:6], c.hue, c.sat/255)
			cell[6+min(2, int(c.value/86))] += 1 - c.sat/255
		}
	}
	for i, v := range out { // square roots: Hellinger instead of linear kernel
		out[i] = math.Sqrt(v)
	}
	return out
}

func edgeHistograms(img *image.RGBA) []float64 {
	const faintest = 8000            // of 255000
	luma := func(x, y int) float64 { // in whole thousandths: a threshold stands behind it
		r, g, b := pixel(img, x, y)
		return 299*r + 587*g + 114*b
	}
	out := make([]float64, edgeCells*edgeCells*edgeBins)
	for y := 1; y < ImageSize-1; y++ {
		for x := 1; x < ImageSize-1; x++ {
			dx, dy := luma(x+1, y)-luma(x-1, y), luma(x, y+1)-luma(x, y-1)
			strength := math.Sqrt(dx*dx + dy*dy)
			if strength < faintest {
				continue
			}
			turn := math.Atan2(dy, dx)/math.Pi + 1 // orientation, not direction
			cell := out[(y*edgeCells/ImageSize*edgeCells+x*edgeCells/ImageSize)*edgeBins:]
			addCircular(cell[:edgeBins], turn-math.Floor(turn), strength)
		}
	}
	return out
}

func thumbnail(img *image.RGBA) []float64 {
	out := make([]float64, 3*thumb*thumb)
	for y := range ImageSize {
		for x := range ImageSize {
			at := 3 * (y*thumb/ImageSize*thumb + x*thumb/ImageSize)
			r, g, b := pixel(img, x, y)
			out[at] += r - 128
			out[at+1] += g - 128
			out[at+2] += b - 128
		}
	}
	return out
}

// regionBag finds connected saturated regions and sums, over them, the outer product of a soft hue
// histogram [hueBins] with form descriptors [formDim]; a soft one-hot of the regions' number follows.
func regionBag(colours []colour) []float64 {
	out := make([]float64, regionDim)
	regions := segment(colours)
	for _, p := range regions {
		var hue [hueBins]float64
		for _, at := range p {
			addCircular(hue[:], colours[at].hue, colours[at].sat)
		}
		unit(hue[:])
		form := describe(p)
		for h, w := range hue {
			for f, v := range form {
				out[h*formDim+f] += w * v
			}
		}
	}
	out[hueBins*formDim+min(countBins, max(1, len(regions)))-1] = 1
	return out
}

// segment returns the pixels (y·ImageSize + x) of each 4-connected region of saturated pixels.
func segment(colours []colour) [][]int {
	const threshold, smallest = 85, 14
	var open [ImageSize * ImageSize]bool
	for at := range open {
		open[at] = colours[at].sat > threshold
	}
	var out [][]int
	for at := range open {
		if !open[at] {
			continue
		}
		open[at] = false
		p := []int{at}
		for i := 0; i < len(p); i++ {
			x, y := p[i]%ImageSize, p[i]/ImageSize
			for _, n := range [4][2]int{{x - 1, y}, {x + 1, y}, {x, y - 1}, {x, y + 1}} {
				if n[0] >= 0 && n[0] < ImageSize && n[1] >= 0 && n[1] < ImageSize && open[n[1]*ImageSize+n[0]] {
					open[n[1]*ImageSize+n[0]] = false
					p = append(p, n[1]*ImageSize+n[0])
				}
			}
		}
		if len(p) >= smallest {
			out = append(out, p)
		}
	}
	return out
}

// describe returns a unit vector that tells forms apart whatever their place, size and rotation: the
// 3rd, 4th and 5th harmonics of the outer radius around the centre, how much of the circumscribed disc
// is filled, whether the centre is empty, and a constant.
func describe(p []int) [formDim]float64 {
	const rays, reach, step = 60, 14, 0.25
	var cx, cy float64
	var inside [ImageSize * ImageSize]bool
	for _, at := range p {
		cx += float64(at%ImageSize) + 0.5
		cy += float64(at/ImageSize) + 0.5
		inside[at] = true
	}
	cx /= float64(len(p))
	cy /= float64(len(p))
	// Products that meet a floor are converted, so that no processor fuses them: the bits stay equal.
	isInside := func(x, y float64) bool {
		return x >= 0 && y >= 0 && x < ImageSize && y < ImageSize && inside[int(y)*ImageSize+int(x)]
	}
	var re, im [6]float64
	for i := range rays {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / rays)
		radius := float64(reach)
		for radius > 0 && !isInside(cx+float64(radius*cos), cy+float64(radius*sin)) {
			radius -= step
		}
		kc, ks := 1.0, 0.0 // cosine and sine of k times the ray's angle
		for k := range re {
			re[k] += radius * kc
			im[k] += radius * ks
			kc, ks = kc*cos-ks*sin, ks*cos+kc*sin
		}
	}
	mean := math.Max(re[0]/rays, 1)
	harmonic := func(k int) float64 { return math.Min(1, 2*math.Hypot(re[k], im[k])/rays/mean/0.25) }
	hole := 1.0
	for dy := -1.0; dy <= 1; dy++ {
		for dx := -1.0; dx <= 1; dx++ {
			if isInside(cx+dx, cy+dy) {
				hole -= 1.0 / 9
			}
		}
	}
	disc := float64(len(p)) / (math.Pi * mean * mean)
	form := [formDim]float64{0.35, harmonic(3), harmonic(4), harmonic(5), math.Max(0, 1-disc), math.Max(0, hole)}
	unit(form[:])
	return form
}
