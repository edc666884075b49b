package vl

import (
	"strings"
	"testing"
)

func TestOptionsThatMeanNothing(t *testing.T) {
	adapter := "adapter"
	for name, tc := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"a block that is not there":  {func(o *Options) { o.Scratch.Vision.FullBlocks = []int{0, 2} }, "scratch.vision.fullatt_block_indexes: want blocks 0 to 1"},
		"a window of half a cell":    {func(o *Options) { o.Scratch.Vision.Window = 42 }, "scratch.vision.window_size: want a multiple of 28"},
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
