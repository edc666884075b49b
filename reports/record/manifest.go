package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/digest"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/regular"
	"fulcrum/reports/page"
)

const ManifestFile = "manifest.json"

// Manifest is manifest.json: digests of what a run left behind, taken when it ended. It is no signature: who
// changes a file can write a manifest that fits it.
type Manifest struct {
	Version string            `json:"version"` // build.Name of the program that ended the run
	Files   map[string]Digest `json:"files"`   // by path in the run folder, with slashes
	SHA256  string            `json:"-"`       // of manifest.json itself: what the report cites
}

type Digest struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// recordPatterns are the files of a run that its report is computed from, and the weights it names. Reports and
// plots are not among them: they are computed again. Nor are the states of a resume, whose SHA256SUMS are checked beside the
// manifest, and what a launcher writes beside the run.
func recordPatterns() []string {
	return []string{".hydra/config.yaml", ".hydra/hydra.yaml", ".hydra/overrides.yaml", ResolvedFile,
		MetricsFile, EvalsFile, LooksFile, OpenedFile, CompletionsFile, examplesFile, SummaryFile, RunLogFile,
		"predictions.jsonl", "evaluate.json", "results.json", "events.out.tfevents.*", "*.pt", "checkpoints/*.safetensors",
		picturesFolder + "/*.jpg"}
}

// WriteManifest records the digests of a run's files. A run calls it when it has ended, before its report. written are the SHA-256 of
// files, by path in the folder, that were taken when they were written: they stand in the manifest whatever the files hold now.
// It returns those that hold something else.
func WriteManifest(dir, version string, written map[string]string) (damaged []string, err error) {
	m := Manifest{Version: version, Files: map[string]Digest{}}
	names, err := RecordFiles(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		of, err := DigestOf(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if want := written[name]; want != "" && want != of.SHA256 {
			of.SHA256, damaged = want, append(damaged, name)
		}
		m.Files[name] = of
	}
	return damaged, atomicfile.WriteJSON(filepath.Join(dir, ManifestFile), m)
}

// removeEnd is for a run that goes on: it has not ended as summary and report say, and what it adds has no digest yet.
func removeEnd(dir string) error {
	for _, name := range []string{ManifestFile, SummaryFile, page.ReportFile, page.HtmlFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// readManifest reads manifest.json, nil when there is none.
func readManifest(dir string) (*Manifest, error) {
	path := filepath.Join(dir, ManifestFile)
	data, err := readIfThere(path)
	if err != nil || data == nil {
		return nil, err
	}
	m := &Manifest{}
	if err := jsonwords.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	m.SHA256 = digest.Of(data)
	return m, nil
}

// RecordFiles are the records that a run folder holds, sorted. Links are left out: best.safetensors is one.
func RecordFiles(dir string) ([]string, error) {
	var names []string
	for _, pattern := range recordPatterns() {
		found, err := regular.Glob(dir, pattern)
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			info, err := os.Lstat(path)
			if err != nil {
				return nil, err
			}
			if !info.Mode().IsRegular() {
				continue
			}
			name, err := filepath.Rel(dir, path)
			if err != nil {
				return nil, err
			}
			names = append(names, filepath.ToSlash(name))
		}
	}
	slices.Sort(names)
	return names, nil
}

func DigestOf(path string) (Digest, error) {
	sum, n, err := digest.File(path)
	return Digest{n, sum}, err
}
