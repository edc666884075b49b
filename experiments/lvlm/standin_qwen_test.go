package lvlm_test

import (
	"math"
	"slices"
	"testing"

	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/vl"
	"fulcrum/selector/vl/pixels"
	"fulcrum/selector/vl/processor"
)

// qwen is a Qwen2.5-VL of this process as an lvlm.Model, which a stand-in serves. Its methods may be called from any goroutine: one of its
// own does what needs libtorch.
type qwen struct {
	*processor.Processor
	t     testing.TB
	model *vl.Model
	calls chan func()
}

// openModel opens a model's folder in float32 until the test ends.
func openModel(t testing.TB, folder string) *qwen {
	t.Helper()
	if err := torchx.Load(); err != nil {
		t.Fatal(err)
	}
	opt := vl.DefaultOptions()
	opt.Path, opt.LoRA.Enabled, opt.DType = &folder, false, "float32"
	m := &qwen{t: t, calls: make(chan func())}
	go func() {
		torchx.Attach(1)
		for call := range m.calls {
			call()
		}
	}()
	var err error
	if m.Processor, err = processor.Open(folder); err == nil {
		err = m.run(func() (err error) { m.model, err = vl.Open(opt, "cpu", 0, nil); return err })
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.run(func() error { m.model.Free(); return nil })
		close(m.calls)
	})
	return m
}

// run calls f where libtorch is attached.
func (m *qwen) run(f func() error) error {
	done := make(chan error)
	m.calls <- func() { done <- f() }
	return <-done
}

// Encode returns the ids of a text.
func (m *qwen) Encode(text string) []int {
	var ids []int
	for _, id := range m.Tokenizer().Encode(text) {
		ids = append(ids, int(id))
	}
	return ids
}

// Text returns a token's.
func (m *qwen) Text(id int) string { return m.Tokenizer().Decode([]int64{int64(id)}, false) }

// Said returns the text of an answer.
func (m *qwen) Said(ids []int) string {
	var out []int64
	for _, id := range ids {
		out = append(out, int64(id))
	}
	return m.Tokenizer().Decode(out, true)
}

func (m *qwen) patches(data []byte) pixels.Patches {
	config, _ := m.Pixels()
	img, err := pixels.DecodeBytes(data)
	if err != nil {
		m.t.Error(err)
	}
	p, err := config.Image(img)
	if err != nil {
		m.t.Error(err)
	}
	return p
}

// ImageToken returns the placeholder, as often as the image has features.
func (m *qwen) ImageToken(data []byte) (id, n int) {
	if id = int(m.IDs().ImagePad); data == nil {
		return id, 1
	}
	config, _ := m.Pixels()
	return id, m.patches(data).Tokens(config)
}

// LogProbs are the model's behind the last image. In front of it, where no answer is, all tokens are as likely.
func (m *qwen) LogProbs(ids []int, images [][]byte, from int) (rows [][]float64) {
	split := from + 1
	for at, id := range ids {
		if id == int(m.IDs().ImagePad) {
			split = max(split, at+2)
		}
	}
	var flat []float64
	prompt := &processor.Prompt{}
	for _, id := range ids[:split] {
		prompt.IDs = append(prompt.IDs, int64(id))
	}
	for _, data := range images {
		prompt.Images = append(prompt.Images, m.patches(data))
	}
	rest := []int64{}
	for _, id := range ids[split:] {
		rest = append(rest, int64(id))
	}
	rest = append(rest, m.EOS()[0]) // the place behind the last token is read too
	err := m.run(func() error {
		return torchx.Try(func() error {
			defer torchx.Scope()()
			defer torchx.NoGrad()()
			hidden, targets, err := m.model.Hidden([]vl.Group{{Prompt: prompt, Completions: [][]int64{rest}}}, &lora.Pass{})
			if err != nil {
				return err
			}
			z := torchx.Data[float32](torchx.LogSoftmax(m.model.Tensors().Logits(hidden), -1))
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
		m.t.Error(err)
	}
	for i := range flat {
		flat[i] = -math.Log(float64(len(flat)))
	}
	return append(slices.Repeat([][]float64{flat}, split-1-from), rows...)
}
