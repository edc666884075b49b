package seq2seq

import (
	"slices"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
)

// forwardCase are the sources and targets of a model's forward fixture, without padding.
func forwardCase(t *testing.T, model string) (groups []Group, width int) {
	t.Helper()
	f := fixture(t, model+".forward")
	labels := ints(t, f, "labels")
	for i, source := range unpadded(t, f) {
		target := labels[i]
		if at := slices.Index(target, -100); at >= 0 {
			target = target[:at]
		}
		groups = append(groups, Group{Prompt: source, Completions: [][]int64{target}})
	}
	return groups, len(labels[0])
}

// rowsOf cuts the padding out of an expected array [B, width, k], given the lengths.
func rowsOf(values []float64, lengths []int, width, k int) (out []float64) {
	for i, n := range lengths {
		out = append(out, values[i*width*k:(i*width+n)*k]...)
	}
	return out
}

// TestForward compares encoder rows, logits, log-probabilities and the loss of a batch with Hugging Face's.
func TestForward(t *testing.T) {
	each(t, func(t *testing.T, model string) {
		m, f, e := openTiny(t, model, nil), fixture(t, model+".forward"), expectations(t, model)
		gs, width := forwardCase(t, model)
		defer torchx.Scope()()
		in, err := m.pack(gs)
		if err != nil {
			t.Fatal(err)
		}
		var sources, targets []int
		longest := 0
		for _, g := range gs {
			sources, targets = append(sources, len(g.Prompt)), append(targets, len(g.Completions[0]))
			longest = max(longest, len(g.Prompt))
		}
		memory := m.run(in.sources, torchx.Tensor{}, &lora.Pass{})
		want, _ := floats(t, f, "encoder_last_hidden_state")
		golden.Close(t, memory.Floats(), rowsOf(want, sources, longest, m.cfg.Width), 5e-5)

		hidden := m.scaled(m.run(in.completions, memory, &lora.Pass{}))
		want, _ = floats(t, f, "logits")
		golden.Close(t, m.Logits(hidden).Floats(), rowsOf(want, targets, width, m.cfg.Vocab), 1e-4)

		logps, err := m.LogProbs(gs)
		if err != nil {
			t.Fatal(err)
		}
		var got, sums []float64
		total := 0.0
		for _, g := range logps {
			sum := 0.0
			for _, l := range g[0] {
				sum += l
			}
			got, sums, total = append(got, g[0]...), append(sums, sum), total+sum
		}
		want, _ = floats(t, f, "logps")
		golden.Close(t, got, rowsOf(want, targets, width, 1), 1e-4)
		golden.Close(t, sums, e.Forward.Sequence, 1e-3)
		golden.Close(t, []float64{-total / float64(len(got))}, []float64{e.Forward.Loss}, 1e-5)
	})
}

// TestHiddenStates compares every layer's input and the stacks' outputs of a row without padding.
func TestHiddenStates(t *testing.T) {
	each(t, func(t *testing.T, model string) {
		m, f := openTiny(t, model, nil), fixture(t, model+".forward")
		gs, _ := forwardCase(t, model)
		defer torchx.Scope()()
		in, err := m.pack(gs[2:])
		if err != nil {
			t.Fatal(err)
		}
		compare := func(side string) func(i int, x torchx.Tensor) {
			return func(i int, x torchx.Tensor) {
				want, _ := floats(t, f, name("single.%s_hidden_states.%d", side, i))
				golden.Close(t, x.Floats(), want, 5e-5)
			}
		}
		in.sources.observe, in.completions.observe = compare("encoder"), compare("decoder")
		memory := m.run(in.sources, torchx.Tensor{}, &lora.Pass{})
		compare("encoder")(m.cfg.Encoder.Layers, memory)
		out := m.run(in.completions, memory, &lora.Pass{})
		compare("decoder")(m.cfg.Decoder.Layers, out)
		want, _ := floats(t, f, "single.logits")
		golden.Close(t, m.Logits(m.scaled(out)).Floats(), want, 1e-4)
	})
}

