package beamdata

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/golden"
)

func TestInspect(t *testing.T) {
	dir := t.TempDir()
	writeTable(t, dir, 20)
	for name, content := range map[string]string{"beams.json": tenLegacy, "beams_bad.json": strings.Replace(tenLegacy, "[1,8,9]",
		"[1,80,9]", 1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	in, err := Inspect(dir, 0, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	in.Write(&b)
	golden.File(t, filepath.Join("testdata", "inspect.txt"), bytes.ReplaceAll(b.Bytes(), []byte(dir), []byte("DIR")))
	if !in.Faulty() {
		t.Error("the bad file was not noticed")
	}
	if _, err := Inspect(filepath.Join(dir, "none.json"), 0, testOptions()); err == nil {
		t.Error("a missing file was inspected")
	}
}

func TestInspectOKVQA(t *testing.T) {
	opt := testOptions()
	opt.Reward.Mode = "vqa_gt_prob"
	in, err := Inspect(golden.Shared(t, "okvqa"), 0, opt)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	in.Write(&b)
	t.Log(b.String())
	if in.Faulty() || len(in.Files) != 12 {
		t.Errorf("%d files, faulty %v", len(in.Files), in.Faulty())
	}
}
