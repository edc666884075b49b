// Package ledger stores a sweep: its jobs with their overrides, states, attempts and results, in an
// SQLite file in the sweep folder. One process writes it, the sweep's controller, which holds the
// folder's lock; others read. The journal is SQLite's rollback journal with full fsync: it survives a
// kill at any instruction and, unlike a write-ahead log, works on the shared file systems of clusters.
package ledger

import (
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite" // the driver "sqlite": pure Go

	"fulcrum/configs"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/digest"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/regular"
	"fulcrum/reports/record"
	"fulcrum/reports/sweeps"
)

// FileName is the ledger's name in a sweep folder: what makes a folder a sweep.
const FileName = "sweep.db"

// version of the tables.
const version = 3

//go:embed schema.sql
var schema string

// setValue writes a row of the table sweep: version, sweep, and the digests of sweep and of each job.
const setValue = `INSERT OR REPLACE INTO sweep VALUES (?, ?)`

// Sweep is what holds for all jobs.
type Sweep struct {
	Command     []string            `json:"command"`   // argv that repeats the sweep
	Flags       []string            `json:"flags"`     // --config-path and the like, for every job
	Overrides   []string            `json:"overrides"` // as typed, with their sweeps
	Cwd         string              `json:"cwd"`       // where it was started
	Sweeper     string              `json:"sweeper"`   // hydra/sweeper
	Launcher    string              `json:"launcher"`  // hydra/launcher
	Created     time.Time           `json:"created"`
	Program     string              `json:"program"` // version of the program
	Pruner      string              `json:"pruner"`
	Constraints []string            `json:"constraints"`
	Dimensions  []configs.Dimension `json:"dimensions"`      // what is swept
	Objectives  []Objective         `json:"objectives"`      // those that have a name, without values
	Fingerprint string              `json:"fingerprint"`     // of the primary configuration
	Generation  int                 `json:"generation"`      // of the configuration files
	Trials      int                 `json:"trials"`          // that a search makes; 0 = the jobs are known
	Study       *sweeps.Study       `json:"study,omitempty"` // its arms and what it asks; nil: no study
	Ask         *sweeps.Ask         `json:"ask,omitempty"`   // the rule of a study that grows by seeds; nil: it does not
}

// Job is a job's row.
type Job struct {
	Num         int
	Overrides   []string
	Params      []string
	Dir         string
	Fingerprint string
	Generation  int
	State       string
	Attempts    int
	Failures    int
	ExitCode    *int
	Cause       string
	Tail        []string
	Objectives  []Objective // nil when unknown
	Violation   float64
	Metrics     map[string]float64
	Epochs      int
	Seconds     float64
	Arm         string // of a study
	Parent      *int   // number of the job that must be done before this one starts; nil = none
}

// Objective is one number that a job is judged by.
type Objective struct {
	Name     string        `json:"name"` // of the metric
	Value    record.Number `json:"value"`
	Minimize bool          `json:"minimize"` // less is better
}

// Loss returns the value with the sign that makes less better; NaN is worst.
func (o Objective) Loss() float64 {
	v := float64(o.Value)
	switch {
	case math.IsNaN(v):
		return math.Inf(1)
	case o.Minimize:
		return v
	}
	return -v
}

// Ledger is an open sweep.db.
type Ledger struct {
	db   *sql.DB
	path string
}

// Exists reports whether dir is a sweep folder.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, FileName))
	return err == nil
}

