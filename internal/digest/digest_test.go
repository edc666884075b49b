package digest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// The digest of "abc" is the example of FIPS 180-2, appendix B.1.
func TestDigests(t *testing.T) {
	const want = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	h := New()
	fmt.Fprint(h, "ab", "c")
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, []byte("abc"), 0o644); err != nil {
		t.Fatal(err)
	}
	sum, size, err := File(path)
	if h.Hex() != want || Of([]byte("a"), nil, []byte("bc")) != want || sum != want || size != 3 || err != nil {
		t.Errorf("got %s, %s and %s of %d bytes, %v", h.Hex(), Of([]byte("abc")), sum, size, err)
	}
	if _, _, err := File(t.TempDir()); err == nil {
		t.Error("a folder has a digest")
	}
}
