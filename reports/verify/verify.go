package verify

import (
	"cmp"
	"fmt"
	"maps"
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
	Other      string   // the program that made the folder, "" where it is this one

	drawn map[string][]byte // plots drawn again, by file
}

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
	v.Other = cmp.Or(v.Other, of.Other)
}

// New returns the check of a folder that the program other made, "" where it is this one.
func New(other string) *Verification { return &Verification{Other: other, drawn: map[string][]byte{}} }

// VerifyOptions says what a check needs to know and may leave out.
type VerifyOptions struct {
	Version     string // of this program, as WriteManifest was told
	SkipWeights bool   // checkpoints may be gone: a report that was handed in without them
}

// VerifyRun checks a run's folder against its raw records: records against their digests, epochs against their steps, evaluations against
// the scores of every question. Of a folder of this very program it writes TensorBoard's events, summary.json, plots, report.md and
// report.html again, whose bytes must be equal; of another one's the numbers of summary.json, SVG plots and reports must be
// among those that the records give. It is an error when something cannot be read at all.
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
	c := &runCheck{Verification: New(""), dir: dir, run: run, opt: opt}
	if m := run.Manifest; m != nil && m.Version != opt.Version {
		c.Other = m.Version
		c.note("the run was made by another version of the program (%s; this is %s): its numbers are computed again, its words and curves "+
			"are not compared", m.Version, opt.Version)
	}
	for _, check := range []func() error{c.digests, c.states, c.rows, c.evaluations, c.summary, c.plots, c.report} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return c.Verification, nil
}

type runCheck struct {
	*Verification
	dir    string
	run    *record.Run
	opt    VerifyOptions
	others []numberedRow // rows of metrics.jsonl that are no steps
}

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
			c.changed("checkpoints/"+filepath.Base(path), "a checkpoint", err.Error())
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
			c.changed(at+"/"+list, "digests of a state", err.Error())
			continue
		}
		damaged, err := sums.Damaged(dir, files)
		if err != nil {
			return err
		}
		for _, d := range damaged {
			name := path.Join(at, d.Name)
			known := slices.ContainsFunc(c.Mismatches, func(m Mismatch) bool { return m.File == name }) // several states need one file
			switch stated := fmt.Sprintf("SHA-256 %.12s… in %s", d.Want, at); {
			case known, d.Got == "" && c.opt.SkipWeights:
			case d.Got == "":
				c.changed(name, stated, "no such file")
			default:
				c.changed(name, stated, fmt.Sprintf("%.12s…: the file has changed since it was written", d.Got))
			}
		}
	}
	if len(folders) > 0 {
		c.checked("%s", page.Plural(len(folders), "state"))
	}
	return nil
}

// changed notes a file that its digest does not bear out.
func (c *runCheck) changed(file, stated, recomputed string) {
	c.mismatch(Mismatch{File: file, What: "digest", Stated: stated, Recomputed: recomputed})
}

// digests compares the records with the digests taken when the run ended.
func (c *runCheck) digests() error {
	m := c.run.Manifest
	if m == nil {
		c.note("there is no %s: the records have no digests, and were only checked against each other", record.ManifestFile)
		return c.weights()
	}
	weights := func(name string) bool {
		return strings.HasPrefix(name, "checkpoints/") || strings.HasSuffix(name, ".pt")
	}
	present, err := record.RecordFiles(c.dir)
	if err != nil {
		return err
	}
	for _, name := range present {
		if _, known := m.Files[name]; !known && !weights(name) {
			c.changed(name, "no such file when the run ended", "a file")
		}
	}
	n := 0
	for _, name := range slices.Sorted(maps.Keys(m.Files)) {
		want := m.Files[name]
		got, err := digestLike(filepath.Join(c.dir, filepath.FromSlash(name)), want)
		const since = ": the file has changed since the run ended"
		switch length := fmt.Sprintf("%d bytes", want.Bytes); {
		case os.IsNotExist(err) && weights(name) && c.opt.SkipWeights:
			continue
		case os.IsNotExist(err):
			c.changed(name, length, "no such file")
			continue
		case err != nil:
			return err
		case got.Bytes != want.Bytes:
			c.changed(name, length, fmt.Sprintf("%d bytes%s", got.Bytes, since))
		case got != want:
			c.changed(name, fmt.Sprintf("SHA-256 %.12s…", want.SHA256), fmt.Sprintf("%.12s…%s", got.SHA256, since))
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
