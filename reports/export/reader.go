package export

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"time"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/regular"
	"fulcrum/reports/curves"
	"fulcrum/reports/record"
)

// Reader reads many runs. What it has read of one helps with the next, and what summaries say is kept in an index below the root that
// the runs were found below: a summary that is as it was when it was read is not read again.
type Reader struct {
	locked  func(dir string) bool
	indexes map[string]*index // by root
}

// NewReader returns a reader. locked reports whether a process is at work on a run.
func NewReader(locked func(dir string) bool) *Reader {
	return &Reader{locked: locked, indexes: map[string]*index{}}
}

// rowOf keeps of a summary what the row of a run takes.
func rowOf(s *record.Summary) *record.Summary {
	row := &record.Summary{State: s.State, Title: s.Title, Task: s.Task, Data: record.DataSummary{Name: s.Data.Name}, Overrides: s.Overrides,
		Seed: s.Seed, Device: s.Device, Start: s.Start, WallSeconds: s.WallSeconds, Phases: s.Phases, Best: s.Best,
		Warnings: s.Warnings[:min(1, len(s.Warnings))]}
	for i := range max(0, len(row.Phases)-1) {
		row.Phases[i].Final = nil
	}
	for _, e := range endings(s.Evaluations) {
		row.Evaluations = append(row.Evaluations, record.StageResult{Split: e.Split, Metric: e.Metric, Mean: e.Mean, SE: e.SE})
	}
	return row
}

// ended returns what a run's summary says, nil where the run has none.
func (reader *Reader) ended(f Folder) (*record.Summary, error) {
	path := filepath.Join(f.Dir, record.SummaryFile)
	before := regular.Identify(path)
	x, name := reader.indexOf(f)
	if x != nil && before != (regular.Identity{}) && x.known[name].Identity == before {
		x.kept[name] = x.known[name]
		return x.known[name].Ended, nil
	}
	at := time.Now()
	s, err := record.ReadSummary(f.Dir)
	if err != nil || s == nil {
		return nil, err
	}
	e := rowOf(s)
	if x != nil && before != (regular.Identity{}) && regular.Identify(path) == before {
		x.kept[name] = indexed{before, e}
		x.readAt[name] = at
	}
	return e, nil
}

// indexOf returns the index of the root of a run, and the run's name in it; nil where there is none.
func (reader *Reader) indexOf(f Folder) (x *index, name string) {
	name, err := filepath.Rel(f.Root, f.Dir)
	if f.Root == "" || err != nil || name == "." || !filepath.IsLocal(name) {
		return nil, ""
	}
	if x = reader.indexes[f.Root]; x == nil {
		x = &index{known: load(f.Root), kept: map[string]indexed{}, readAt: map[string]time.Time{}}
		reader.indexes[f.Root] = x
	}
	return x, name
}

// Save writes the indexes of the roots below which many summaries were read. Without one, the next reader reads them again.
func (reader *Reader) Save() {
	for root, x := range reader.indexes {
		if len(x.readAt) >= saveFrom {
			_ = x.save(root)
		}
	}
}

const (
	// indexVersion is the number of the index's format and of what it takes of a summary: whoever changes either counts it on.
	indexVersion = 2
	indexFile    = "rows.idx"
	// saveFrom is how many summaries are read before an index is written: fewer are read in no time.
	saveFrom = 50
	// settled is how long before it was read a file must have changed last. Clocks of file systems are coarse: who writes a file twice
	// within a tick leaves it with the same times.
	settled = 2 * time.Second
)

// index is what is known of the summaries below a root.
type index struct {
	known  map[string]indexed   // by path below the root, as the file has it
	kept   map[string]indexed   // those that were asked for
	readAt map[string]time.Time // of these, those that were read anew
}

type indexed struct {
	Identity regular.Identity
	Ended    *record.Summary
}

// head is the first line of an index.
type head struct {
	Version int    `json:"version"`
	SHA256  string `json:"sha256"` // of the rest
}

func headOf(body []byte) head {
	sum := sha256.Sum256(body)
	return head{indexVersion, hex.EncodeToString(sum[:])}
}

// load reads the index of a root. One that is absent, damaged or of another version is empty.
func load(root string) map[string]indexed {
	data, err := regular.ReadOptional(filepath.Join(root, curves.IndexFolder, indexFile))
	if err != nil {
		return nil
	}
	first, body, _ := bytes.Cut(data, []byte("\n"))
	var h head
	var runs map[string]indexed
	if json.Unmarshal(first, &h) != nil || h != headOf(body) || gob.NewDecoder(bytes.NewReader(body)).Decode(&runs) != nil {
		return nil
	}
	for name, one := range runs {
		if one.Ended == nil {
			delete(runs, name)
		}
	}
	return runs
}

// save writes the index. The clock that judges how long ago a file has changed is that of its file system, which may be another
// machine's: the time of the index itself.
func (x *index) save(root string) error {
	file, err := atomicfile.CreateIn(filepath.Join(root, curves.IndexFolder), indexFile)
	if err != nil {
		return err
	}
	defer file.Abort()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	now := time.Now()
	for name, at := range x.readAt {
		one := x.kept[name].Identity
		if last := max(one.Written, one.Changed); info.ModTime().Add(-now.Sub(at)).UnixNano()-last < int64(settled) {
			delete(x.kept, name)
		}
	}
	var body bytes.Buffer
	if err := gob.NewEncoder(&body).Encode(x.kept); err != nil {
		return err
	}
	first, err := json.Marshal(headOf(body.Bytes()))
	if err != nil {
		return err
	}
	if _, err := file.Write(append(append(first, '\n'), body.Bytes()...)); err != nil {
		return err
	}
	return file.Commit()
}
