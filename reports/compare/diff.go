package compare

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/program"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// Kinds of what Diff compares.
const (
	DiffRun    = "run"
	diffSweep  = "sweep"
	diffConfig = "config file"
)

// DiffSide is one of the two things that Diff compares.
type DiffSide struct {
	DiffPath
	Jobs  []DiffJob         // of a sweep
	Swept map[string]string // of a sweep: what is swept and how, by key

	config   map[string]string // dotted key → value, as .hydra/config.yaml has it: interpolations unresolved
	hydra    map[string]string // the hydra node, likewise
	resolved map[string]string // the numbers that interpolations stood for
	summary  *record.Summary   // nil before a run has ended
}

// DiffJob is a job of a sweep: two jobs are counterparts when their parameters are equal.
type DiffJob struct {
	Params string // "lr=0.1 seed=2"
	Dir    string
}

// Difference is one thing that is not the same on both sides; nil where a side has no such thing.
type Difference struct {
	Key  string  `json:"key"`
	A    *string `json:"a"`
	B    *string `json:"b"`
	Via  string  `json:"via,omitempty"`  // the key that a link of A's or B's leads to
	Jobs int     `json:"jobs,omitempty"` // of a sweep: pairs of jobs that differ so; 0: the sweep itself
}

// Diff says what differs between two runs, two sweeps or two config files. Settings, Data and Code are what a
// computation depends on. Elsewhere are keys that say where and how it is recorded and watched: they change no
// result.
type Diff struct {
	A         DiffPath     `json:"a"`
	B         DiffPath     `json:"b"`
	Same      bool         `json:"same"` // settings, data and code, as far as they are known
	Settings  []Difference `json:"settings"`
	Data      []Difference `json:"data"`
	Code      []Difference `json:"code"`
	Elsewhere []Difference `json:"elsewhere"`
	OnlyA     []string     `json:"only_a,omitempty"` // jobs without a counterpart, by their parameters
	OnlyB     []string     `json:"only_b,omitempty"`
	Unknown   []string     `json:"unknown,omitempty"` // what could not be compared: sentences

	unfinished int // pairs of runs of which one has not ended: it has no summary.json yet
}

// DiffPath names a side.
type DiffPath struct {
	Path  string `json:"path"`
	Kind  string `json:"kind"`            // DiffRun, diffSweep or diffConfig
	State string `json:"state,omitempty"` // of a run or sweep, in words; "" for a config file
}

// ReadDiffRun reads a run folder, finished or not.
func ReadDiffRun(dir string) (DiffSide, error) {
	side := DiffSide{DiffPath: DiffPath{dir, DiffRun, "not ended"}}
	var err error
	if side.summary, err = record.ReadSummary(dir); err != nil {
		return side, err
	}
	if side.summary != nil {
		side.State = side.summary.State
	}
	if side.config, err = record.FlatFile(filepath.Join(dir, ".hydra", "config.yaml")); err != nil { // with its links, which are shown
		return side, err
	}
	if side.resolved, err = record.FlatFile(filepath.Join(dir, record.ResolvedFile)); err != nil {
		return side, err
	}
	side.hydra, err = record.FlatFile(filepath.Join(dir, ".hydra", "hydra.yaml"))
	return side, err
}

// ReadDiffConfig reads a config file: the one of a run or sweep, or one that runs are composed from.
func ReadDiffConfig(path string) (DiffSide, error) {
	side := DiffSide{DiffPath: DiffPath{path, diffConfig, ""}}
	if ext := filepath.Ext(path); ext != ".yaml" && ext != ".yml" {
		return side, fmt.Errorf("%s: want a config file (.yaml), or a run or sweep folder", path)
	}
	flat, err := record.FlatFile(path)
	side.config, side.hydra = splitHydra(flat)
	return side, err
}

// ReadDiffSweep makes the side of a sweep out of its primary config file and what its ledger tells: the state
// in words, what is swept, and the jobs.
func ReadDiffSweep(dir, config, state string, swept map[string]string, jobs []DiffJob) (DiffSide, error) {
	side := DiffSide{DiffPath: DiffPath{dir, diffSweep, state}, Swept: swept, Jobs: jobs}
	flat, err := record.FlatFile(config)
	side.config, side.hydra = splitHydra(flat)
	return side, err
}

func splitHydra(flat map[string]string) (config, hydra map[string]string) {
	config, hydra = map[string]string{}, map[string]string{}
	for key, value := range flat {
		if strings.HasPrefix(key, "hydra.") {
			hydra[key] = value
		} else {
			config[key] = value
		}
	}
	return config, hydra
}

