// Package interrupt decides what the first SIGINT or SIGTERM does. It ends the process at once, unless somebody holds
// state that is still to be saved; what was temporary is removed. It is the process's, as signals are.
//
//	h := interrupt.Hold(nil)      // from now on a signal only cancels the context
//	defer h.Release()
package interrupt

import (
	"os"
	"slices"
	"sync"
)

// Holder has state to save. The zero value, and nil, hold nothing.
type Holder struct {
	end  func(cause error) error
	heed bool
}

// held is guarded by asking, temporary and atEnd by making: what ends the process may write files meanwhile.
var (
	asking    sync.Mutex
	held      []*Holder
	making    sync.Mutex
	temporary = map[string]bool{}
	atEnd     []func()
)

// Hold takes the first signal over. As long as the holder does not heed the context, end is called at the signal, while
// the others' work goes on, and the process ends with its error, which tells more than cause. A holder without end heeds
// the context from the start: the signal cancels it, and the holder ends by itself.
func Hold(end func(cause error) error) *Holder {
	asking.Lock()
	defer asking.Unlock()
	h := &Holder{end: end, heed: end == nil}
	held = append(held, h)
	return h
}

// Heed says that the holder ends by itself from now on, soon after its context does.
func (h *Holder) Heed() {
	if h == nil {
		return
	}
	asking.Lock()
	defer asking.Unlock()
	h.heed = true
}

// Release gives the first signal back.
func (h *Holder) Release() {
	asking.Lock()
	defer asking.Unlock()
	held = slices.DeleteFunc(held, func(other *Holder) bool { return other == h })
}

// End returns what the process is to end with at once, after a signal that is called cause; nil: a holder ends it. After
// an error nobody can begin to hold or to heed any more.
func End(cause error) error {
	asking.Lock()
	if n := len(held); n > 0 {
		last := held[n-1]
		if last.heed {
			asking.Unlock()
			return nil
		}
		if err := last.end(cause); err != nil {
			cause = err
		}
	}
	return cause
}

// AtEnd has Clean call f.
func AtEnd(f func()) {
	making.Lock()
	defer making.Unlock()
	atEnd = append(atEnd, f)
}

// Clean removes what is temporary, and lets nobody make more of it: the process ends.
func Clean() {
	making.Lock()
	for _, f := range atEnd {
		f()
	}
	for path := range temporary {
		os.RemoveAll(path)
	}
}

// Temporary calls create, which makes a file or folder and returns its path, and keeps the path for Clean until it is
// forgotten: call forget when the path is gone, or is nothing temporary any more.
func Temporary(create func() (path string, err error)) (path string, forget func(), err error) {
	making.Lock()
	defer making.Unlock()
	path, err = create()
	if err != nil {
		return "", func() {}, err
	}
	temporary[path] = true
	return path, func() {
		making.Lock()
		defer making.Unlock()
		delete(temporary, path)
	}, nil
}

// Folder makes a temporary folder as os.MkdirTemp does, and returns what removes it.
func Folder(dir, pattern string) (path string, remove func(), err error) {
	path, forget, err := Temporary(func() (string, error) { return os.MkdirTemp(dir, pattern) })
	return path, func() {
		os.RemoveAll(path)
		forget()
	}, err
}
