package vl

import (
	"fulcrum/internal/recent"
	"fulcrum/internal/torchx"
)

// featureBytes bounds the remembered vectors unless RememberPictures does: 256 MiB are 60 thousand vectors of the 3B model in
// bfloat16, some hundred images.
const featureBytes = 256 << 20

// RememberPictures sets the bytes of pictures' vectors that stay in memory while the tower is frozen.
func (m *Model) RememberPictures(bytes int) { m.features.Limit = bytes }

// features remembers the vectors of pictures by their content, which it owns. Those that it had are valid until Trim, which is called
// when no vectors are in use: libtorch keeps what a graph needs.
type features = recent.Cache[string, torchx.Tensor]

func newFeatures() *features {
	return &features{Limit: featureBytes, Free: torchx.Tensor.Free,
		Size: func(x torchx.Tensor) int { return x.Numel() * x.DType().Size() }}
}
