package pointer

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// gateless is the state dict of the reference's v2: v3's without the gate.
func gateless(t *testing.T) string {
	t.Helper()
	return foreign(t, 1, func(s *tensorfile.Dict) {
		kept := tensorfile.NewDict()
		kept.Ordered = true
		for i, key := range s.Keys {
			if !strings.HasPrefix(key.(string), gateName) {
				kept.Set(key, s.Values[i])
			}
		}
		*s = *kept
	})
}

// TestV2StartsV3: a file without a gate is a v2 selector. Asked for, it starts a v3 one in training: the gate is fresh and
// named, everything else the file's. Where nothing is trained, or more than the gate would be new, it is refused.
func TestV2StartsV3(t *testing.T) {
	ours := filepath.Join(t.TempDir(), "v2.safetensors")
	export(t, readWeights(t, gateless(t)), ours, "safetensors")
	for name, path := range map[string]string{"the reference's": gateless(t), "ours": ours} {
		t.Run(name, func(t *testing.T) {
			asks := func(keys ...string) func(*OpenOptions) {
				return func(o *OpenOptions) { o.Overridden = func(key string) bool { return slices.Contains(keys, key) } }
			}
			p, err := openSmall(path, true)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Free()
			if o := p.Options(); o.Variant != "v2" || o.StateUpdate != "none" {
				t.Fatalf("read as %s, state_update %s", o.Variant, o.StateUpdate)
			}
			var fresh []string
			training := func(o *OpenOptions) { o.Fresh = func(names []string) { fresh = names } }
			grown, err := openSmall(path, true, func(o *OpenOptions) { training(o); asks("selector.variant")(o) })
			if err != nil {
				t.Fatal(err)
			}
			defer grown.Free()
			if want := []string{gateName + ".weight", gateName + ".bias"}; !slices.Equal(fresh, want) {
				t.Errorf("fresh %v, want %v", fresh, want)
			}
			if o := grown.Options(); o.Variant != "v3" || o.StateUpdate != "gate" || o.HiddenDim != 8 {
				t.Errorf("became %s, state_update %s, hidden_dim %d", o.Variant, o.StateUpdate, o.HiddenDim)
			}
			for _, name := range p.params.Names() {
				golden.Close(t, grown.params.Get(name).Floats(), p.params.Get(name).Floats(), 0)
			}
			if w := grown.params.Get(gateName + ".weight").Floats(); slices.Max(w) == 0 {
				t.Error("the gate did not start")
			}
			fresh = nil
			if _, err := openSmall(path, true, asks("selector.variant")); err == nil || !strings.Contains(err.Error(), "trained with v2") {
				t.Errorf("without training: %v", err)
			}
			if _, err := openSmall(path, true, func(o *OpenOptions) {
				training(o)
				asks("selector.variant")(o)
				o.Options.Variant, o.Options.StateUpdate, o.Options.Diversity.Kind = "v4_3", "gru", "mmr"
			}); err == nil || !strings.Contains(err.Error(), "trained with v2") || fresh != nil {
				t.Errorf("a selector with other parts: %v, fresh %v", err, fresh)
			}
		})
	}
}

// TestV2Exports: a v2 selector goes through the reference's layouts and back with all its bytes. The v2 layout gets a gate
// that leaves the state as it is, because the reference's v2 model has one and would start it at random.
func TestV2Exports(t *testing.T) {
	c := readWeights(t, gateless(t))
	p, err := openSmall(c.Path, true)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Free()
	dir := t.TempDir()
	for _, format := range []string{"ckpt", "v2", "safetensors"} {
		path := filepath.Join(dir, "x."+map[string]string{"ckpt": "ckpt", "v2": "pt", "safetensors": "safetensors"}[format])
		export(t, c, path, format)
		again, err := openSmall(path, true)
		if err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		if got, want := fmt.Sprint(again.params.Names()), fmt.Sprint(p.params.Names()); got != want || again.Options().Variant != "v2" {
			t.Errorf("%s: %s with %s, want %s", format, again.Options().Variant, got, want)
		} else {
			golden.Close(t, again.params.Flat().Floats(), p.params.Flat().Floats(), 0)
		}
		again.Free()
	}
	if err := c.Export(filepath.Join(dir, "no.pt"), "pt"); err == nil || !strings.Contains(err.Error(), "needs ["+gateName) {
		t.Errorf("pt: %v", err)
	}
	f, err := tensorfile.ReadPT(filepath.Join(dir, "x.pt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	state, _ := get[*tensorfile.Dict](f.Value.(*tensorfile.Dict), "state_dict")
	theirs := tensorfile.NewDict() // what the reference's v2 model reads
	theirs.Ordered = true
	for i, key := range state.Keys {
		theirs.Set(strings.TrimPrefix(key.(string), lightningPrefix), state.Values[i])
	}
	path := filepath.Join(dir, "theirs.pth")
	if err := tensorfile.WritePT(path, theirs); err != nil {
		t.Fatal(err)
	}
	there, err := openSmall(path, true)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Free()
	if there.Options().StateUpdate != "gate" {
		t.Fatalf("state_update %s", there.Options().StateUpdate)
	}
	opt := DefaultOptions()
	opt.HiddenDim = 12 // as wide as the embeddings: stage makes them for a selector of its own
	_, b := variant{opt: opt, shots: 3, square: true}.stage(t)
	defer torchx.Scope()()
	// float32 cosines over 0.1
	golden.Close(t, there.Forward(b, selector.ForwardOptions{}).LogP.Floats(), p.Forward(b, selector.ForwardOptions{}).LogP.Floats(), 1e-4)
}
