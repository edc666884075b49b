package shapes

import (
	"image/png"
	"math"
	"os"
	"path/filepath"
	"testing"

	"fulcrum/internal/rng"
)

func oneObject(o object) *scene {
	return &scene{tint: [3]float64{200, 200, 200}, period: 8, objects: []object{o}}
}

// The painted area is the polygon's, edges are blended, and nothing else changes.
func TestRenderCoversTheOutline(t *testing.T) {
	for sh := range numShapes {
		t.Run(shapeNames[sh], func(t *testing.T) {
			o := object{shape: sh, hue: 0, x: 31.3, y: 30.8, r: 9.2, angle: 0.2, shade: 1}
			s := oneObject(o)
			img := s.render()
			area := 0.0
			for i, p := range o.outline() { // the second polygon of a ring is its hole
				part := 0.0
				for k, a := range p {
					b := p[(k+1)%len(p)]
					part += (a.x*b.y - b.x*a.y) / 2
				}
				area += math.Abs(part) * []float64{1, -1}[i]
			}
			ink, blended := 0.0, 0
			for y := range ImageSize {
				for x := range ImageSize {
					_, g, _ := pixel(img, x, y)
					full := hues[0].rgb[1]
					cover := (200 - g) / (200 - full)
					ink += cover
					if cover > 0.05 && cover < 0.95 {
						blended++
					}
					if far := math.Hypot(float64(x)-o.x, float64(y)-o.y) > 13; far && cover != 0 {
						t.Fatalf("pixel %d,%d is painted", x, y)
					}
				}
			}
			if math.Abs(ink-area) > 0.01*area {
				t.Errorf("painted %.2f pixels, the outline holds %.2f", ink, area)
			}
			if blended < 10 {
				t.Errorf("%d blended pixels: edges are not smooth", blended)
			}
		})
	}
}

func TestImageShowsTheScene(t *testing.T) {
	d := generate(t, small())
	for row := range d.Items {
		img := d.scenes[d.Items[row].Scene].render()
		if b := img.Bounds(); b.Dx() != ImageSize || b.Dy() != ImageSize {
			t.Fatalf("row %d: picture of %v", row, b)
		}
		for _, o := range d.scenes[d.Items[row].Scene].objects {
			if o.shape == ring {
				continue // hollow
			}
			want := o.rgb()
			if got := img.At(int(o.x), int(o.y)); got != want {
				t.Errorf("row %d: %v at the centre of a %s %s, want %v", row, got, hues[o.hue].name, shapeNames[o.shape], want)
			}
		}
	}
	if os.Getenv("SHAPES_PNG") == "" {
		return
	}
	f, err := os.Create(filepath.Join(os.Getenv("SHAPES_PNG"), "scene.png")) // to look at one
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := png.Encode(f, d.scenes[0].render()); err != nil {
		t.Fatal(err)
	}
}

// Regions are found and their forms can be told apart: the features carry what questions ask about.
func TestRegionFeatures(t *testing.T) {
	found, total := 0, 0
	for id := range 300 {
		s := newScene(7, id)
		total++
		if len(segment(coloursOf(s.render()))) == len(s.objects) {
			found++
		}
	}
	if found < total*95/100 {
		t.Errorf("the number of regions is right in %d of %d scenes", found, total)
	}

	r := rng.New(3, "test")
	draw := func(sh shape) [formDim]float64 {
		o := object{shape: sh, hue: r.IntN(numHues), x: 28 + 8*r.Float64(), y: 28 + 8*r.Float64(), r: 5.6 + 3.9*r.Float64(),
			angle: (2*r.Float64() - 1) * math.Pi / 12, shade: 1}
		return describe(segment(coloursOf(oneObject(o).render()))[0])
	}
	var centre [numShapes][formDim]float64
	for sh := range numShapes {
		for range 40 {
			for k, v := range draw(sh) {
				centre[sh][k] += v / 40
			}
		}
	}
	right := 0
	for sh := range numShapes {
		for range 50 {
			form := draw(sh)
			nearest, best := shape(0), math.Inf(1)
			for c := range numShapes {
				dist := 0.0
				for k, v := range form {
					dist += (v - centre[c][k]) * (v - centre[c][k])
				}
				if dist < best {
					nearest, best = c, dist
				}
			}
			if nearest == sh {
				right++
			}
		}
	}
	if right < 50*int(numShapes)*9/10 {
		t.Errorf("form descriptors name the shape of %d of %d objects", right, 50*int(numShapes))
	}
}
