package reward

import (
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"io/fs"
	"path/filepath"
	"sync"

	"fulcrum/internal/regular"
)

// mask is a region of an image, one bit a pixel.
type mask struct {
	width, height int
	bits          []uint64
}

func (m *mask) inside(x, y int) bool {
	at := y*m.width + x
	return m.bits[at/64]>>(at%64)&1 != 0
}

// bounds returns the box (x1, y1, x2, y2) around all that is inside; false where nothing is.
func (m *mask) bounds() (box [4]float64, ok bool) {
	x1, y1, x2, y2 := m.width, m.height, 0, 0
	for y := range m.height {
		for x := range m.width {
			if m.inside(x, y) {
				x1, y1, x2, y2 = min(x1, x), min(y1, y), max(x2, x+1), y+1
			}
		}
	}
	return [4]float64{float64(x1), float64(y1), float64(x2), float64(y2)}, x2 > 0
}

// readMask reads a PNG: inside is every pixel that is neither black nor transparent.
func readMask(path string) (*mask, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: want a PNG mask", path, err)
	}
	b := img.Bounds()
	m := &mask{width: b.Dx(), height: b.Dy()}
	m.bits = make([]uint64, (m.width*m.height+63)/64)
	for y := range m.height {
		for x := range m.width {
			if r, g, b, _ := img.At(b.Min.X+x, b.Min.Y+y).RGBA(); r|g|b != 0 { // black where transparent
				at := y*m.width + x
				m.bits[at/64] |= 1 << (at % 64)
			}
		}
	}
	return m, nil
}

// maskCache keeps masks in memory, up to maskBudget of them together. Safe for concurrent use.
type maskCache struct {
	mu   sync.Mutex
	by   map[string]*mask
	size int // bytes
}

const maskBudget = 64 << 20 // bytes

// open returns the mask at the path under a key of meta.
func (c *maskCache) open(raw json.RawMessage, key, root string) (*mask, error) {
	var path string
	if len(raw) == 0 || json.Unmarshal(raw, &path) != nil || path == "" {
		return nil, fmt.Errorf("meta has no %s: want the path of a PNG mask", key)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(root, filepath.FromSlash(path))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.by[path]; m != nil {
		return m, nil
	}
	m, err := readMask(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("meta.%s: no file %s", key, path)
	}
	if err != nil {
		return nil, fmt.Errorf("meta.%s: %w", key, err)
	}
	if c.size += 8 * len(m.bits); c.size > maskBudget {
		clear(c.by)
		c.size = 8 * len(m.bits)
	}
	c.by[path] = m
	return m, nil
}
