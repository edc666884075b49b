package pixels

import (
	"container/list"
	"fmt"
	"os"
	"sync"
)

// Cache keeps the images that were used last, resized but still in bytes, up to a number of these: the
// rows are made again from them, which takes a tenth of the time of decoding and resizing. It is safe for
// concurrent use; two callers that miss the same entry at once both make it.
type Cache struct {
	mu      sync.Mutex
	limit   int
	bytes   int
	entries map[string]*list.Element
	recent  *list.List // of *entry, the last used first
}

type entry struct {
	key     string
	patches Patches
}

// NewCache returns a cache of at most limit bytes of pixels.
func NewCache(limit int) *Cache {
	return &Cache{limit: limit, entries: map[string]*list.Element{}, recent: list.New()}
}

// Files returns the patches of an image or video in files, made by read where the cache has none of
// the files as they are now: the same paths, sizes and times of change, and how a video is sampled.
func (c *Cache) Files(paths []string, how any, config Config, read func() (Patches, error)) (Patches, error) {
	key := fmt.Sprint(how, "\x00")
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return read() // whose error says more
		}
		key += fmt.Sprintf("%s\x00%d\x00%d\x00", path, info.Size(), info.ModTime().UnixNano())
	}
	return c.Get(key, config, read)
}

// Get returns the patches kept under key and config, made by read where there are none. An empty key
// is not kept.
func (c *Cache) Get(key string, config Config, read func() (Patches, error)) (Patches, error) {
	if key == "" {
		return read()
	}
	key = fmt.Sprint(key, "\x00", config)
	if p, ok := c.find(key); ok {
		p.Data = config.normalised(p)
		return p, nil
	}
	p, err := read()
	if err != nil {
		return Patches{}, err
	}
	c.keep(key, p)
	return p, nil
}

func (c *Cache) find(key string) (Patches, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if !ok {
		return Patches{}, false
	}
	c.recent.MoveToFront(e)
	return e.Value.(*entry).patches, true
}

func (c *Cache) keep(key string, p Patches) {
	p.Data = nil
	size := p.bytes()
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.entries[key]; ok || size > c.limit {
		return
	}
	c.entries[key] = c.recent.PushFront(&entry{key, p})
	c.bytes += size
	for c.bytes > c.limit {
		last := c.recent.Back()
		old := c.recent.Remove(last).(*entry)
		delete(c.entries, old.key)
		c.bytes -= old.patches.bytes()
	}
}

// bytes is what a cache holds of p.
func (p Patches) bytes() int {
	n := 0
	for _, frame := range p.frames {
		n += len(frame.Pix)
	}
	return n
}
