package ledger

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fulcrum/internal/digest"
	"fulcrum/reports/record"
)

// DamageError says that the ledger does not hold what was written to it.
type DamageError struct{ What string }

func (e *DamageError) Error() string {
	return "the ledger is damaged: " + e.What +
		" is not as it was written; put back a copy of the file (the jobs' own folders hold their results)"
}

// digestKey returns the key, in the table sweep, of the digest of something.
func digestKey(of string) string { return "sha256 of " + of }

func (j Job) name() string { return fmt.Sprintf("job %d", j.Num) }

// digest returns the SHA-256 of the job's row.
func (j Job) digest() (string, error) {
	values, err := j.columns()
	if err != nil {
		return "", err
	}
	for i, v := range values {
		if x, ok := v.(float64); ok {
			values[i] = record.Number(x)
		}
	}
	text, err := json.Marshal(values)
	return digest.Of(text), err
}

// seal writes the digest of a job's row, in the transaction that writes the row.
func (j Job) seal(tx *sql.Tx) error {
	sum, err := j.digest()
	if err != nil {
		return err
	}
	_, err = tx.Exec(setValue, digestKey(j.name()), sum)
	return err
}

// checkSeals compares the rows with their digests.
func checkSeals(tx *sql.Tx, jobs []Job) error {
	rows, err := tx.Query(`SELECT key, value FROM sweep WHERE key LIKE ?`, digestKey("job ")+"%")
	if err != nil {
		return err
	}
	defer rows.Close()
	sums := map[string]string{}
	for rows.Next() {
		var key, sum string
		if err := rows.Scan(&key, &sum); err != nil {
			return err
		}
		sums[key] = sum
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, j := range jobs {
		key := digestKey(j.name())
		sum, err := j.digest()
		if err != nil {
			return err
		}
		if sums[key] != sum {
			return &DamageError{j.name()}
		}
		delete(sums, key)
	}
	if len(sums) > 0 {
		gone := slices.Sorted(maps.Keys(sums))[0]
		return &DamageError{strings.TrimPrefix(gone, digestKey("")) + ", whose row is gone,"}
	}
	return nil
}
