package shapes

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/draw"
	"image/png"
	"os"
	"testing"
	"time"
)

func TestDebug(t *testing.T) {
	dir := os.Getenv("SHAPES_DEBUG")
	if dir == "" {
		t.Skip()
	}
	t0 := time.Now()
	d, err := Generate(DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("generated in", time.Since(t0))
	f, _ := os.Create(dir + "/emb.f32")
	w := bufio.NewWriter(f)
	binary.Write(w, binary.LittleEndian, d.Embeddings)
	w.Flush()
	f.Close()
	type rec struct {
		P []int32
		R float64
		M string
	}
	type qj struct {
		Row    int32
		Pool   []int32
		S, G   []float64
		S0, P0 float64
		B      []rec
		R      []rec
	}
	conv := func(qs []Query) (out []qj) {
		for _, q := range qs {
			x := qj{Row: q.Row, Pool: q.Pool, S: q.Score, G: q.DemoAcc, S0: q.PriorScore, P0: q.PriorAcc}
			for _, b := range q.Beams {
				x.B = append(x.B, rec{b.Positions, b.Soft, "beam"})
			}
			for _, b := range q.Records {
				x.R = append(x.R, rec{b.Positions, b.Soft, b.Method})
			}
			out = append(out, x)
		}
		return
	}
	f, _ = os.Create(dir + "/data.json")
	w = bufio.NewWriter(f)
	json.NewEncoder(w).Encode(map[string]any{"dim": Dim, "qd": questionDim, "items": d.Items, "train": conv(d.Train), "val": conv(d.Val), "dev": conv(d.Dev)})
	w.Flush()
	f.Close()
	sheet := image.NewRGBA(image.Rect(0, 0, 12*66, 8*66))
	for i := range 96 {
		p := image.Pt(i%12*66, i/12*66)
		draw.Draw(sheet, image.Rect(p.X, p.Y, p.X+64, p.Y+64), d.Image(i*3), image.Point{}, draw.Src)
	}
	f, _ = os.Create(dir + "/sheet.png")
	png.Encode(f, sheet)
	f.Close()
}
