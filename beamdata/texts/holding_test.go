package texts

import (
	"os"
	"path/filepath"
	"testing"

	"fulcrum/beamdata/conversation"
)

// Every record has a target; groups are counted, and columns that are nearly completions are named.
func TestWhatRecordsHold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl")
	text := `{"document":"a","summary":"b","id":1,"completions":[{"text":"x","reward":1},{"text":"y","reward":0}]}
{"document":"a","summary":"b","completion":[{"text":"x","reward":1},{"text":"y","reward":0}],"title":"t"}
{"document":"a","summary":"b","completions":[{"text":"x","reward":1}]}
`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	opt := DefaultOptions()
	opt.Test = &path
	b, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	if all, skipped, err := b.Eval.With(conversation.Target); all != b.Eval || skipped != nil || err != nil {
		t.Errorf("targets: %d samples, skipped %v (%v)", all.Len(), skipped, err)
	}
	groups, skipped, err := b.Eval.With(conversation.Group)
	if err != nil || groups.Len() != 1 || len(skipped) != 1 || skipped[0].String() != "2 records with fewer than "+
		"two completions (records 2, 3)" {
		t.Errorf("groups: %d samples, skipped %v (%v)", groups.Len(), skipped, err)
	}
	if len(b.Unknown) != 1 || b.Unknown[0].String() != `x.jsonl: unknown key "completion" in 1 record, in line 2: did you `+
		`mean completions? It is not read` {
		t.Errorf("unknown keys %v", b.Unknown)
	}
}
