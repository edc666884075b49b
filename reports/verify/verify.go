package verify

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/digest"
	"fulcrum/internal/program"
	"fulcrum/internal/regular"
	"fulcrum/internal/tensorfile"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// Mismatch is a number or a line that the records do not bear out.
type Mismatch struct {
	File       string `json:"file"` // in the folder that was checked
	Line       int    `json:"line"` // 0: the whole file
	What       string `json:"what"` // which number, "" where stated and recomputed say it
	Stated     string `json:"stated"`
	Recomputed string `json:"recomputed"`
}

// String is one line: metrics.jsonl:12: kl of grpo epoch 1: stated 0.05, recomputed 0.04.
func (m Mismatch) String() string {
	where := m.File
	if m.Line > 0 {
		where += fmt.Sprintf(":%d", m.Line)
	}
	if m.What != "" {
		where += ": " + m.What
	}
	return fmt.Sprintf("%s: stated %s, recomputed %s", where, m.Stated, m.Recomputed)
}

// Verification is what a check of a report has found.
type Verification struct {
	Mismatches []Mismatch
	Checked    []string // what was compared, in a few words each
	Notes      []string // what could not be checked, and why

	drawn map[string][]byte // plots drawn again, by file
}

// Summary says in one line what was checked.
func (v *Verification) Summary() string { return strings.Join(v.Checked, ", ") }

func (v *Verification) mismatch(m Mismatch) { v.Mismatches = append(v.Mismatches, m) }

func (v *Verification) checked(format string, args ...any) {
	v.Checked = append(v.Checked, fmt.Sprintf(format, args...))
}

func (v *Verification) note(format string, args ...any) {
	v.Notes = append(v.Notes, fmt.Sprintf(format, args...))
}

// Add takes over what the check of a job in the folder at (with slashes) has found.
func (v *Verification) Add(at string, of *Verification) {
	for _, m := range of.Mismatches {
		m.File = at + "/" + m.File
		v.mismatch(m)
	}
	for _, note := range of.Notes {
		v.note("%s: %s", at, note)
	}
}

// VerifyOptions says what a check needs to know and may leave out.
type VerifyOptions struct {
	Version     string // of this program, as WriteManifest was told
	SkipWeights bool   // checkpoints may be gone: a report that was handed in without them
}

// VerifyRun computes every number of a run's report again from its raw records and compares: records with their
// digests, epochs with steps, evaluations with the scores of every question, summary.json, run.log, TensorBoard's
// events, plots, report.md and report.html. It is an error when something cannot be read at all.
//
// The digests are no signature. Where they are missing or were made again, a change is found only where it
// contradicts another record.
func VerifyRun(dir string, opt VerifyOptions) (*Verification, error) {
	run, err := record.ReadRun(dir)
	if err != nil {
		return nil, err
	}
	if run.Summary == nil && run.Resumes() > 0 { // its report, if there is one, may be of an earlier end
		return nil, fmt.Errorf("%s: the run was resumed and has not ended since: go on with %s", dir, program.OnFolder("resume", dir))
	}
	c := &runCheck{Verification: &Verification{}, dir: dir, run: run, opt: opt}
	for _, check := range []func() error{c.digests, c.states, c.Rows, c.evaluations, c.summary, c.log, c.plots, c.Report} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return c.Verification, nil
}

// runCheck is the check of one run in progress.
type runCheck struct {
	*Verification
	dir    string
	run    *record.Run
	opt    VerifyOptions
	others []numberedRow // rows of metrics.jsonl that are no steps
}

// numberedRow is a row and where it stands.
type numberedRow struct {
	record.Row
	line int
}

// at names a row for a reader: grpo epoch 2, eval of best on dev.
func (r numberedRow) at() string {
	switch r.Kind {
	case record.KindStep:
		return fmt.Sprintf("%s step %d", r.Phase, r.Step)
	case record.KindEpoch:
		return fmt.Sprintf("%s epoch %d", r.Phase, r.Epoch)
	case record.KindEval:
		return fmt.Sprintf("%s on %s", r.Text("policy"), r.Text("split"))
	}
	return r.Text("event")
}

// wrong notes what the records do not bear out of a row.
func (c *runCheck) wrong(row numberedRow, what, stated, recomputed string) {
	c.mismatch(Mismatch{File: record.MetricsFile, Line: row.line, What: what, Stated: stated, Recomputed: recomputed})
}

