package vl

import "fulcrum/internal/torchx"

// featureBytes bounds the remembered vectors unless RememberPictures does: 256 MiB are 60 thousand vectors of the 3B model in
// bfloat16, some hundred images.
const featureBytes = 256 << 20

// RememberPictures sets how many bytes of pictures' vectors stay in memory while nobody trains what makes them.
func (m *Model) RememberPictures(bytes int) { m.features.limit = bytes }

// features remembers the vectors of pictures by their content, the least recently used going first.
type features struct {
	limit int // bytes
	byKey map[string]torchx.Tensor
	order []string // least recently used first
	bytes int
}

func newFeatures() *features {
	return &features{limit: featureBytes, byKey: map[string]torchx.Tensor{}}
}

// get returns the vectors of a picture, valid until trim.
func (f *features) get(key string) (torchx.Tensor, bool) {
	t, ok := f.byKey[key]
	if ok {
		f.touch(key)
	}
	return t, ok
}

// put remembers x and owns it from then on. A picture without a key is not remembered.
func (f *features) put(key string, x torchx.Tensor) {
	if key == "" {
		return
	}
	f.byKey[key] = torchx.Own(x)
	f.order = append(f.order, key)
	f.bytes += size(x)
}

// trim drops the oldest until the rest fits. It is called when no vectors are in use: libtorch keeps what a graph needs.
func (f *features) trim() {
	for f.bytes > f.limit && len(f.order) > 0 {
		oldest := f.order[0]
		f.bytes -= size(f.byKey[oldest])
		f.byKey[oldest].Free()
		delete(f.byKey, oldest)
		f.order = f.order[1:]
	}
}

func (f *features) touch(key string) {
	for i, k := range f.order {
		if k == key {
			f.order = append(append(f.order[:i:i], f.order[i+1:]...), key)
			return
		}
	}
}

func (f *features) clear() {
	for _, t := range f.byKey {
		t.Free()
	}
	*f = features{limit: f.limit, byKey: map[string]torchx.Tensor{}}
}

func size(x torchx.Tensor) int { return x.Numel() * x.DType().Size() }
