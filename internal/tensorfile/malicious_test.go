package tensorfile

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Pieces of pickles, as Python's pickletools names them.
func unicodeOp(s string) string {
	return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s
}

func globalOp(module, name string) string { return "c" + module + "\n" + name + "\n" }

func intOp(n int64) string {
	return "\x8a\x08" + string(binary.LittleEndian.AppendUint64(nil, uint64(n)))
}

func proto(body string) []byte { return []byte("\x80\x02" + body + ".") }

// reduce calls a global with text arguments.
func reduce(module, name string, args ...string) string {
	var b strings.Builder
	b.WriteString(globalOp(module, name) + "(")
	for _, a := range args {
		b.WriteString(unicodeOp(a))
	}
	return b.String() + "tR"
}

func storageOp(class, key string, numel int64) string {
	return "(" + unicodeOp("storage") + globalOp("torch", class) + unicodeOp(key) + unicodeOp("cpu") + intOp(numel) + "tQ"
}

func tensorOp(storage string, offset int64, size, stride string) string {
	return globalOp("torch._utils", "_rebuild_tensor_v2") + "(" + storage + intOp(offset) + size + stride + "\x89" +
		globalOp("collections", "OrderedDict") + ")RtR"
}

func tupleOp(n ...int64) string {
	out := "("
	for _, x := range n {
		out += intOp(x)
	}
	return out + "t"
}

