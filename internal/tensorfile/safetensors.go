package tensorfile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/digest"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
)

// maxHeader is the format's own limit for the JSON header.
const maxHeader = 100_000_000

// DigestKey is the entry of a file's metadata that holds the SHA-256 of all tensor bytes, in hexadecimal: of all that
// follows the header. WriteSafetensors always writes it. Files of other programs lack it.
const DigestKey = "tensors_sha256"

// File is a set of named tensors in one file.
type File struct {
	Tensors  []Tensor          // in the order of their bytes in the file
	Metadata map[string]string // never nil
	index    map[string]int
	body     []byte // all tensor bytes
	mem      *mapping
}

func (f *File) Get(name string) (Tensor, bool) {
	i, ok := f.index[name]
	if !ok {
		return Tensor{}, false
	}
	return f.Tensors[i], true
}

// Names returns the tensor names in file order.
func (f *File) Names() []string {
	return list.Map(f.Tensors, func(t Tensor) string { return t.Name })
}

// Close unmaps the file; its tensors must not be used any more.
func (f *File) Close() error { return f.mem.Close() }

// ReadSafetensors maps a safetensors file and checks it: its header as MapSafetensors does and, where the metadata has
// a digest of the tensor bytes, those. A file without one is not read, only mapped.
func ReadSafetensors(path string) (*File, error) {
	f, err := MapSafetensors(path)
	if err != nil {
		return nil, err
	}
	if want, ok := f.Metadata[DigestKey]; ok {
		if got := digest.Of(f.body); got != want {
			f.Close()
			return nil, fmt.Errorf("%s: damaged: its tensors have the SHA-256 %.12s…, when written they had %.12s… (%s)", path, got,
				want, DigestKey)
		}
	}
	return f, nil
}

// MapSafetensors maps a safetensors file and checks its header: length, types, shapes against byte
// counts, duplicate names, and that the tensors tile the data without gap or overlap. It does not read the tensors: a
// caller that uses them wants ReadSafetensors.
func MapSafetensors(path string) (*File, error) {
	f, mem, err := parseMapped(path, "a valid safetensors", parseSafetensors)
	if err != nil {
		return nil, err
	}
	f.mem = mem
	return f, nil
}

func parseSafetensors(data []byte) (*File, error) {
	if len(data) < 8 {
		return nil, fmt.Errorf("%d bytes, want at least 8", len(data))
	}
	n := binary.LittleEndian.Uint64(data)
	if n > maxHeader {
		return nil, fmt.Errorf("header of %d bytes, want at most %d", n, maxHeader)
	}
	if n > uint64(len(data)-8) {
		return nil, fmt.Errorf("header of %d bytes in a file of %d: truncated", n, len(data))
	}
	header, body := data[8:8+n], data[8+n:]
	f := &File{Metadata: map[string]string{}, index: map[string]int{}, body: body}
	if err := f.parseHeader(header, body); err != nil {
		return nil, err
	}
	begin := func(t Tensor) int { return len(body) - cap(t.Data) } // Data is cut from body with its capacity
	slices.SortStableFunc(f.Tensors, func(a, b Tensor) int {       // empty tensors before the one that begins there
		return cmp.Or(cmp.Compare(begin(a), begin(b)), cmp.Compare(len(a.Data), len(b.Data)))
	})
	end := 0
	for i, t := range f.Tensors {
		begin := begin(t)
		if begin != end {
			return nil, fmt.Errorf("tensor %q begins at byte %d of the data, want %d (gap or overlap)", t.Name, begin, end)
		}
		end = begin + len(t.Data)
		f.index[t.Name] = i
	}
	if end != len(body) {
		return nil, fmt.Errorf("tensors cover %d bytes, the file holds %d", end, len(body))
	}
	return f, nil
}

