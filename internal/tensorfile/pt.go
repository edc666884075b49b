package tensorfile

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/big"
	"strings"
)

// PT is what torch.save stored in a .pt, .pth or .ckpt file. Tensors in Value share the mapped file
// where they are contiguous.
type PT struct {
	Value any
	mem   *mapping
}

// Close unmaps the file; the tensors in Value must not be used any more.
func (p *PT) Close() error { return p.mem.Close() }

// ReadPT reads a file that torch.save wrote, in the zip format (PyTorch 1.6 and later) or the legacy one, or a plain
// pickle. No code of the file is executed; what is not a tensor, an array or a plain value is refused by name.
func ReadPT(path string) (*PT, error) {
	v, mem, err := parseMapped(path, "a readable PyTorch", parsePT)
	if err != nil {
		return nil, err
	}
	return &PT{Value: v, mem: mem}, nil
}

func parsePT(data []byte) (any, error) {
	switch {
	case bytes.HasPrefix(data, []byte("PK")):
		return parseZipPT(data)
	case len(data) > 262 && string(data[257:262]) == "ustar":
		return nil, fmt.Errorf("tar format of PyTorch before 0.1.10, which is not read")
	case len(data) == 0 || data[0] != 0x80:
		return nil, fmt.Errorf("neither a zip archive nor a pickle at the start")
	}
	first, used, err := unpickle(data, nil)
	if err != nil {
		return nil, err
	}
	if magic, ok := first.(*big.Int); ok && magic.Text(16) == "1950a86a20f9469cfc6c" {
		return parseLegacyPT(data, used)
	}
	if used != len(data) {
		return nil, fmt.Errorf("%d bytes after the pickle", len(data)-used)
	}
	return first, nil
}

// copyBudget bounds what non-contiguous tensors of a file may copy, so that a small file that lists
// one storage a thousand times cannot fill the memory.
func copyBudget(data []byte) *int { return new(4*len(data) + 1<<20) }

func parseZipPT(data []byte) (any, error) {
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fmt.Errorf("zip archive is damaged or truncated: %w", err)
	}
	u := newUnpacker(data)
	entries := map[string]*zip.File{}
	root := ""
	for _, e := range z.File {
		if entries[e.Name] != nil {
			return nil, fmt.Errorf("entry %.60q appears twice", e.Name)
		}
		entries[e.Name] = e
		if prefix, ok := strings.CutSuffix(e.Name, "data.pkl"); ok && (prefix == "" || strings.HasSuffix(prefix, "/")) {
			if entries[root+"data.pkl"] != nil && root != prefix {
				return nil, fmt.Errorf("two entries data.pkl")
			}
			root = prefix
		}
	}
	if entries[root+"data.pkl"] == nil {
		return nil, fmt.Errorf("zip archive without data.pkl")
	}
	if entries[root+"constants.pkl"] != nil {
		return nil, fmt.Errorf("TorchScript archive, want what torch.save writes")
	}
	if order := entries[root+"byteorder"]; order != nil {
		text, err := u.stored(order)
		if err != nil {
			return nil, err
		}
		if strings.TrimSpace(string(text)) != "little" {
			return nil, fmt.Errorf("byte order %.20q, want little", text)
		}
	}
	pkl, err := u.stored(entries[root+"data.pkl"])
	if err != nil {
		return nil, err
	}
	storages := map[string]*storage{}
	v, used, err := unpickle(pkl, resolver(storages, copyBudget(data), func(key string, s *storage) error {
		e := entries[root+"data/"+key]
		if e == nil {
			return fmt.Errorf("storage %.40q is missing from the archive", key)
		}
		data, err := u.stored(e)
		if err != nil {
			return err
		}
		s.data = data
		return s.checkSize(key)
	}))
	if err == nil && used != len(pkl) {
		err = fmt.Errorf("%d bytes after the pickle", len(pkl)-used)
	}
	return v, err
}

// resolver returns a function that resolves the storages of a pickle: known ones, and new ones, which fresh prepares.
func resolver(storages map[string]*storage, budget *int, fresh func(key string, s *storage) error) func(id any) (any, error) {
	return func(id any) (any, error) {
		key, s, err := storageID(id)
		if err != nil {
			return nil, err
		}
		if have := storages[key]; have != nil {
			if have.dtype != s.dtype {
				return nil, fmt.Errorf("storage %.40q has two types", key)
			}
			return have, nil
		}
		s.budget, storages[key] = budget, s
		return s, fresh(key, s)
	}
}

// stored returns an entry's bytes, in place where it is not compressed, checked against its CRC
// (0 = PyTorch was told not to compute it).
func (u *unpacker) stored(e *zip.File) ([]byte, error) {
	if e.Method != zip.Store {
		b, err := u.unzip(e)
		if err != nil {
			return nil, fmt.Errorf("entry %.60q: %w", e.Name, err)
		}
		return b, nil
	}
	at, err := e.DataOffset()
	if err != nil {
		return nil, fmt.Errorf("entry %.60q: %w", e.Name, err)
	}
	data, n := u.data, e.UncompressedSize64
	if at < 0 || n > uint64(len(data)) || uint64(at) > uint64(len(data))-n {
		return nil, fmt.Errorf("entry %.60q is truncated", e.Name)
	}
	b := data[at : uint64(at)+n]
	if e.CRC32 != 0 && crc32.ChecksumIEEE(b) != e.CRC32 {
		return nil, fmt.Errorf("entry %.60q is damaged (checksum differs)", e.Name)
	}
	return b, nil
}

