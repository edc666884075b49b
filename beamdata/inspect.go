package beamdata

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/beamdata/conversation"
	"fulcrum/beamdata/icl"
	"fulcrum/beamdata/jsonrecords"
	"fulcrum/beamdata/texts"
	"fulcrum/internal/frames"
	"fulcrum/internal/list"
	"fulcrum/internal/nearpath"
	"fulcrum/internal/option"
	"fulcrum/internal/stat"
	summary "fulcrum/reports/record"
)

// Inspection describes a file for `run data inspect`: facts in order, and the first fault.
type Inspection struct {
	Path   string
	Format string // "beams (legacy)", "beams (rl)", "embeddings", "reward table", "conversations", "texts", "folder"
	Facts  []Fact
	Fault  error // the reason why a run would refuse the file; nil = sound
	Files  []Inspection
}

// Fact is one line of an inspection.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func (in *Inspection) add(name, format string, args ...any) {
	in.Facts = append(in.Facts, Fact{name, fmt.Sprintf(format, args...)})
}

// Write prints the inspection as aligned lines.
func (in Inspection) Write(w io.Writer) {
	if in.Format == "" {
		in.Format = "refused"
	}
	fmt.Fprintf(w, "%s: %s\n", in.Path, in.Format)
	width := 0
	for _, f := range in.Facts {
		width = max(width, len(f.Name))
	}
	for _, f := range in.Facts {
		fmt.Fprintf(w, "  %-*s  %s\n", width, f.Name, f.Value)
	}
	if in.Fault != nil {
		fmt.Fprintf(w, "  fault: %v\n", in.Fault)
	}
	for _, file := range in.Files {
		file.Write(w)
	}
}

// Fact is the value of a fact by its name, "" where there is none.
func (in Inspection) Fact(name string) string {
	if i := slices.IndexFunc(in.Facts, func(f Fact) bool { return f.Name == name }); i >= 0 {
		return in.Facts[i].Value
	}
	return ""
}

// Faulty says whether the file, or one of the folder's, would be refused.
func (in Inspection) Faulty() bool {
	return in.Fault != nil || slices.ContainsFunc(in.Files, Inspection.Faulty)
}

// Inspect reports what the file or folder at path holds: format, counts, spreads of the rewards, and
// the first fault. rows bounds the ids of beam files (0 = unknown); opt gives the reward mode.
func Inspect(path string, rows int, opt Options) (Inspection, error) {
	info, err := os.Stat(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return Inspection{}, fmt.Errorf("%s: no such file%s", path, nearpath.Hint(path))
		}
		return Inspection{}, err
	}
	if rows <= 0 {
		rows = math.MaxInt32
	}
	in := Inspection{Path: path}
	switch ext := strings.ToLower(filepath.Ext(path)); {
	case info.IsDir():
		return inspectFolder(path, opt)
	case ext == ".parquet", (ext == ".json" || ext == ".jsonl") && opt.Texts.Named():
		in.of("texts", opt.Texts.Inspect)
	case ext == ".json" || ext == ".jsonl":
		in.records(rows, opt)
	case ext == ".npz":
		in.rewardTable(rows)
	default:
		in.embeddings()
	}
	return in, nil
}

// inspectFolder inspects the data files of a folder, the beam files against its embedding table.
func inspectFolder(path string, opt Options) (Inspection, error) {
	in := Inspection{Path: path, Format: "folder"}
	entries, err := os.ReadDir(path)
	if err != nil {
		return in, err
	}
	rank := func(e os.DirEntry) int {
		return strings.Index(".npy.safetensors.pt.pth.npz.jsonl", strings.ToLower(filepath.Ext(e.Name())))
	}
	slices.SortStableFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(rank(a), rank(b)) })
	var table *Table
	of, rows := "", 0
	var folders, others []string
	for _, e := range entries {
		name := e.Name()
		if info, err := os.Stat(filepath.Join(path, name)); err == nil && info.IsDir() { // a link is what it leads to
			folders = append(folders, name)
			continue
		} else if !isData(filepath.Join(path, name)) {
			others = append(others, name)
			continue
		}
		file, err := Inspect(filepath.Join(path, name), rows, opt)
		if err != nil {
			return in, err
		}
		if t, err := OpenTable(file.Path); rows == 0 && file.Format == "embeddings" && err == nil {
			table, of, rows = t, file.Path, t.Rows
		}
		if file.Fault != nil && table != nil {
			file.Fault = table.blame(of, file.Fault)
		}
		in.Files = append(in.Files, file)
	}
	in.names("not recognised", others)
	in.names("folders, not looked into", folders)
	if len(in.Files) == 0 {
		set, err := icl.LoadVQA("data.root", path)
		if err != nil {
			in.Fault = fmt.Errorf("no file of data in the folder: beams, embeddings, reward tables, conversations, texts or records_icl; "+
				"as published files of OK-VQA: %w", err)
			return in, nil
		}
		in.add("published questions", "%d, for data=vqa data.root=%s", set.Records.Len(), path)
	}
	return in, nil
}