// DiffOf compares two sides.
func DiffOf(a, b DiffSide) (Diff, error) {
	d := Diff{A: a.DiffPath, B: b.DiffPath}
	if a.Kind != b.Kind {
		for _, side := range []*DiffSide{&a, &b} {
			if side.Kind == diffSweep {
				d.unknown("%s is a sweep and has no one configuration: compared is what its jobs share, and what they differ in counts; "+
					"for one job name its folder, such as %s", side.Path, program.Quoted(filepath.Join(side.Path, "0")))
				side.vary()
			}
		}
	}
	d.settings(a, b)
	switch {
	case a.Kind == DiffRun && b.Kind == DiffRun:
		d.results(a, b)
		if d.unfinished > 0 {
			d.unknown("data and code are not compared: a run records them when it ends")
		}
	case a.Kind == diffSweep && b.Kind == diffSweep:
		for _, one := range differences(a.Swept, b.Swept) {
			if watches(one.Key) {
				d.Elsewhere = append(d.Elsewhere, one)
			} else {
				d.Settings = append(d.Settings, one)
			}
		}
		if err := d.jobs(a, b); err != nil {
			return d, err
		}
	case a.Kind != b.Kind:
		d.unknown("data and code are not compared: %s is a %s, %s a %s", a.Path, a.Kind, b.Path, b.Kind)
	}
	d.Same = len(d.Settings)+len(d.Data)+len(d.Code)+len(d.OnlyA)+len(d.OnlyB) == 0
	for _, list := range []*[]Difference{&d.Settings, &d.Data, &d.Code, &d.Elsewhere} {
		slices.SortStableFunc(*list, func(x, y Difference) int { return strings.Compare(x.Key, y.Key) })
		if *list == nil {
			*list = []Difference{} // JSON: an empty list, not null
		}
	}
	return d, nil
}

// vary gives the keys that the jobs of a sweep differ in all of their values.
func (s *DiffSide) vary() {
	for key, values := range s.Swept {
		key, ok := strings.CutPrefix(key, "sweep.")
		if ok && !slices.Contains([]string{"sweeper", "pruner", "trials", "constraints"}, key) {
			s.config[key] = values + " (one a job)"
		}
	}
}

func (d *Diff) unknown(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); !slices.Contains(d.Unknown, s) {
		d.Unknown = append(d.Unknown, s)
	}
}

// settings compares the configurations and sorts their differences into those that change what is computed
// and the others.
func (d *Diff) settings(a, b DiffSide) {
	sameData := a.summary != nil && b.summary != nil && a.summary.Data.Fingerprint != "" &&
		a.summary.Data.Fingerprint == b.summary.Data.Fingerprint
	left, via := a.linked()
	right, viaB := b.linked()
	for _, one := range differences(left, right) {
		if one.B == nil && a.Kind == diffSweep && b.Kind == DiffRun || one.A == nil && a.Kind == DiffRun && b.Kind == diffSweep {
			continue // the file of a sweep has what this run does not read, too
		}
		one.Via = cmp.Or(via[one.Key], viaB[one.Key])
		file := locatesData(one.Key, left["data.name"])
		switch {
		case watches(one.Key), file && sameData:
			d.Elsewhere = append(d.Elsewhere, one)
		case file:
			d.Data = append(d.Data, one)
		default:
			d.Settings = append(d.Settings, one)
		}
	}
	for _, one := range differences(a.hydra, b.hydra) {
		if one.A != nil && one.B != nil && !repeats(one.Key) { // a rerun's node lacks the defaults that nobody read
			d.Elsewhere = append(d.Elsewhere, one)
		}
	}
}

// watches reports whether a key says where a run is recorded or how it is watched, and so changes no result.
func watches(key string) bool { return unhashed(key) || strings.HasSuffix(key, ".out") }

// unhashed reports whether a key is left out of a configuration's hash.
func unhashed(key string) bool {
	return record.ChangesNoResult(key) || strings.HasPrefix(key+".", "vars.") || key == "predict.out"
}

// locatesData reports whether a key names a file whose content the data's fingerprint covers: the same content
// in another place is the same data. The images below data.root of conversations are not part of it.
func locatesData(key, name string) bool {
	switch key {
	case "data.beams", "data.embeddings", "data.reader", "data.val_beams", "data.records", "data.eval.beams", "data.eval.reader",
		"data.conversations.train", "data.conversations.val", "data.conversations.eval", "data.conversations.sft",
		"data.conversations.demos":
		return true
	case "data.root":
		return name != "conversations"
	}
	return false
}

// repeats reports whether a key of the hydra node only repeats what is compared elsewhere (the overrides and
// the chosen options become config keys), or is another in any two runs (a job's number).
func repeats(key string) bool {
	return slices.ContainsFunc([]string{
		"hydra.overrides", "hydra.runtime.choices", "hydra.runtime.config_sources", "hydra.runtime.output_dir",
		"hydra.job.num", "hydra.job.id", "hydra.job.override_dirname",
	}, func(section string) bool { return key == section || strings.HasPrefix(key, section+".") })
}

