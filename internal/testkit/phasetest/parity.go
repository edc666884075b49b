package phasetest

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/selector/pointer"
)

// Reported is a number of the recordings: "nan", "inf" and "-inf" are strings.
type Reported float64

func (x *Reported) UnmarshalJSON(text []byte) error {
	f, err := strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	*x = Reported(f)
	return err
}

func ReportedClose(t *testing.T, what string, got any, want Reported, abs, rel float64) {
	t.Helper()
	g, w := got.(float64), float64(want)
	if g == w || math.IsNaN(g) && math.IsNaN(w) || math.Abs(g-w) <= abs+rel*math.Abs(w) {
		return
	}
	t.Errorf("%s: got %.9g, want %.9g", what, g, w)
}

func ReferencePolicy(t *testing.T, init string, dim, heads int) *pointer.Policy {
	t.Helper()
	opt := pointer.DefaultOptions()
	opt.Taken, opt.NumHeads = "minus_100", heads
	p, err := pointer.Open(init, pointer.OpenOptions{Options: opt, Dim: dim, Device: "cpu", Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Free)
	return p
}

// LossCase is a row of units/losses.json: losses on explicit inputs with the weights of inits/L1.
type LossCase struct {
	B, K          int
	NumBeams      int    `json:"num_beams"`
	Query         string `json:"query_emb_b64"`
	Cand          string `json:"cand_emb_b64"`
	Labels        [][][]int32
	Rewards       [][]Reported
	Smoothing     float64     `json:"label_smoothing"`
	Temperature   float64     `json:"rce_temperature"`
	Rank          bool        `json:"rce_rank"`
	Top1          bool        `json:"rce_top1"`
	LogProbs      [][]float64 `json:"log_probs"`
	OldMinusNew   [][]float64 `json:"old_minus_new"`
	RCELoss       Reported    `json:"rce_loss"`
	RCEGradNorm   Reported    `json:"rce_grad_norm"`
	TopK          *int        `json:"use_top_k"`
	ClipOnly      bool        `json:"ppo_clip_only"`
	AdvantageClip float64     `json:"advantage_clip"`
	Epsilon       float64     `json:"clip_epsilon"`
	Beta          float64     `json:"kl_beta"`
	Loss          Reported    `json:"grpo_loss"`
	PPO           Reported    `json:"grpo_ppo_loss"`
	KLLoss        Reported    `json:"grpo_kl_loss"`
	KL            Reported    `json:"grpo_kl"`
	Ratio         Reported    `json:"grpo_mean_ratio"`
	MeanAdvantage Reported    `json:"grpo_mean_advantage"`
	StdAdvantage  Reported    `json:"grpo_std_advantage"`
	MaxAdvantage  Reported    `json:"grpo_max_advantage"`
	GradNorm      Reported    `json:"grpo_grad_norm"`
}

func (c LossCase) Source(t *testing.T) *pointer.Source {
	t.Helper()
	const dim = 768
	var table []float32
	for _, text := range []string{c.Query, c.Cand} {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(raw); i += 4 {
			table = append(table, math.Float32frombits(binary.LittleEndian.Uint32(raw[i:])))
		}
	}
	var qs []beamdata.Query
	for b := range c.B {
		q := beamdata.Query{ID: int64(b), Candidates: c.Labels[b]}
		for k := range c.K {
			q.Pool = append(q.Pool, int32(c.B+b*c.K+k))
		}
		for _, r := range c.Rewards[b] {
			q.Rewards = append(q.Rewards, float64(r))
		}
		qs = append(qs, q)
	}
	set, err := beamdata.NewSet("losses", beamdata.NewTable(len(table)/dim, dim, table), len(c.Labels[0][0]), qs, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pointer.NewSource(set)
}
