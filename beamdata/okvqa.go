package beamdata

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/beamdata/split"
	"fulcrum/internal/option"
)

// okvqaData reads a folder of the OK-VQA beam data.
func okvqaData() Dataset {
	return Dataset{
		Name:  "okvqa",
		Reads: append([]string{"root", "shots", "val_ratio"}, beamKeys...),
		Files: func(o Options) []*string { return []*string{o.Root} },
		Check: func(o Options) error {
			return errors.Join(
				option.Want(o.Root != nil || o.Reader != nil && o.Embeddings != nil, "root",
					"data=okvqa needs the folder of its files, data.root=DIR, or data.reader=FILE.npz with data.embeddings=FILE; "+
						"for beams of your own take data=beams"),
				option.Want(o.Shots == 2 || o.Shots == 4, "shots", "okvqa has files for 2 and 4 shots, got %d", o.Shots),
			)
		},
		sets: (*loader).okvqa,
	}
}

// okvqa loads a folder of the OK-VQA beam data. Queries and pools come from reader_train.npz, RCE's
// targets from beams_train_<S>shot.json, recorded groups from rl_train_<S>shot.json; val_ratio of the
// train queries validate (whole images), in none of the training sets; the dev files evaluate.
//
// Demonstrations of all queries are train rows, validation queries' among them: their questions and
// answers can be shown as examples, as at test time, but their rewards are never trained on.
func (l *loader) okvqa() error {
	opt, b := l.opt, l.bundle
	root := option.Or(opt.Root, "")
	if root != "" {
		if info, err := os.Stat(root); err != nil || !info.IsDir() {
			return fmt.Errorf("data.root=%s: no such folder: give the folder that holds reader_train.npz and embeddings.npy", root)
		}
	}
	table := l.either(opt.Embeddings, "embeddings.npy", "embeddings.pt")
	if err := l.open(cmp.Or(table, filepath.Join(root, "embeddings.npy"))); err != nil {
		return err
	}
	readerPath := cmp.Or(l.either(opt.Reader, "reader_train.npz"), filepath.Join(root, "reader_train.npz"))
	reader, err := readReader(readerPath, "data.reader (or data.root)", l.table.Rows)
	if err != nil {
		return err
	}
	if err := l.loadItems(readerPath, option.Or(opt.Eval.Reader, "")); err != nil {
		return err
	}
	l.addAnswers(reader)
	if l.table.Dim == 768 && opt.Embeddings == nil { // the folder's own table: 512 columns of the question, 256 of the picture's tags
		b.Features = []string{"similarity", "similarity_0_512", "similarity_512_768", "rank", "agreement_0", "agreement_10", "agreement_30",
			"annotators", "crowding_mean", "crowding_max", "question_overlap", "tag_overlap", "answer_in_tags", "chosen_similarity",
			"chosen_answers"}
	}

	shots := fmt.Sprintf("_%dshot.json", opt.Shots)
	beams, err := l.optional(opt.Beams, "beams_train"+shots, "data.beams")
	if err != nil {
		return err
	}
	records, err := l.optional(opt.Records, "rl_train"+shots, "data.records")
	if err != nil {
		return err
	}
	base, err := l.readerSet("train", reader, beams)
	if err != nil {
		return err
	}
	groups := base
	if records != nil {
		if groups, err = l.readerSet("records", reader, records); err != nil {
			return err
		}
	}
	b.Shots = opt.Shots
	for _, f := range []*beamFile{beams, records} {
		if f != nil && f.shots != 0 && f.shots != b.Shots {
			return fmt.Errorf("%s: candidates of %d picks, but data.shots=%d", f.path, f.shots, b.Shots)
		}
	}

	b.findBlank(reader.IDs)
	val := split.ByImage(reader.IDs, b.image, opt.ValRatio, opt.SplitSeed)
	held := func(i int) bool { return val[base.IDs[i]] }
	b.All = base.named("all")
	b.Val = base.Filter(held).named("val")
	b.Online = l.limit(base.Filter(func(i int) bool { return !held(i) })).named("online")
	if beams != nil {
		b.RCE = l.limit(base.Filter(func(i int) bool { return !held(i) && base.NumCandidates(i) > 0 })).named("rce")
	}
	if records != nil {
		b.Records = l.limit(groups.Filter(func(i int) bool { return !held(i) && groups.NumCandidates(i) > 0 })).named("records")
	} else {
		b.Records = b.RCE
	}
	b.Notice = "real OK-VQA questions; rewards come from a small open-book copy reader, not from a vision-language model"
	heldBeams := option.Or(opt.Eval.Beams, "")
	if opt.Eval.Reader == nil { // the folder's beams are of its own table's queries
		heldBeams = l.either(opt.Eval.Beams, "beams_dev"+shots)
	}
	heldReader := l.either(opt.Eval.Reader, "reader_dev.npz")
	if len(l.absent) > 0 {
		b.Notice += "; not in data.root: " + strings.Join(l.absent, ", ")
	}
	return l.eval(heldBeams, heldReader)
}

// either returns the explicit path, else that of the first of names that the root holds; "" if it holds none.
func (l *loader) either(explicit *string, names ...string) string {
	if explicit != nil || l.opt.Root == nil {
		return option.Or(explicit, "")
	}
	for _, name := range names {
		path := filepath.Join(*l.opt.Root, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	l.absent = append(l.absent, names[0])
	return ""
}

// optional reads a beam file if it is named or lies in the root; else it returns nil.
func (l *loader) optional(explicit *string, name, key string) (*beamFile, error) {
	path := l.either(explicit, name)
	if path == "" {
		return nil, nil
	}
	return l.read(path, key)
}

// limit keeps the first max_samples queries.
func (l *loader) limit(s *Set) *Set {
	n := l.opt.MaxSamples
	if n == nil || s.Len() <= *n {
		return s
	}
	return s.Subset(Spread(*n, *n))
}

// loadItems reads items*.jsonl and reader_prior.json of the root and beside the given files. Texts are
// optional; a file that exists must be sound.
func (l *loader) loadItems(paths ...string) error {
	folders := []string{}
	for _, dir := range slices.Concat([]string{option.Or(l.opt.Root, "")}, paths, []string{option.Or(l.opt.Sealed, "")}) {
		if dir == "" {
			continue
		}
		if dir != option.Or(l.opt.Root, "") {
			dir = filepath.Dir(dir)
		}
		if !slices.Contains(folders, filepath.Clean(dir)) {
			folders = append(folders, filepath.Clean(dir))
		}
	}
	items := &Items{}
	for _, dir := range folders {
		files, _ := fs.Glob(os.DirFS(dir), "items*.jsonl")
		for _, name := range files {
			outside, unknown, err := items.readItems(filepath.Join(dir, name), l.opt.Cluster, l.table.Rows)
			if err != nil {
				return err
			}
			if outside > 0 {
				l.bundle.Counts["item_outside_the_embeddings"] += outside
			}
			l.bundle.Unknown = append(l.bundle.Unknown, unknown...)
			l.bundle.Items = items
		}
		if l.prior != nil {
			continue
		}
		prior, err := readPrior(filepath.Join(dir, "reader_prior.json"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		l.prior = prior
	}
	return nil
}

// addAnswers gives a reader the texts that VQA accuracy needs, where they are known.
func (l *loader) addAnswers(r *Reader) {
	if l.answers == nil && l.prior != nil && l.bundle.Items != nil {
		l.answers = newAnswers(l.bundle.Items, l.prior)
	}
	if !r.withAnswers(l.answers) {
		l.bundle.Counts["reader_without_answers"]++
	}
}
