package beamdata

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/beamdata/keycheck"
	"fulcrum/internal/nearpath"
	"fulcrum/internal/regular"
	"fulcrum/reports/page"
	summary "fulcrum/reports/record"
	"fulcrum/rewardutil/recorded"
)

// beamFile is the content of one beam file: queries in file order, their pools (RL only), and the kept
// candidates as global ids.
type beamFile struct {
	path   string
	format string // legacy or rl
	shots  int
	ids    []int64
	keys   []string              // compat: of all entries but _meta, including dropped ones
	pools  [][]int32             // RL; nil for legacy
	left   map[int64]int32       // by query id: position of the query in its own pool, from which it was removed; nil = none
	start  []int64               // [Q+1]
	picks  []int32               // [C, S] global ids; in compat RL files positions in the pool
	local  bool                  // picks are positions
	reward []float64             // [C]
	scores []recorded.Trajectory // RL
	method []uint8               // RL: index into names
	names  *methodNames
	counts map[string]int    // what was skipped, by reason
	first  map[string]string // by reason: place of the first
	lost   map[string]int    // queries that train nothing, by reason: a part of counts
	images map[int64]int64   // by query id: record.image

	unknown []keycheck.Unknown // keys that nothing reads
}

type fileReader struct {
	opt  Options
	rows int // of the embedding table: ids outside 0..rows-1 are refused
	out  *beamFile
	seen map[int64]bool
	pos  map[int64]int32 // position of an id in the current pool
	rl   bool

	parser *parser
}

// readBeams reads a beam file of either format. rows bounds the global ids.
func readBeams(path, key string, rows int, opt Options) (*beamFile, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, missing(path, key, err)
	}
	defer f.Close()
	p := newParser(f, filepath.Base(path), opt)
	r := newFileReader(p, path, rows, opt)
	err = p.each(r.add)
	if err == nil && r.out.format == "" {
		err = p.noQuery()
	}
	if err == nil {
		r.count("key_not_a_number", p.keysNotIDs, p.notID)
		r.out.lost["key_not_a_number"] = p.keysNotIDs
		r.out.unknown = append(p.recordKeys.Unknown(), p.trajectoryKeys.Unknown()...)
		r.out.keys = p.keys
		return r.out, nil
	}
	return nil, fmt.Errorf("%s: %w", path, err)
}

func newFileReader(p *parser, path string, rows int, opt Options) *fileReader {
	return &fileReader{opt: opt, rows: rows, parser: p, seen: map[int64]bool{}, pos: map[int64]int32{},
		out: &beamFile{path: path, start: []int64{0}, counts: map[string]int{}, first: map[string]string{}, lost: map[string]int{},
			names: p.methods, images: map[int64]int64{}}}
}

// missing reports an absent file and the key that names it.
func missing(path, key string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: no such file%s: set %s to an existing one", path, nearpath.Hint(path), key)
	}
	return fmt.Errorf("%s: %w", key, err)
}

func (r *fileReader) count(reason string, n int, at place) {
	if n == 0 {
		return
	}
	if r.out.counts[reason] == 0 {
		r.out.first[reason] = fmt.Sprintf("%s: line %d, query %.40s", filepath.Base(r.out.path), at.line, at.key)
	}
	r.out.counts[reason] += n
}

// lose counts a query that is left out.
func (r *fileReader) lose(reason string, rec *record) {
	r.count(reason, 1, rec.place())
	r.out.lost[reason]++
}

// tooManyLost refuses a file that would lose more queries than data.max_skipped_share without a key that asks for it. The reference
// refuses no file, and queries to be answered need no candidates.
func (f *beamFile) tooManyLost(opt Options) error {
	if opt.Compat || opt.QueriesOnly || f == nil {
		return nil
	}
	n := 0
	for _, lost := range f.lost {
		n += lost
	}
	of := len(f.ids) + n - f.lost["query_without_reader_row"] // which were read
	if float64(n) <= opt.MaxSkippedShare*float64(of) {
		return nil
	}
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(f.lost)) {
		if f.lost[reason] > 0 {
			reasons = append(reasons, fmt.Sprintf("%s (the first: %s)", summary.SkippedText(reason, f.lost[reason]), f.first[reason]))
		}
	}
	return fmt.Errorf("%s: %d of %d queries would be left out: %s; data.max_skipped_share=%g allows %.3g %%", f.path, n, of,
		strings.Join(reasons, ", "), opt.MaxSkippedShare, 100*opt.MaxSkippedShare)
}