// results compares the data and the code of two runs that have ended.
func (d *Diff) results(a, b DiffSide) {
	if a.summary == nil || b.summary == nil {
		d.unfinished++
		return
	}
	d.Data = append(d.Data, differences(dataFacts(a.summary), dataFacts(b.summary))...)
	d.Code = append(d.Code, differences(codeFacts(a.summary), codeFacts(b.summary))...)
	hashA, hashB := a.summary.Versions["config"], b.summary.Versions["config"]
	hashed := func(one Difference) bool { return !unhashed(one.Key) }
	left, _ := a.linked()
	right, _ := b.linked()
	if hashA != "" && hashB != "" && hashA != hashB && !slices.ContainsFunc(differences(left, right), hashed) {
		d.Settings = append(d.Settings, Difference{Key: "(resolved values)", A: &hashA, B: &hashB})
		d.unknown("the keys are the same and the hashes of the resolved configurations are not: a key reads something that has changed, " +
			"such as an environment variable")
	}
}

// dataFacts are what a run recorded of its data.
func dataFacts(s *record.Summary) map[string]string {
	facts := map[string]string{"fingerprint": s.Data.Fingerprint}
	for name, digest := range s.Data.Scripts {
		facts["rewards."+name] = digest
	}
	for name, n := range s.Data.Counts {
		facts["counts."+name] = strconv.Itoa(n)
	}
	for reason, n := range s.Data.Skipped {
		facts["skipped."+reason] = strconv.Itoa(n)
	}
	return facts
}

// codeFacts are the versions of everything that computed a run, and the machine it ran on.
func codeFacts(s *record.Summary) map[string]string {
	facts := map[string]string{"device": s.Device, "threads": strconv.Itoa(s.Threads)}
	for name, version := range s.Versions {
		if name != "config" { // the hash of the settings
			facts[name] = version
		}
	}
	return facts
}

// jobs pairs the jobs of two sweeps by their parameters and adds what differs between the pairs and is not
// already told of the sweeps, each difference once.
func (d *Diff) jobs(a, b DiffSide) error {
	others := map[string][]DiffJob{}
	for _, job := range b.Jobs {
		others[job.Params] = append(others[job.Params], job)
	}
	var in Diff // of all pairs
	for _, job := range a.Jobs {
		if len(others[job.Params]) == 0 {
			d.OnlyA = append(d.OnlyA, job.Params)
			continue
		}
		other := others[job.Params][0]
		others[job.Params] = others[job.Params][1:]
		left, err := ReadDiffRun(job.Dir)
		if err != nil {
			return err
		}
		right, err := ReadDiffRun(other.Dir)
		if err != nil {
			return err
		}
		in.settings(left, right)
		in.results(left, right)
	}
	for _, job := range b.Jobs {
		if rest := others[job.Params]; len(rest) > 0 && rest[0] == job {
			others[job.Params] = rest[1:]
			d.OnlyB = append(d.OnlyB, job.Params)
		}
	}
	add := func(to *[]Difference, from []Difference) {
		for _, one := range collect(from) {
			if !slices.ContainsFunc(*to, func(had Difference) bool { return had.Jobs == 0 && same(had, one) }) {
				*to = append(*to, one)
			}
		}
	}
	add(&d.Settings, in.Settings)
	add(&d.Data, in.Data)
	add(&d.Code, in.Code)
	for _, s := range in.Unknown {
		d.unknown("%s", s)
	}
	if in.unfinished > 0 {
		d.unknown("data and code of %s are not compared: a run records them when it ends", page.Plural(in.unfinished, "pair")+" of jobs")
	}
	return nil
}

// collect counts equal differences of pairs of jobs.
func collect(list []Difference) []Difference {
	var out []Difference
	for _, one := range list {
		at := slices.IndexFunc(out, func(had Difference) bool { return same(had, one) })
		if at < 0 {
			out = append(out, one)
			at = len(out) - 1
		}
		out[at].Jobs++
	}
	return out
}

func same(x, y Difference) bool { return x.Key == y.Key && equal(x.A, y.A) && equal(x.B, y.B) }

func equal(x, y *string) bool { return x == y || x != nil && y != nil && *x == *y }

// differences lists the keys whose values are not the same, in order.
func differences(a, b map[string]string) []Difference {
	return list.Map(Differing([]map[string]string{a, b}), func(s Setting) Difference {
		return Difference{Key: s.Key, A: s.Values[0], B: s.Values[1]}
	})
}