// storageID decodes ('storage', class, key, location, numel[, view]).
func storageID(id any) (string, *storage, error) {
	t, ok := id.(Tuple)
	if !ok || len(t) < 5 || t[0] != any("storage") {
		return "", nil, fmt.Errorf("unknown persistent id")
	}
	class, _ := t[1].(global)
	key, ok := t[2].(string)
	numel, isInt := t[4].(int64)
	if !ok || !isInt || numel < 0 || numel > 1<<48 {
		return "", nil, fmt.Errorf("unknown persistent id")
	}
	if len(t) > 5 && t[5] != nil {
		return "", nil, fmt.Errorf("storage %.40q is a view (PyTorch before 0.4), which is not read", key)
	}
	s := &storage{numel: numel}
	if class != "torch.storage UntypedStorage" {
		name, isTorch := strings.CutPrefix(string(class), "torch ")
		dtype, known := storageType(name)
		if !isTorch || !known {
			return "", nil, fmt.Errorf("storage %.40q has the unknown type %s", key, TypeName(t[1]))
		}
		s.dtype = dtype
	}
	return key, s, nil
}

func (s *storage) checkSize(key string) error {
	width := max(s.dtype.Size(), 1)
	if int64(len(s.data)) != s.numel*int64(width) {
		return fmt.Errorf("storage %.40q holds %d bytes, want %d elements of %d", key, len(s.data), s.numel, width)
	}
	return nil
}

// parseLegacyPT reads: magic, protocol version, system info, the object, the list of storage keys,
// then for each key its element count and bytes. The object comes before the bytes it refers to, so
// it is decoded twice: once to find its end and the storages' types, once for good.
func parseLegacyPT(data []byte, pos int) (any, error) {
	next := func(persistent func(any) (any, error)) (any, error) {
		v, used, err := unpickle(data[pos:], persistent)
		pos += used
		return v, err
	}
	version, err := next(nil)
	if err != nil {
		return nil, err
	}
	if version != any(int64(1001)) {
		return nil, fmt.Errorf("legacy protocol version %s, want 1001", Show(version))
	}
	info, err := next(nil)
	if err != nil {
		return nil, err
	}
	if d, ok := info.(*Dict); ok {
		if little, ok := d.Get("little_endian"); ok && little != any(true) {
			return nil, fmt.Errorf("big-endian file")
		}
	}
	storages := map[string]*storage{}
	object := pos
	resolve := resolver(storages, copyBudget(data), func(_ string, s *storage) error {
		s.absent = true
		return nil
	})
	if _, err := next(resolve); err != nil {
		return nil, err
	}
	keys, err := next(nil)
	if err != nil {
		return nil, err
	}
	list, ok := keys.(*List)
	if !ok {
		return nil, fmt.Errorf("list of storages is %s", TypeName(keys))
	}
	for _, k := range list.Items {
		key, _ := k.(string)
		s := storages[key]
		if s == nil || !s.absent {
			return nil, fmt.Errorf("storage %s is unknown or listed twice", Show(k))
		}
		if len(data)-pos < 8 {
			return nil, errors.New("file is truncated")
		}
		numel := int64(binary.LittleEndian.Uint64(data[pos:]))
		pos += 8
		width := int64(max(s.dtype.Size(), 1))
		if numel < 0 || numel > int64(len(data)-pos)/width {
			return nil, fmt.Errorf("storage %.40q of %d elements: file is truncated", key, numel)
		}
		s.data, s.absent = data[pos:pos+int(numel*width)], false
		if err := s.checkSize(key); err != nil {
			return nil, err
		}
		pos += int(numel * width)
	}
	for key, s := range storages {
		if s.absent {
			return nil, fmt.Errorf("storage %.40q is missing from the file", key)
		}
	}
	v, _, err := unpickle(data[object:], resolve)
	return v, err
}

// unpacker takes entries out of one zip archive. Together they may not grow to more than 64 times the
// archive or a gigabyte: a compressed archive of a few megabytes can claim to hold many.
type unpacker struct {
	data []byte // of the archive
	left uint64 // bytes that may still come out
}

func newUnpacker(data []byte) *unpacker {
	return &unpacker{data, max(64*uint64(len(data)), 1<<30)}
}

// unzip returns an entry's content, checked against its CRC. Memory grows with what really comes
// out, never with what the directory claims.
func (u *unpacker) unzip(entry *zip.File) ([]byte, error) {
	bomb := fmt.Errorf("refused: it unpacks to many times the archive's %d bytes", len(u.data))
	if entry.UncompressedSize64 > u.left {
		return nil, bomb
	}
	r, err := entry.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var b bytes.Buffer
	if entry.UncompressedSize64/2048 <= entry.CompressedSize64 { // deflate reaches at most 1032:1
		b.Grow(int(entry.UncompressedSize64) + bytes.MinRead)
	}
	n, err := io.Copy(&b, io.LimitReader(r, int64(u.left)+1))
	if uint64(n) > u.left {
		return nil, bomb
	}
	u.left -= uint64(n)
	return b.Bytes(), err
}