// names adds the number of files and the names of the first ones.
func (in *Inspection) names(what string, names []string) {
	const most = 8
	n := len(names)
	if n > most {
		names = append(names[:most], "…")
	}
	if n > 0 {
		in.add(what, "%d: %s", n, strings.Join(names, ", "))
	}
}

// isData reports, by content, whether a file of a folder can be the value of a key of section data. A JSON file called beams or
// rl always can, so that its faults are reported.
func isData(path string) bool {
	name := filepath.Base(path)
	switch strings.ToLower(filepath.Ext(name)) {
	case ".npy", ".npz", ".pt", ".pth", ".safetensors":
		return true
	case ".parquet":
		_, err := texts.DefaultOptions().Inspect(path)
		return err == nil
	case ".json", ".jsonl":
		first, err := jsonrecords.FirstKeys(path)
		switch {
		case strings.Contains(name, "beam") || strings.HasPrefix(name, "rl"):
			return true
		case err != nil:
			return false
		case first == nil:
			_, err := FormatOf(path)
			return err == nil
		}
		return icl.Fits(first) || texts.Fits(first) || conversation.Fits(first) || slices.Contains(first, "idx")
	}
	return false
}

func (in *Inspection) embeddings() {
	t, err := OpenTable(in.Path)
	if err != nil {
		in.Fault = err
		return
	}
	in.Format = "embeddings"
	in.add("rows", "%d", t.Rows)
	in.add("dim", "%d", t.Dim)
	norms := t.Lengths(t.Rows)
	in.spread("norm of a row", norms)
	if zero := list.Count(norms, func(n float64) bool { return n == 0 }); zero > 0 {
		in.add("zero rows", "%d (they have no cosine)", zero)
	}
}

func (in *Inspection) rewardTable(rows int) {
	r, err := readReader(in.Path, "the path", rows)
	if err != nil {
		in.Fault = err
		return
	}
	in.Format = "reward table"
	in.add("queries", "%d", len(r.IDs))
	in.add("pool", "%d candidates", len(r.pools[0]))
	best := make([]float64, len(r.IDs))
	helpful := 0
	for i := range r.IDs {
		for p := range r.pools[i] {
			best[i] = max(best[i], r.Reward(i, []int32{int32(p)}))
		}
		if slices.Max(r.acc[i]) > 0 {
			helpful++
		}
	}
	in.spread("best single reward", best)
	in.add("queries with a helpful candidate", "%d (%.1f %%)", helpful, 100*float64(helpful)/float64(len(r.IDs)))
}

// records tells beam files from lists and lines of conversations, texts or records_icl by how the file begins.
func (in *Inspection) records(rows int, opt Options) {
	first, err := jsonrecords.FirstKeys(in.Path)
	switch {
	case err != nil || first == nil, slices.Contains(first, "id_list"), slices.Contains(first, "pointer_candidates"):
		in.beams(rows, opt)
	case icl.Fits(first):
		in.pictured("records of in-context learning", opt, icl.Inspect)
	case texts.Fits(first):
		in.of("texts", opt.Texts.Inspect)
	case slices.Contains(first, "idx"):
		in.of("items.jsonl", func(path string) ([][2]string, error) {
			var it Items
			outside, _, err := it.readItems(path, "", min(rows, 1<<22)) // an idx makes room for all below it
			return [][2]string{{"rows", fmt.Sprint(len(it.rows))}, {"outside the embeddings", fmt.Sprint(outside)}}, err
		})
	default:
		in.pictured("conversations", opt, func(path string, look func(string) error) ([][2]string, error) {
			return conversation.Inspect(path, opt.MaxSkippedShare, look)
		})
		if _, err := readBeams(in.Path, "the path", rows, opt); len(first) == 0 && err != nil { // {} may be meant as anything
			*in = Inspection{Path: in.Path, Fault: fmt.Errorf("%w; as conversations: %w", err, in.Fault)}
		}
		if in.Fault != nil && !conversation.Fits(first) {
			in.Fault = fmt.Errorf("%w; texts with a target: data.texts.source=NAME data.texts.target=NAME name the columns", in.Fault)
		}
	}
}

