package pointer

import (
	"testing"

	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// TestRecordableCopiesNothing: a forward pass that says it may be recorded takes nothing from the host once its upload was sent.
func TestRecordableCopiesNothing(t *testing.T) {
	recordable := 0
	for _, v := range all() {
		func() {
			defer torchx.Scope()()
			p, b := v.stage(t)
			for _, opt := range []selector.ForwardOptions{{}, {Train: true, DropoutSeed: 1}} {
				var up torchx.Upload
				forward := p.Stage(b, &up)
				up.Send(p.params.Flat())
				before := torchx.Counted()
				forward(opt)
				crossed := torchx.Counted().Minus(before)
				if p.Eager(opt) != "" {
					continue
				}
				recordable++
				if crossed.Uploads > 0 || crossed.ReadBacks > 0 {
					t.Errorf("%s: %+v: a recordable pass crosses to the host: %+v", v.name, opt, crossed)
				}
			}
		}()
	}
	if recordable < 10 {
		t.Errorf("%d passes are recordable, want v1, v2, v3 and their like", recordable)
	}
}
