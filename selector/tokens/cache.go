package tokens

import "fulcrum/internal/torchx"

// Cache holds keys and values of earlier tokens.
type Cache struct {
	K, V []torchx.Tensor // a layer each: [rows, H, D]
	At   torchx.Tensor   // [N] int64: where the keys and values of the rows in work go
}

// NewCache returns a cache of some layers with room for so many rows.
func (w *Weights) NewCache(layers, rows, heads, dim int) *Cache {
	c := &Cache{}
	for range layers {
		c.K, c.V = append(c.K, w.Zeros(rows, heads, dim)), append(c.V, w.Zeros(rows, heads, dim))
	}
	return c
}

// Store keeps the keys and values of layer i and returns all of them.
func (c *Cache) Store(i int, k, v torchx.Tensor) (allK, allV torchx.Tensor) {
	torchx.WriteRowsAt(c.K[i], c.At, k)
	torchx.WriteRowsAt(c.V[i], c.At, v)
	return c.K[i], c.V[i]
}
