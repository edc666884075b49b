package vl

import (
	"strings"
	"testing"

	"fulcrum/selector/tokens"
)

func TestOptionsThatMeanNothing(t *testing.T) {
	adapter := "adapter"
	for name, tc := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"a block that is not there": {func(o *Options) { o.Scratch.Vision.FullBlocks = []int{0, 2} },
			"scratch.vision.fullatt_block_indexes: want blocks 0 to 1"},
		"a window of half a cell": {func(o *Options) { o.Scratch.Vision.Window = 42 },
			"scratch.vision.window_size: want a multiple of 28"},
		"an adapter without a model": {func(o *Options) { o.Adapter = &adapter }, "adapter: want path"},
	} {
		o := DefaultOptions()
		if err := o.Validate(); err != nil {
			t.Fatalf("the defaults: %v", err)
		}
		tc.change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestFloat16DoesNotTrain: a model that computes in float16 answers, and is refused for training by a message that names
// what to set, whether the option or the folder chose the type.
func TestFloat16DoesNotTrain(t *testing.T) {
	for _, tc := range []struct{ option, file, device, want string }{
		{"float16", "bfloat16", "cuda:0", "vl.dtype=float16: training in float16 loses"},
		{"auto", "float16", "cuda:0", "vl.dtype=auto: training in float16 (torch_dtype of the folder's config.json) loses"},
		{"auto", "bfloat16", "cuda:0", ""},
		{"bfloat16", "float16", "cuda:0", ""},
		{"float16", "float16", "cpu", ""},
	} {
		dtype, err := tokens.ComputeType(tokens.Layout{}, tc.option, tc.file, tc.device, nil)
		if err != nil {
			t.Fatal(err)
		}
		m := &Model{Weights: &tokens.Weights{DType: dtype}, opt: Options{Options: tokens.Options{DType: tc.option}}}
		switch err := m.CheckTraining(); {
		case tc.want == "" && err != nil, tc.want != "" && err == nil:
			t.Errorf("%v: error %v", tc, err)
		case err != nil && (!strings.HasPrefix(err.Error(), tc.want) || !strings.Contains(err.Error(), "vl.dtype=bfloat16")):
			t.Errorf("%v: %v", tc, err)
		}
	}
}

// TestTheFastKernelWantsAGPU: a kernel that would never run is refused.
func TestTheFastKernelWantsAGPU(t *testing.T) {
	o := DefaultOptions()
	o.Generation.Kernel = "fast"
	m, err := New(o, Vocabulary{Size: 264, EOS: []int64{256}, Pad: 257, VisionStart: 258, VisionEnd: 259, VisionPad: 260, Image: 261,
		Video: 262}, "cpu", 5)
	if want := "vl.generation.kernel=fast: want device=cuda"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	if err == nil {
		m.Free()
	}
}
