// Package recent keeps the values that were used last, as many as there is room for.
package recent

import "slices"

// Cache holds values by key. It is empty at first, and not safe for concurrent use.
type Cache[K comparable, V any] struct {
	Limit int         // of the sizes together
	Size  func(V) int // of a value
	Free  func(V)     // of a value that is dropped; may be nil

	Values map[K]V // to be looked at
	Total  int     // of their sizes
	order  []K     // the one used longest ago first
}

// Get returns the value of a key, if it is there, which is now the one used last.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	v, ok := c.Values[key]
	if ok {
		i := slices.Index(c.order, key)
		c.order = append(slices.Delete(c.order, i, i+1), key)
	}
	return v, ok
}

// Put adds the value of a new key. What there is no room for any more is there until Trim.
func (c *Cache[K, V]) Put(key K, v V) {
	if c.Values == nil {
		c.Values = map[K]V{}
	}
	c.Values[key] = v
	c.order = append(c.order, key)
	c.Total += c.Size(v)
}

// Trim drops the values that were used longest ago until the others have room.
func (c *Cache[K, V]) Trim() { c.trim(c.Limit) }

// Clear drops all values.
func (c *Cache[K, V]) Clear() { c.trim(-1) }

func (c *Cache[K, V]) trim(limit int) {
	for c.Total > limit && len(c.order) > 0 {
		oldest := c.Values[c.order[0]]
		c.Total -= c.Size(oldest)
		delete(c.Values, c.order[0])
		c.order = c.order[1:]
		if c.Free != nil {
			c.Free(oldest)
		}
	}
}