// weights checks the checkpoints against the digests of their tensors that they hold themselves.
func (c *runCheck) weights() error {
	paths, err := regular.Glob(c.dir, "checkpoints/*_epoch*.safetensors") // best and last are links to one of them
	if err != nil {
		return err
	}
	for _, path := range paths {
		f, err := tensorfile.ReadSafetensors(path)
		if err != nil {
			c.mismatch(Mismatch{File: "checkpoints/" + filepath.Base(path), What: "digest", Stated: "a checkpoint", Recomputed: err.Error()})
			continue
		}
		f.Close()
	}
	return nil
}

// states compares the files that a resume would need with the digests that were taken when they were written.
func (c *runCheck) states() error {
	const list, least = "SHA256SUMS", 4 // itself, the optimizer's, the weights, the initial weights
	folders, err := regular.Glob(c.dir, "checkpoints/[^.]*.state")
	if err != nil {
		return err
	}
	files := digest.Files{}
	for _, dir := range folders {
		at := "checkpoints/" + filepath.Base(dir)
		sums, err := digest.ReadSums(filepath.Join(dir, list), least)
		if err != nil {
			c.mismatch(Mismatch{File: at + "/" + list, What: "digests", Stated: "those of a state", Recomputed: err.Error()})
			continue
		}
		damaged, err := sums.Damaged(dir, files)
		if err != nil {
			return err
		}
		for _, d := range damaged {
			name := path.Join(at, d.Name)
			known := slices.ContainsFunc(c.Mismatches, func(m Mismatch) bool { return m.File == name }) // several states need one file
			if known || d.Got == "" && c.opt.SkipWeights {
				continue
			}
			m := Mismatch{File: name, What: "digest", Stated: fmt.Sprintf("SHA-256 %.12s…", d.Want), Recomputed: "no such file"}
			if d.Got != "" {
				m.Recomputed = fmt.Sprintf("%.12s…: the file has changed since it was written", d.Got)
			}
			c.mismatch(m)
		}
	}
	if len(folders) > 0 {
		c.checked("%s", page.Plural(len(folders), "state"))
	}
	return nil
}

// digests compares the records with the digests taken when the run ended.
func (c *runCheck) digests() error {
	m := c.run.Manifest
	if m == nil {
		c.note("there is no %s: the records have no digests, and were only checked against each other", record.ManifestFile)
		return c.weights()
	}
	if m.Version != c.opt.Version {
		c.note("the run was made by another version of the program (%s; this is %s): reports and plots may differ for that reason", m.Version,
			c.opt.Version)
	}
	present, err := record.RecordFiles(c.dir)
	if err != nil {
		return err
	}
	for _, name := range present {
		if _, known := m.Files[name]; !known && !strings.HasPrefix(name, "checkpoints/") && !strings.HasSuffix(name, ".pt") {
			c.mismatch(Mismatch{File: name, What: "digest", Stated: "no such file when the run ended", Recomputed: "a file"})
		}
	}
	n := 0
	for _, name := range sortedKeys(m.Files) {
		want := m.Files[name]
		weights := strings.HasPrefix(name, "checkpoints/") || strings.HasSuffix(name, ".pt")
		got, err := digestLike(filepath.Join(c.dir, filepath.FromSlash(name)), want)
		switch {
		case os.IsNotExist(err) && weights && c.opt.SkipWeights:
			continue
		case os.IsNotExist(err):
			c.mismatch(Mismatch{File: name, What: "digest", Stated: fmt.Sprintf("%d bytes", want.Bytes), Recomputed: "no such file"})
			continue
		case err != nil:
			return err
		case got.Bytes != want.Bytes:
			c.mismatch(Mismatch{File: name, What: "digest", Stated: fmt.Sprintf("%d bytes", want.Bytes),
				Recomputed: fmt.Sprintf("%d bytes: the file has changed since the run ended", got.Bytes)})
		case got != want:
			c.mismatch(Mismatch{File: name, What: "digest", Stated: "SHA-256 " + want.SHA256[:min(12, len(want.SHA256))] + "…",
				Recomputed: got.SHA256[:12] + "…: the file has changed since the run ended"})
		}
		n++
	}
	c.checked("%s", page.Plural(n, "digest"))
	return nil
}

// digestLike is the digest of a file that should be like want. One of another size is not read: it may be a giant.
func digestLike(path string, want record.Digest) (record.Digest, error) {
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() != want.Bytes {
		return record.Digest{Bytes: info.Size()}, nil
	}
	return record.DigestOf(path)
}