// parseHeader walks the JSON by token, so that duplicate keys are seen.
func (f *File) parseHeader(header, body []byte) error {
	dec := json.NewDecoder(bytes.NewReader(header))
	dec.UseNumber()
	if err := wantDelim(dec, '{'); err != nil {
		return err
	}
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return headerError(err)
		}
		name, ok := key.(string)
		if !ok {
			return fmt.Errorf("header: key %v is not a string", key)
		}
		if seen[name] {
			return fmt.Errorf("header: tensor %q appears twice", name)
		}
		seen[name] = true
		if name == "__metadata__" {
			if err := dec.Decode(&f.Metadata); err != nil {
				return fmt.Errorf("header: __metadata__ must map strings to strings: %w", err)
			}
			if f.Metadata == nil {
				f.Metadata = map[string]string{}
			}
			continue
		}
		var entry struct {
			DType   *DType `json:"dtype"`
			Shape   []int  `json:"shape"`
			Offsets []int  `json:"data_offsets"`
		}
		if err := dec.Decode(&entry); err != nil {
			return fmt.Errorf("header: tensor %q: %w", name, headerError(err))
		}
		if entry.DType == nil || entry.Shape == nil || len(entry.Offsets) != 2 {
			return fmt.Errorf("header: tensor %q needs dtype, shape and two data_offsets", name)
		}
		size := entry.DType.Size()
		if size == 0 {
			return fmt.Errorf("header: tensor %q: unknown dtype %q", name, *entry.DType)
		}
		count, err := elements(entry.Shape)
		if err != nil {
			return fmt.Errorf("header: tensor %q: %w", name, err)
		}
		b, e := entry.Offsets[0], entry.Offsets[1]
		if b < 0 || e < b || e > len(body) {
			return fmt.Errorf("tensor %q lies at bytes %d to %d, the data ends at %d", name, b, e, len(body))
		}
		if e-b != count*size {
			return fmt.Errorf("tensor %q: %d bytes for %s %v, want %d", name, e-b, *entry.DType, entry.Shape, count*size)
		}
		f.Tensors = append(f.Tensors, Tensor{Name: name, DType: *entry.DType, Shape: entry.Shape, Data: body[b:e:len(body)]})
	}
	if err := wantDelim(dec, '}'); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("header: text after the JSON object")
	}
	return nil
}

func wantDelim(dec *json.Decoder, want json.Delim) error {
	tok, err := dec.Token()
	if err != nil {
		return headerError(err)
	}
	if tok != want {
		return fmt.Errorf("header: found %v, want %v", tok, want)
	}
	return nil
}

func headerError(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("header: JSON ends too early")
	}
	return fmt.Errorf("header: %w", err)
}

// WriteSafetensors writes tensors in Hugging Face's layout (largest alignment first, then by name; header padded to 8
// bytes) and replaces path in one step. The metadata gets the tensors' digest. Equal input gives equal bytes.
func WriteSafetensors(path string, tensors []Tensor, metadata map[string]string) error {
	_, err := WriteDigested(path, tensors, metadata)
	return err
}

// WriteDigested is WriteSafetensors. It returns the SHA-256 of the file that it meant to write: what a disk makes of it later does
// not enter.
func WriteDigested(path string, tensors []Tensor, metadata map[string]string) (sum string, err error) {
	sorted := slices.Clone(tensors)
	slices.SortStableFunc(sorted, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(b.DType.Size(), a.DType.Size()), cmp.Compare(a.Name, b.Name))
	})
	body := list.Map(sorted, func(t Tensor) []byte { return t.Data })
	meta := map[string]string{}
	maps.Copy(meta, metadata)
	meta[DigestKey] = digest.Of(body...)
	header, err := safetensorsHeader(sorted, meta)
	if err != nil {
		return "", fmt.Errorf("cannot write %s: %w", path, err)
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return "", err
	}
	defer f.Abort()
	whole := digest.New()
	for _, part := range slices.Insert(body, 0, header) {
		whole.Write(part)
		if _, err := f.Write(part); err != nil {
			return "", fmt.Errorf("cannot write %s: %w", path, err)
		}
	}
	return whole.Hex(), f.Commit()
}

// safetensorsHeader returns the length prefix and the padded JSON.
func safetensorsHeader(sorted []Tensor, metadata map[string]string) ([]byte, error) {
	var parts []string
	add := func(name string, of any) {
		key, _ := jsonwords.Marshal(name) // texts, numbers and lists of them always marshal
		value, _ := jsonwords.Marshal(of) // a map's keys are sorted
		parts = append(parts, string(key)+":"+string(value))
	}
	if len(metadata) > 0 {
		add("__metadata__", metadata)
	}
	offset := 0
	seen := map[string]bool{"__metadata__": true}
	for _, t := range sorted {
		count, err := elements(t.Shape)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if t.DType.Size() == 0 || len(t.Data) != count*t.DType.Size() {
			return nil, t.errorf("%d bytes of data", len(t.Data))
		}
		if seen[t.Name] {
			return nil, fmt.Errorf("tensor name %q is reserved or appears twice", t.Name)
		}
		seen[t.Name] = true
		add(t.Name, struct {
			DType   DType  `json:"dtype"`
			Shape   []int  `json:"shape"`
			Offsets [2]int `json:"data_offsets"`
		}{t.DType, append([]int{}, t.Shape...), [2]int{offset, offset + len(t.Data)}})
		offset += len(t.Data)
	}
	out := []byte(strings.Repeat(" ", 8) + "{" + strings.Join(parts, ",") + "}")
	for len(out)%8 != 0 {
		out = append(out, ' ')
	}
	binary.LittleEndian.PutUint64(out, uint64(len(out)-8))
	return out, nil
}
