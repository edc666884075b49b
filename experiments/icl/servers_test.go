package icl

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"fulcrum/internal/golden"
	"fulcrum/internal/torchx"
	"fulcrum/rewardutil/lvlm"
	"fulcrum/rewardutil/lvlm/lvlmtest"
	"fulcrum/selector/lora"
	"fulcrum/selector/vl"
	"fulcrum/selector/vl/pixels"
	"fulcrum/selector/vl/processor"
)

// served is the fixtures' model behind a stand-in.
type served struct {
	t     testing.TB
	local *Local
	model *vl.Model
	proc  *processor.Processor
}

func (s served) Encode(text string) []int {
	var ids []int
	for _, id := range s.proc.Tokenizer().Encode(text) {
		ids = append(ids, int(id))
	}
	return ids
}

func (s served) Text(id int) string { return s.proc.Tokenizer().Decode([]int64{int64(id)}, false) }

func (s served) patches(data []byte) pixels.Patches {
	config, _ := s.proc.Pixels()
	img, err := pixels.DecodeBytes(data)
	if err != nil {
		s.t.Error(err)
	}
	p, err := config.Image(img)
	if err != nil {
		s.t.Error(err)
	}
	return p
}

func (s served) ImageToken(data []byte) (id, n int) {
	if id = int(s.proc.IDs().ImagePad); data == nil {
		return id, 1
	}
	config, _ := s.proc.Pixels()
	return id, s.patches(data).Tokens(config)
}

// LogProbs are the model's behind the last image. In front of it, where no answer is, all tokens are as likely.
func (s served) LogProbs(ids []int, images [][]byte, from int) (rows [][]float64) {
	split := from + 1
	for at, id := range ids {
		if id == int(s.proc.IDs().ImagePad) {
			split = max(split, at+2)
		}
	}
	var flat []float64
	prompt := &processor.Prompt{}
	for _, id := range ids[:split] {
		prompt.IDs = append(prompt.IDs, int64(id))
	}
	for _, data := range images {
		prompt.Images = append(prompt.Images, s.patches(data))
	}
	rest := []int64{}
	for _, id := range ids[split:] {
		rest = append(rest, int64(id))
	}
	rest = append(rest, s.proc.EOS()[0]) // the place behind the last token is read too
	err := s.local.run(func() error {
		return torchx.Try(func() error {
			defer torchx.Scope()()
			defer torchx.NoGrad()()
			hidden, targets, err := s.model.Hidden([]vl.Group{{Prompt: prompt, Completions: [][]int64{rest}}}, &lora.Pass{})
			if err != nil {
				return err
			}
			z := torchx.Data[float32](torchx.LogSoftmax(s.model.Tensors().Logits(hidden), -1))
			width := len(z) / len(targets)
			flat = make([]float64, width)
			for i := range targets {
				row := make([]float64, width)
				for j := range row {
					row[j] = float64(z[i*width+j])
				}
				rows = append(rows, row)
			}
			return nil
		})
	})
	if err != nil {
		s.t.Error(err)
	}
	for i := range flat {
		flat[i] = -math.Log(float64(len(flat)))
	}
	return append(slices.Repeat([][]float64{flat}, split-1-from), rows...)
}

// TestServers: through stand-ins of vLLM and SGLang around the same weights, with the model's folder and without, the
// log-probabilities are those of the plain program on transformers.
func TestServers(t *testing.T) {
	folder := filepath.Dir(golden.Shared(t, "qwen2_5_vl", "tiny_tied", "config.json"))
	local, err := openLocal(t, LocalOptions{MaxNewTokens: 5, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	proc, err := processor.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	lines, prompts := askedOf(t)
	for _, kind := range []string{"vllm", "sglang"} {
		for _, path := range []*string{nil, &folder} {
			stand := lvlmtest.Start(t, &lvlmtest.Server{Kind: kind, Model: served{t, local, local.model.Model, proc}, Teacher: path != nil,
				Template: proc.Template()})
			opt := lvlm.DefaultOptions()
			opt.Backend, opt.URL, opt.Path, opt.ImageSize = kind, &stand.URL, path, 0
			scorer, err := lvlm.Open(t.Context(), opt, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := scorer.Score(t.Context(), prompts)
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			answers, err := scorer.Answer(t.Context(), prompts)
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			for i, l := range lines {
				golden.Close(t, got[i].LogProbs, l.LogProbs, 5e-5)
				if answers[i].Text != l.Answer {
					t.Errorf("%s: prompt %d: answer %q, want %q", kind, i, answers[i].Text, l.Answer)
				}
			}
			scorer.Close()
		}
	}
}