// Create makes the ledger of a new sweep with its first jobs, all queued. It appears whole or not at
// all: a kill on the way leaves no sweep.
func Create(dir string, s Sweep, jobs []Job) (*Ledger, error) {
	path := filepath.Join(dir, FileName)
	building := filepath.Join(dir, "."+FileName+".tmp0")            // a name that a claimed folder is cleaned of
	for _, old := range []string{building, building + "-journal"} { // of a controller that was killed here
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	l, err := open(building, "rwc")
	if err != nil {
		return nil, err
	}
	err = l.fill(s, jobs)
	if cerr := l.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(building, path)
	}
	if err != nil {
		os.Remove(building)
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := atomicfile.SyncDir(dir); err != nil {
		return nil, err
	}
	return Open(dir)
}

func (l *Ledger) fill(s Sweep, jobs []Job) error {
	if _, err := l.db.Exec(schema); err != nil {
		return err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	for _, row := range [][2]string{{"version", strconv.Itoa(version)}, {"sweep", string(text)}, {digestKey("sweep"), digest.Of(text)}} {
		if _, err := l.db.Exec(setValue, row[0], row[1]); err != nil {
			return err
		}
	}
	return l.Add(jobs...)
}

// Open opens the ledger of a sweep folder for its controller.
func Open(dir string) (*Ledger, error) { return openChecked(dir, "rw") }

// Read opens the ledger of a sweep folder for reading; a controller may be writing it. Where the file may
// be written, what a killed controller left half done is rolled back.
func Read(dir string) (*Ledger, error) {
	if unix.Access(filepath.Join(dir, FileName), unix.W_OK) == nil && unix.Access(dir, unix.W_OK) == nil {
		return openChecked(dir, "rw")
	}
	return openChecked(dir, "ro")
}

// Load reads a sweep and its jobs at one moment.
func Load(dir string) (Sweep, []Job, error) {
	l, err := Read(dir)
	if err != nil {
		return Sweep{}, nil, err
	}
	defer l.Close()
	s, err := l.Sweep()
	if err != nil {
		return s, nil, err
	}
	jobs, err := l.Jobs()
	return s, jobs, err
}

func openChecked(dir, mode string) (*Ledger, error) {
	path := filepath.Join(dir, FileName)
	if err := regular.Check(path); err != nil {
		return nil, err
	}
	for _, beside := range []string{"-journal", "-wal"} { // SQLite reads what is there
		if err := regular.Check(path + beside); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	l, err := open(path, mode)
	if err != nil {
		return nil, err
	}
	var got string
	if err := l.db.QueryRow(`SELECT value FROM sweep WHERE key = 'version'`).Scan(&got); err != nil {
		l.Close()
		return nil, fmt.Errorf("%s: not a sweep's ledger, or a damaged one: %w", path, err)
	}
	if got != strconv.Itoa(version) {
		l.Close()
		return nil, fmt.Errorf("%s: ledger version %s: this program knows version %d", path, got, version)
	}
	return l, nil
}

func open(path, mode string) (*Ledger, error) {
	options := url.Values{"mode": {mode}, "_pragma": {"busy_timeout(60000)", "synchronous(FULL)"}}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+options.Encode())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	return &Ledger{db: db, path: path}, nil
}

// Close closes the file.
func (l *Ledger) Close() error { return l.db.Close() }

// Sweep returns what holds for all jobs.
func (l *Ledger) Sweep() (Sweep, error) {
	var text string
	var s Sweep
	var sum sql.NullString
	const query = `SELECT value, (SELECT value FROM sweep WHERE key = ?) FROM sweep WHERE key = 'sweep'`
	if err := l.db.QueryRow(query, digestKey("sweep")).Scan(&text, &sum); err != nil {
		return s, l.err(err)
	}
	if sum.String != digest.Of([]byte(text)) {
		return s, l.err(&DamageError{"what holds for all jobs"})
	}
	return s, l.err(jsonwords.Unmarshal([]byte(text), &s))
}

// SetSweep replaces what holds for all jobs: changed configurations were accepted.
func (l *Ledger) SetSweep(s Sweep) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return l.transaction(func(tx *sql.Tx) error {
		if _, err := tx.Exec(setValue, "sweep", string(text)); err != nil {
			return err
		}
		_, err := tx.Exec(setValue, digestKey("sweep"), digest.Of(text))
		return err
	})
}

// Add appends jobs in one transaction, in the state they have ("" is queued).
func (l *Ledger) Add(jobs ...Job) error {
	return l.transaction(func(tx *sql.Tx) error {
		insert, err := tx.Prepare(`INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
		if err != nil {
			return err
		}
		defer insert.Close()
		for _, j := range jobs {
			if j.State == "" {
				j.State = launcher.Queued
			}
			j.Generation = max(j.Generation, 1)
			values, err := j.columns()
			if err != nil {
				return err
			}
			if _, err := insert.Exec(values...); err != nil {
				return fmt.Errorf("job %d (folder %s): %w", j.Num, j.Dir, err)
			}
			if err := j.seal(tx); err != nil {
				return err
			}
		}
		return nil
	})
}

// Update writes a job's row anew.
func (l *Ledger) Update(jobs ...Job) error {
	return l.transaction(func(tx *sql.Tx) error {
		for _, j := range jobs {
			if err := j.update(tx); err != nil {
				return err
			}
		}
		return nil
	})
}

func (j Job) update(tx *sql.Tx) error {
	values, err := j.columns()
	if err != nil {
		return err
	}
	result, err := tx.Exec(`UPDATE jobs SET overrides = ?, params = ?, dir = ?, fingerprint = ?, generation = ?, state = ?,
		attempts = ?, failures = ?, exit_code = ?, cause = ?, tail = ?, objectives = ?, violation = ?, metrics = ?,
		epochs = ?, seconds = ?, arm = ?, parent = ? WHERE num = ?`,
		append(values[1:], j.Num)...)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return errors.Join(fmt.Errorf("job %d is not in the ledger", j.Num), err)
	}
	return j.seal(tx)
}

// Record writes a job's row and one of its attempts together.
func (l *Ledger) Record(j Job, a launcher.Attempt) error {
	return l.transaction(func(tx *sql.Tx) error {
		if err := j.update(tx); err != nil {
			return err
		}
		if a.Try == 0 { // it never came to one: cancelled while it waited
			return nil
		}
		_, err := tx.Exec(`INSERT OR REPLACE INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			a.Num, a.Try, a.State, a.ID, a.Host, stamp(a.Started), stamp(a.Ended), a.ExitCode, a.Cause, a.Resumed)
		return err
	})
}

// Jobs returns all jobs in the order of their numbers. A row that is not what was written is a DamageError.
func (l *Ledger) Jobs() (jobs []Job, err error) {
	err = l.transaction(func(tx *sql.Tx) error { // one moment for rows and digests
		if jobs, err = jobsIn(tx); err != nil {
			return err
		}
		return checkSeals(tx, jobs)
	})
	return jobs, err
}

func jobsIn(tx *sql.Tx) ([]Job, error) {
	rows, err := tx.Query(`SELECT * FROM jobs ORDER BY num`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var jobs []Job
	for rows.Next() {
		var j Job
		var overrides, params, tail, objectives, metrics string
		if err := rows.Scan(&j.Num, &overrides, &params, &j.Dir, &j.Fingerprint, &j.Generation, &j.State, &j.Attempts, &j.Failures, &j.ExitCode,
			&j.Cause, &tail, &objectives, &j.Violation, &metrics, &j.Epochs, &j.Seconds, &j.Arm, &j.Parent); err != nil {
			return nil, fmt.Errorf("%w: %w", &DamageError{fmt.Sprintf("a row behind that of job %d", len(jobs)-1)}, err)
		}
		named := map[string]record.Number{}
		if err := errors.Join(jsonwords.Unmarshal([]byte(overrides), &j.Overrides), jsonwords.Unmarshal([]byte(params), &j.Params),
			jsonwords.Unmarshal([]byte(tail), &j.Tail), jsonwords.Unmarshal([]byte(objectives),
				&j.Objectives), jsonwords.Unmarshal([]byte(metrics), &named)); err != nil {
			return nil, fmt.Errorf("%w: %w", &DamageError{fmt.Sprintf("job %d", j.Num)}, err)
		}
		j.Metrics = map[string]float64{}
		for name, v := range named {
			j.Metrics[name] = float64(v)
		}
		jobs = append(jobs, j)
	}
	return jobs, rows.Err()
}

// Attempts returns the attempts of a job, first to last.
func (l *Ledger) Attempts(num int) ([]launcher.Attempt, error) {
	rows, err := l.db.Query(`SELECT num, try, state, launcher_id, host, started, ended, exit_code, cause, resumed
		FROM attempts WHERE num = ? ORDER BY try`, num)
	if err != nil {
		return nil, l.err(err)
	}
	defer rows.Close()
	var all []launcher.Attempt
	for rows.Next() {
		var a launcher.Attempt
		var started, ended string
		if err := rows.Scan(&a.Num, &a.Try, &a.State, &a.ID, &a.Host, &started, &ended, &a.ExitCode, &a.Cause, &a.Resumed); err != nil {
			return nil, l.err(err)
		}
		a.Started, a.Ended = moment(started), moment(ended)
		all = append(all, a)
	}
	return all, l.err(rows.Err())
}

func (l *Ledger) transaction(f func(tx *sql.Tx) error) error {
	tx, err := l.db.Begin()
	if err != nil {
		return l.err(err)
	}
	defer tx.Rollback() // after Commit it does nothing
	if err := f(tx); err != nil {
		return l.err(err)
	}
	return l.err(tx.Commit())
}

func (l *Ledger) err(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", l.path, err)
}