// archive zips entries without compression, in order: name, content, name, content, ….
func archive(t testing.TB, entries ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(entries); i += 2 {
		w, err := z.CreateHeader(&zip.FileHeader{Name: entries[i], Method: zip.Store})
		if err != nil {
			t.Fatal(err)
		}
		w.Write([]byte(entries[i+1]))
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Nothing that a pickle can ask for is executed: every way to name code is refused in one line, whatever
// it hides in, and the refusal names it.
func TestMaliciousPickles(t *testing.T) {
	owned := filepath.Join(t.TempDir(), "owned")
	nested := string(proto(reduce("os", "system", "touch "+owned)))
	for _, tc := range []struct{ name, pickle, want string }{
		{"os.system", reduce("os", "system", "touch "+owned), `"os.system"`},
		{"posix.system", reduce("posix", "system", "touch "+owned), `"posix.system"`},
		{"subprocess", reduce("subprocess", "Popen", "touch "+owned), `"subprocess.Popen"`},
		{"eval", reduce("builtins", "eval", "1"), `"builtins.eval"`},
		{"eval, Python 2", reduce("__builtin__", "eval", "1"), `"builtins.eval"`},
		{"exec", reduce("builtins", "exec", "1"), `"builtins.exec"`},
		{"import", reduce("builtins", "__import__", "os"), `"builtins.__import__"`},
		{"getattr", globalOp("builtins", "getattr") + "(" + globalOp("torch", "Size") + unicodeOp("__class__") + "tR",
			`"builtins.getattr"`},
		{"attribute chains", "\x80\x04" + unicodeOp("torch") + unicodeOp("Size.__class__.__base__") + "\x93", "Size.__class__"},
		{"a pickle in a pickle", globalOp("torch.storage", "_load_from_bytes") + "(" + unicodeOp(nested) + "tR",
			`"torch.storage._load_from_bytes"`},
		{"torch.load", reduce("torch", "load", "x.pt"), `"torch.load"`},
		{"torch.hub", reduce("torch.hub", "load", "x"), `"torch.hub.load"`},
		{"a package that looks like NumPy", reduce("numpy._core.os", "system", "x"), "system"},
		{"numpy.load", reduce("numpy", "load", "x"), `"numpy.load"`},
		{"operator", reduce("operator", "attrgetter", "x"), `"operator.attrgetter"`},
		{"functools", reduce("functools", "partial", "x"), `"functools.partial"`},
		{"deep inside a state dict", "}" + unicodeOp("model_state_dict") + "}" + unicodeOp("w") + reduce("os", "system", "x") + "ss",
			`"os.system"`},
		{"as a key", "}" + reduce("os", "system", "x") + "Ns", `"os.system"`},
		{"inside a tensor's arguments", tensorOp(reduce("os", "system", "x"), 0, tupleOp(1), tupleOp(1)), `"os.system"`},
		{"a global named by text", "\x80\x04" + unicodeOp("os") + unicodeOp("system") + "\x93" + "(" + unicodeOp("x") + "tR",
			`"os.system"`},
		{"a global with a line break", "\x80\x04" + unicodeOp("os\nx") + unicodeOp("system") + "\x93", `os\nx.system`},
		{"NEWOBJ of a class", globalOp("os", "PathLike") + ")\x81", `"os.PathLike"`},
		{"INST", "(" + unicodeOp("x") + "ios\nsystem\n", "opcode 0x69 is not supported"},
		{"OBJ", "(" + globalOp("collections", "OrderedDict") + "o", "opcode 0x6f is not supported"},
		{"NEWOBJ_EX", globalOp("collections", "OrderedDict") + ")}\x92", "opcode 0x92 is not supported"},
		{"EXT1", "\x82\x01", "opcode 0x82 is not supported"},
		{"calling a value", unicodeOp("os.system") + "(tR", "the file calls str"},
		{"calling the result of a call", globalOp("collections", "OrderedDict") + ")R(tR", "the file calls dict"},
		{"BUILD on a global", globalOp("torch", "Size") + "}" + "b", "sets attributes of"},
		{"BUILD on a tensor", tensorOp(storageOp("FloatStorage", "0", 4), 0, tupleOp(4), tupleOp(1)) + "}b", "sets attributes of tensor"},
		{"OrderedDict with arguments it has not", globalOp("collections", "OrderedDict") + "(" + unicodeOp("x") + "tR",
			"unexpected arguments"},
		{"_reconstruct of another class", globalOp("numpy.core.multiarray", "_reconstruct") + "(" +
			globalOp("collections", "OrderedDict") + "tR", "unexpected arguments"},
		{"a persistent id that is code", "(" + unicodeOp("module") + globalOp("torch", "FloatStorage") + "tQ", "unknown persistent id"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for layout, data := range map[string][]byte{
				"zip":    archive(t, "x/data.pkl", string(proto(tc.pickle)), "x/data/0", strings.Repeat("\x00", 16)),
				"legacy": append(append(append(proto(intMagic()), proto("M\xe9\x03")...), proto("}")...), proto(tc.pickle)...),
			} {
				path := filepath.Join(t.TempDir(), "evil.pt")
				os.WriteFile(path, data, 0o644)
				_, err := ReadPT(path)
				if err == nil || !strings.Contains(err.Error(), tc.want) || strings.ContainsAny(err.Error(), "\n\r") ||
					!strings.HasPrefix(err.Error(), path) {
					t.Errorf("%s: error %v, want one line with %q", layout, err, tc.want)
				}
			}
			if _, err := os.Stat(owned); err == nil {
				t.Fatal("code was executed")
			}
		})
	}
}

func intMagic() string { return "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19" }

// Sizes that lie: refused quickly, in one line, without the memory they claim.
func TestLyingSizes(t *testing.T) {
	four := strings.Repeat("\x00", 16) // four float32
	zipped := func(pickle string, more ...string) []byte {
		return archive(t, append([]string{"x/data.pkl", string(proto(pickle)), "x/data/0", four}, more...)...)
	}
	storage := storageOp("FloatStorage", "0", 4)
	deep := strings.Repeat("]", 200_000) + strings.Repeat("a", 199_999)
	laughs := unicodeOp("ha")
	for range 60 { // 2^60 leaves when printed
		laughs += "2\x86"
	}
	big := unicodeOp(strings.Repeat("x", 1<<20)) + "q\x000"
	encode := ""
	for range 5000 { // 20 bytes that copy a megabyte each
		encode += globalOp("_codecs", "encode") + "(h\x00" + unicodeOp("latin1") + "tR"
	}
	for _, tc := range []struct {
		name string
		data []byte
		want string
	}{
		{"a tensor of 2^60 elements", zipped(tensorOp(storage, 0, tupleOp(1<<60), tupleOp(1))), "overflows"},
		{"sizes whose product wraps", zipped(tensorOp(storage, 0, tupleOp(1<<32, 1<<32), tupleOp(1, 1))), "overflows"},
		{"a stride of 2^62", zipped(tensorOp(storage, 0, tupleOp(2), tupleOp(1<<62))), "reaches outside"},
		{"a negative stride", zipped(tensorOp(storage, 0, tupleOp(2), tupleOp(-1))), "non-negative"},
		{"a negative size", zipped(tensorOp(storage, 0, tupleOp(-2), tupleOp(1))), "non-negative"},
		{"an offset outside", zipped(tensorOp(storage, 4, tupleOp(1), tupleOp(1))), "reaches outside"},
		{"an offset of 2^62", zipped(tensorOp(storage, 1<<62, tupleOp(1), tupleOp(1))), "tensor offset"},
		{"one element spread over 2^40", zipped(tensorOp(storage, 0, tupleOp(1<<40), tupleOp(0))), "blow up"},
		{"a thousand dimensions", zipped(tensorOp(storage, 0, tupleOp(make([]int64, 1000)...), tupleOp(make([]int64, 1000)...))),
			"dimensions"},
		{"a storage larger than its bytes", zipped(tensorOp(storageOp("FloatStorage", "0", 5), 0, tupleOp(5), tupleOp(1))),
			"holds 16 bytes, want 5 elements of 4"},
		{"a storage smaller than its bytes", zipped(tensorOp(storageOp("FloatStorage", "0", 3), 0, tupleOp(3), tupleOp(1))),
			"holds 16 bytes, want 3 elements of 4"},
		{"a storage of 2^62", zipped(tensorOp(storageOp("FloatStorage", "0", 1<<62), 0, tupleOp(4), tupleOp(1))), "unknown persistent id"},
		{"a storage with two types", zipped("(" + tensorOp(storage, 0, tupleOp(4), tupleOp(1)) +
			tensorOp(storageOp("DoubleStorage", "0", 2), 0, tupleOp(2), tupleOp(1)) + "t"), "has two types"},
		{"a storage that is not there", zipped(tensorOp(storageOp("FloatStorage", "7", 4), 0, tupleOp(4), tupleOp(1))),
			`storage "7" is missing`},
		{"a storage whose key climbs out of the archive", zipped(tensorOp(storageOp("FloatStorage", "../../../../etc/passwd", 4), 0,
			tupleOp(4), tupleOp(1))), "is missing from the archive"},
		{"a key with line breaks", zipped(tensorOp(storageOp("FloatStorage", "a\nb", 4), 0, tupleOp(4), tupleOp(1))), `a\nb`},
		{"text of 4 GB", zipped("X\xff\xff\xff\xffab"), "truncated"},
		{"text of 2^63 bytes", zipped("\x8d\xff\xff\xff\xff\xff\xff\xff\x7fab"), "truncated"},
		{"an integer of a gigabyte", zipped("\x8b\x00\x00\x00\x40"), "integer of 1073741824 bytes"},
		{"no end", archive(t, "x/data.pkl", "\x80\x02]q\x00"), "truncated"},
		{"an empty pickle", archive(t, "x/data.pkl", ""), "truncated"},
		{"more after the pickle", archive(t, "x/data.pkl", string(proto("N"))+"N."), "bytes after the pickle"},
		{"a memo that was never set", zipped("h\x07"), "memo 7 was never set"},
		{"a tuple that names itself two to the sixty times, as a size", zipped(tensorOp(storage, 0, "("+laughs+"t", tupleOp(1))),
			"found tuple"},
		{"values copied over and over", zipped("(" + big[:len(big)-1] + "0" + encode + "l"), "blow up"},
		{"two pickles", archive(t, "x/data.pkl", string(proto("N")), "y/data.pkl", string(proto("N"))), "two entries data.pkl"},
		{"one entry twice", archive(t, "x/data.pkl", string(proto("N")), "x/data/0", four, "x/data/0", four), `"x/data/0" appears twice`},
		{"TorchScript", archive(t, "x/data.pkl", string(proto("N")), "x/constants.pkl", string(proto("N"))), "TorchScript"},
		{"no pickle", archive(t, "x/data/0", four), "without data.pkl"},
		{"big endian", archive(t, "x/data.pkl", string(proto("N")), "x/byteorder", "big"), "byte order"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			begin := time.Now()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := parsePT(tc.data)
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 300 {
				t.Errorf("error %.400v, want one line with %q", err, tc.want)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 || time.Since(begin) > time.Minute {
				t.Errorf("took %d MB and %v", grown>>20, time.Since(begin))
			}
		})
	}
	t.Run("nesting is no recursion", func(t *testing.T) {
		if _, err := parsePT(zipped(deep)); err != nil {
			t.Error(err)
		}
	})
	t.Run("a list that holds itself", func(t *testing.T) {
		v, err := parsePT(zipped("]q\x00h\x00a"))
		if list, ok := v.(*List); err != nil || !ok || list.Items[0] != any(list) || Show(v) != "list" {
			t.Errorf("%v", err)
		}
		cyclic := "}q\x00" + unicodeOp("a") + "h\x00s"
		if v, err := parsePT(zipped(cyclic)); err != nil || Show(v) != "dict" {
			t.Errorf("%v", err)
		}
	})
	t.Run("a list that holds itself as a shape", func(t *testing.T) {
		if _, err := parsePT(zipped(tensorOp(storage, 0, "]q\x00h\x00a", tupleOp(1)))); err == nil || !strings.Contains(err.Error(),
			"found list") {
			t.Errorf("%v", err)
		}
	})
}

// Compressed archives: a few kilobytes that claim, or really hold, gigabytes.
func TestZipBombs(t *testing.T) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, _ := z.CreateHeader(&zip.FileHeader{Name: "x/data.pkl", Method: zip.Deflate})
	w.Write(proto("N"))
	w, _ = z.CreateHeader(&zip.FileHeader{Name: "x/data/0", Method: zip.Deflate})
	zeros := make([]byte, 1<<20)
	for range 8 {
		w.Write(zeros)
	}
	z.Close()
	r, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	small := &unpacker{b.Bytes(), 1 << 20} // as if the limit were a megabyte
	if _, err := small.unzip(r.File[1]); err == nil || !strings.Contains(err.Error(), "unpacks to many times") {
		t.Errorf("an honest bomb: %v", err)
	}
	liar := *r.File[1]
	liar.UncompressedSize64 = 10
	if out, err := small.unzip(&liar); err == nil || len(out) > 0 {
		t.Errorf("a bomb that claims 10 bytes: %d bytes, %v", len(out), err)
	}
	claims := *r.File[1]
	claims.UncompressedSize64 = 1 << 50
	if _, err := newUnpacker(b.Bytes()).unzip(&claims); err == nil || !strings.Contains(err.Error(), "unpacks to many times") {
		t.Errorf("an entry that claims a petabyte: %v", err)
	}
	if v, err := parsePT(b.Bytes()); v != nil || err != nil {
		t.Errorf("a compressed archive within the limit: %v, %v", v, err)
	}
}

// Names in an archive are only looked up, never used as paths.
func TestZipPaths(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, root := range []string{"../", "/tmp/", "C:\\x\\/", "a/../b/"} {
		data := archive(t, root+"data.pkl", string(proto(tensorOp(storageOp("FloatStorage", "0", 4), 0, tupleOp(4), tupleOp(1)))), root+
			"data/0", strings.Repeat("\x00", 16))
		if v, err := parsePT(data); err != nil || TypeName(v) != "tensor" {
			t.Errorf("%s: %v, %v", root, v, err)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("files appeared: %v", entries)
	}
}

func TestShowIsShort(t *testing.T) {
	loop := &List{}
	loop.Items = []any{loop}
	for _, tc := range []struct {
		v    any
		want string
	}{
		{int64(3), "3"}, {true, "true"}, {nil, "None"}, {"a\nb", `"a\nb"`}, {loop, "list"}, {Tuple{loop}, "tuple"},
	} {
		if got := Show(tc.v); got != tc.want {
			t.Errorf("%s: got %q", tc.want, got)
		}
	}
	if got := Show(strings.Repeat("x", 1000)); len(got) > 70 {
		t.Errorf("%d characters", len(got))
	}
}