func (r *fileReader) add(rec *record) error {
	if r.out.format == "" {
		format, err := r.detect(rec)
		if err != nil {
			return err
		}
		r.out.format, r.rl = format, format == "rl"
	}
	if r.seen[rec.id] {
		return fmt.Errorf("appears twice")
	}
	r.seen[rec.id] = true
	if rec.id < 0 || rec.id >= int64(r.rows) {
		return &outsideError{"the query id", rec.id, r.rows}
	}
	if rec.pictured {
		r.out.images[rec.id] = rec.image
	}
	switch {
	case !r.rl:
		return r.addLegacy(rec)
	case r.opt.Compat && !(r.opt.QueriesOnly && rec.hasPool):
		return r.addCompatRL(rec)
	}
	return r.addRL(rec)
}

// detect tells the format by the first query (parity §1.4): trajectories or a pool make it RL,
// id_list and score_list legacy.
func (r *fileReader) detect(rec *record) (string, error) {
	format := ""
	switch {
	case len(rec.trajectories) > 0 || rec.hasPool || rec.hasTrajectories && !rec.hasBeams:
		format = "rl"
	case rec.hasBeams && rec.hasScores:
		format = "legacy"
	case rec.hasBeams:
		return "", fmt.Errorf("id_list without score_list")
	default:
		return "", fmt.Errorf("found %s, want id_list and score_list (legacy), or pointer_candidates, candidate_pool_ids or both (RL)",
			r.parser.recordKeys.Found())
	}
	if want := r.opt.Format; want != "auto" && want != "" && want != format {
		return "", fmt.Errorf("the file is in format %s, data.format=%s asks for another", format, want)
	}
	return format, nil
}

// endQuery closes the candidates of the query that was just added.
func (r *fileReader) endQuery(id int64) {
	r.out.ids = append(r.out.ids, id)
	n := len(r.out.reward)
	r.out.start = append(r.out.start, int64(n))
}

// outsideError is an id without a row in the embedding table.
type outsideError struct {
	what string
	id   int64
	rows int
}

func (e *outsideError) Error() string {
	if e.id < 0 { // in any table, also one that is not named
		return e.what + " is outside the embedding table: ids count rows from 0"
	}
	return fmt.Sprintf("%s is outside the embedding table of %d rows", e.what, e.rows)
}

func (r *fileReader) checkID(id int64) error {
	if id < 0 || id >= int64(r.rows) {
		return &outsideError{fmt.Sprintf("= %d", id), id, r.rows}
	}
	return nil
}

// shotsOf fixes S by the first candidate and refuses others.
func (r *fileReader) checkShots(n int) error {
	r.out.shots = cmp.Or(r.out.shots, n)
	if n != r.out.shots || n == 0 {
		return fmt.Errorf("has %s, want %d as in the first of the file: put groups with another number of picks into a separate file "+
			"and run", page.Plural(n, "pick"), max(r.out.shots, 1))
	}
	return nil
}

// repeated finds a pick that occurs twice: the policy chooses without replacement.
func repeated(picks []int64) (int64, bool) {
	for i, x := range picks {
		if slices.Contains(picks[:i], x) {
			return x, true
		}
	}
	return 0, false
}

// FormatOf returns the format of a beam file, legacy or rl, from its first query.
func FormatOf(path string) (string, error) {
	f, err := regular.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	opt := DefaultOptions()
	p := newParser(f, path, opt)
	p.finite = false // scores that are not are a matter of training
	r := &fileReader{opt: opt, parser: p}
	format, found := "", errors.New("found")
	err = p.each(func(rec *record) (err error) {
		if format, err = r.detect(rec); err == nil {
			err = found
		}
		return err
	})
	if errors.Is(err, found) {
		return format, nil
	}
	return "", fmt.Errorf("%s: %w", path, cmp.Or(err, p.noQuery()))
}
