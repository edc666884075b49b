package preflight

import (
	"math"
	"testing"
)

// wave is a number between -1 and 1 that looks random and is not.
func wave(i, salt int) float64 { return math.Sin(float64(i*i)*1.7 + float64(salt)*2.3) }

// TestEmbeddings: a table is named only where pairs and rewards both say nothing, of 200 queries at least.
func TestEmbeddings(t *testing.T) {
	for _, tc := range []struct {
		name        string
		queries     int
		pairs, gain float64
		want        int
	}{
		{"a table that says nothing", 400, 0, 0, 1},
		{"few queries", 190, 0, 0, 0},
		{"pairs in order", 400, 0.06, 0, 0},
		{"similar examples that earn more, as beams of the most similar ones have", 400, 0, 0.03, 0},
		{"pairs in the other order", 400, -0.06, 0, 0},
	} {
		s := Similarity{Name: "rce"}
		for q := range tc.queries {
			s.Pairs = append(s.Pairs, 0.5+tc.pairs+0.3*wave(q, 1))
			s.Random = append(s.Random, 0.2+0.1*wave(q, 2))
			s.Similar = append(s.Similar, 0.2+0.1*wave(q, 2)+tc.gain+0.1*wave(q, 3))
		}
		report := New(Checks(), 1)
		if report.Embeddings(s); len(report.Findings()) != tc.want {
			t.Errorf("%s: %+v, want %d", tc.name, report.Findings(), tc.want)
		}
	}
}

// TestAlone: a number that is the reward, in whatever sign and with some noise, is named; so is one that finds the best candidate alone.
// One that says something is not.
func TestAlone(t *testing.T) {
	for _, tc := range []struct {
		name string
		of   func(reward, noise float64) float64
		want int
	}{
		{"noise", func(_, noise float64) float64 { return noise }, 0},
		{"some use", func(reward, noise float64) float64 { return reward + 2*noise }, 0},
		{"the reward", func(reward, noise float64) float64 { return reward + 0.05*noise }, 1},
		{"minus the reward", func(reward, noise float64) float64 { return -reward }, 1},
		{"the right answer", func(reward, noise float64) float64 { return math.Floor(reward + 0.1) }, 1},
	} {
		in := Input{Name: "feature"}
		for q := range 64 {
			var values, rewards []float64
			for g := range 20 {
				reward := math.Abs(wave(100*q+g, 4)) / 2
				if g == q%20 {
					reward = 1
				}
				values, rewards = append(values, tc.of(reward, wave(100*q+g, 5))), append(rewards, reward)
			}
			in.Add(values, rewards)
		}
		report := New(Checks(), 1)
		if report.Alone(in); len(report.Findings()) != tc.want {
			t.Errorf("%s: %+v, want %d", tc.name, report.Findings(), tc.want)
		}
	}
}