// pictured is of for files that name pictures. look decodes the first of them, and looks for the others.
func (in *Inspection) pictured(format string, opt Options, inspect func(string, func(string) error) ([][2]string, error)) {
	const most = 200 // a large photo takes a tenth of a second
	decoded := map[string]bool{}
	in.of(format, func(path string) ([][2]string, error) {
		return inspect(path, func(file string) error {
			_, err := os.Stat(file)
			if err != nil || opt.Picture == nil || decoded[file] || len(decoded) == most || !frames.IsImage(file) {
				return err
			}
			decoded[file] = true
			return opt.Picture(file)
		})
	})
	if len(decoded) == most {
		in.add("pictures decoded", "the first %d", most)
	}
}

// of adds another package's findings.
func (in *Inspection) of(format string, inspect func(path string) ([][2]string, error)) {
	facts, fault := inspect(in.Path)
	in.Fault = fault
	if len(facts) > 0 || fault == nil {
		in.Format = format
	}
	for _, f := range facts {
		in.add(f[0], "%s", f[1])
	}
}

func (in *Inspection) beams(rows int, opt Options) {
	f, err := readBeams(in.Path, "the path", rows, opt)
	if err != nil {
		in.Fault = err
		return
	}
	in.Format = "beams (" + f.format + ")"
	if len(f.ids) == 0 && in.forPredict(f, rows, opt) {
		return
	}
	in.add("queries", "%d", len(f.ids))
	in.add("shots", "%d", f.shots)
	in.add("candidates", "%d", len(f.reward))
	var groups, within, pools []float64
	flat, unsorted := 0, 0
	for i := range f.ids {
		r := f.reward[f.start[i]:f.start[i+1]]
		groups = append(groups, float64(len(r)))
		if len(r) > 0 {
			spread := slices.Max(r) - slices.Min(r)
			within = append(within, spread)
			if spread == 0 {
				flat++
			}
			if !slices.IsSortedFunc(r, func(a, b float64) int { return cmp.Compare(b, a) }) {
				unsorted++
			}
		}
		if f.pools != nil {
			pools = append(pools, float64(len(f.pools[i])))
		}
	}
	in.spread("candidates per query", groups)
	if f.pools != nil {
		in.spread("pool size", pools)
	} else {
		in.add("pool size", "%d (gathered from all beams)", len(f.gathered()))
	}
	reward := "score"
	if f.format == "rl" {
		reward = "reward " + cmp.Or(option.Or(opt.Reward.Field, ""), opt.Reward.Mode)
	}
	in.spread(reward, f.reward)
	in.spread("spread within a query", within)
	in.add("queries without spread", "%d (no learning signal)", flat)
	if f.format == "legacy" {
		in.add("queries not sorted best first", "%d", unsorted)
	}
	methods := make([]int, len(*f.names))
	for _, m := range f.method {
		methods[m]++
	}
	for m, n := range methods {
		if n > 0 {
			in.add(fmt.Sprintf("gen_method %.40s", cmp.Or((*f.names)[m], "(not said)")), "%d", n)
		}
	}
	in.unused(f)
}

// forPredict describes a file without a usable trajectory by its queries and pools, which suffice for task=predict. It returns
// false for a file without pools.
func (in *Inspection) forPredict(f *beamFile, rows int, opt Options) bool {
	opt.QueriesOnly = true
	queries, err := readBeams(in.Path, "the path", rows, opt)
	if err != nil || len(queries.ids) == 0 {
		return false
	}
	in.add("queries", "%d", len(queries.ids))
	in.spread("pool size", list.Map(queries.pools, func(pool []int32) float64 { return float64(len(pool)) }))
	in.add("use", "task=predict: no query has a usable trajectory, so no run can train on the file")
	delete(f.counts, "query_without_trajectories")
	in.unused(f)
	return true
}

// unused adds the records of a file that a run would leave out.
func (in *Inspection) unused(f *beamFile) {
	for _, reason := range slices.Sorted(maps.Keys(f.counts)) {
		in.add("not used", "%s (the first: %s)", summary.SkippedText(reason, f.counts[reason]), f.first[reason])
	}
	for _, u := range f.unknown {
		in.add("unknown key", "%s", u)
	}
}

// spread adds min, median, mean and max of values.
func (in *Inspection) spread(name string, values []float64) {
	if len(values) == 0 {
		return
	}
	sorted := slices.Sorted(slices.Values(values))
	in.add(name, "min %.4g, median %.4g, mean %.4g, max %.4g", sorted[0], sorted[len(sorted)/2], stat.Mean(values), sorted[len(sorted)-1])
}