// TestAttentionProbabilities compares what the first layers' queries see: softmax of the scores, with T5's bias.
func TestAttentionProbabilities(t *testing.T) {
	each(t, func(t *testing.T, model string) {
		m, f := openTiny(t, model, nil), fixture(t, model+".forward")
		gs, _ := forwardCase(t, model)
		defer torchx.Scope()()
		in, err := m.pack(gs[2:])
		if err != nil {
			t.Fatal(err)
		}
		memory := m.run(in.sources, torchx.Tensor{}, &lora.Pass{})
		m.run(in.completions, memory, &lora.Pass{})
		check := func(what string, a *attention, queries, keys torchx.Tensor, bias torchx.Tensor, causal bool) {
			q := torchx.Transpose(m.split(a, &a.q, queries, &lora.Pass{}), 0, 1)
			k := torchx.Transpose(torchx.Transpose(m.split(a, &a.k, keys, &lora.Pass{}), 0, 1), 1, 2)
			z := torchx.Scale(torchx.MatMul(q, k), a.scale)
			if !bias.Nil() {
				z = torchx.Add(z, bias)
			}
			if n := z.Shape()[1]; causal {
				hidden := make([]bool, n*n)
				for i := range hidden {
					hidden[i] = i%n > i/n
				}
				z = torchx.MaskedFill(z, torchx.From(hidden, n, n), -1e30)
			}
			want, _ := floats(t, f, "single."+what+".0")
			golden.Close(t, torchx.Softmax(z, 2).Floats(), want, 1e-5)
		}
		state := func(side string) torchx.Tensor {
			v, shape := floats(t, f, name("single.%s_hidden_states.0", side))
			return torchx.From(narrow(v), shape...)
		}
		switch net := m.net.(type) {
		case *t5:
			enc, dec := net.stacks["encoder"], net.stacks["decoder"]
			norm := func(x, w torchx.Tensor) torchx.Tensor { return torchx.RMSNorm(x, w, m.cfg.Eps) }
			y := norm(state("encoder"), enc.layers[0].selfNorm)
			check("encoder_attention", &enc.layers[0].self, y, y, matrix(in.sources.bias, len(gs[2].Prompt)), false)
			x := state("decoder")
			y = norm(x, dec.layers[0].selfNorm)
			check("decoder_attention", &dec.layers[0].self, y, y, matrix(in.completions.bias, len(in.completions.ids)), true)
			x = torchx.Add(x, m.attendSelf(&dec.layers[0].self, 0, y, in.completions, &lora.Pass{}))
			check("cross_attention", &dec.layers[0].cross, norm(x, dec.layers[0].crossNorm), memory, torchx.Tensor{}, false)
		case *bart:
			enc, dec := net.stacks["encoder"], net.stacks["decoder"]
			x := state("encoder")
			check("encoder_attention", &enc.layers[0].self, x, x, torchx.Tensor{}, false)
			x = state("decoder")
			check("decoder_attention", &dec.layers[0].self, x, x, torchx.Tensor{}, true)
			x = net.norm(torchx.Add(x, m.attendSelf(&dec.layers[0].self, 0, x, in.completions, &lora.Pass{})), dec.layers[0].selfNorm)
			check("cross_attention", &dec.layers[0].cross, x, memory, torchx.Tensor{}, false)
		}
	})
}

// TestBuckets compares the rows of T5's table for all distances of the fixtures.
func TestBuckets(t *testing.T) {
	var e struct {
		Tables struct {
			Relative []int `json:"relative_positions"`
			Cases    []struct {
				Bidirectional bool
				NumBuckets    int `json:"num_buckets"`
				MaxDistance   int `json:"max_distance"`
				Buckets       []int
			}
		} `json:"bucket_tables"`
	}
	golden.JSON(t, golden.Shared(t, "seq2seq", "expected.json"), &e)
	if len(e.Tables.Cases) == 0 || len(e.Tables.Relative) != len(e.Tables.Cases[0].Buckets) {
		t.Fatalf("%d cases of %d positions", len(e.Tables.Cases), len(e.Tables.Relative))
	}
	for _, c := range e.Tables.Cases {
		for i, r := range e.Tables.Relative {
			if got := bucket(r, c.Bidirectional, c.NumBuckets, c.MaxDistance); got != c.Buckets[i] {
				t.Errorf("%d buckets up to %d, bidirectional %v: distance %d in %d, want %d", c.NumBuckets, c.MaxDistance,
					c.Bidirectional, r, got, c.Buckets[i])
			}
		}
	}
}

// matrix is the bias of every query and key [H, n, n]. Of keys that the decoder does not see it is distance 0's.
func matrix(b *bias, n int) torchx.Tensor {
	heads, distances := b.scores.Shape()[0], b.scores.Shape()[1]
	values, out := b.scores.Floats(), make([]float64, 0, heads*n*n)
	for h := range heads {
		for i := range n {
			for j := range n {
				out = append(out, values[h*distances+min(b.zero+j-i, distances-1)])
			}
		}
	}
	return torchx.From(out, heads, n, n).To(torchx.Float32)
}

// TestPositionBias compares the bias of both stacks, exactly.
func TestPositionBias(t *testing.T) {
	for _, model := range []string{"tiny_t5", "tiny_t5_v11"} {
		t.Run(model, func(t *testing.T) {
			m, f := openTiny(t, model, nil), fixture(t, model+".forward")
			defer torchx.Scope()()
			net := m.net.(*t5)
			for _, side := range sides() {
				want, shape := floats(t, f, "bias."+side)
				got := matrix(net.distanceBias(side, shape[2]), shape[2])
				golden.Close(t, torchx.Narrow(got, 1, 0, shape[1]).Floats(), want, 0)
				buckets := ints(t, f, "bias."+side+"_buckets")
				for i, row := range buckets {
					for j, b := range row {
						if got := bucket(j-i, side == "encoder", m.cfg.Buckets, m.cfg.MaxDistance); int64(got) != b {
							t.Errorf("%s: query %d, key %d in bucket %d, want %d", side, i, j, got, b)
						}
					}
				}
			}
		})
	}
}
