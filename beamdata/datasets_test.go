package beamdata

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/beamdata/conversation"
	"fulcrum/internal/option"
	"fulcrum/internal/testkit/golden"
)

// Every entry can be read by some policy, is a choice of data.name, and has its file in the library of configurations.
func TestEveryDataset(t *testing.T) {
	for _, d := range Datasets() {
		if d.sets == nil && d.Conversations == nil {
			t.Errorf("%s: no policy reads it", d.Name)
		}
		if !slices.Contains(DefaultOptions().Choices()["name"], d.Name) {
			t.Errorf("%s is no choice of data.name", d.Name)
		}
		text, err := os.ReadFile(filepath.Join(golden.RepoRoot(), "configs", "conf", "data", d.Name+".yaml"))
		if err != nil || !strings.Contains(string(text), "name: "+d.Name) && d.Name != DefaultOptions().Name {
			t.Errorf("%s: data=%s does not choose it: %v", d.Name, d.Name, err)
		}
		opt := DefaultOptions()
		if opt.Name = d.Name; d.Check != nil && opt.Validate() == nil {
			t.Errorf("%s: no key is missing from the defaults, but it has a check", d.Name)
		}
		if d.sets == nil {
			opt.Root = new(string)
			if _, err := Load(opt); err == nil {
				t.Errorf("%s: the selector of examples reads it", d.Name)
			}
		}
		if d.Conversations == nil {
			if _, err := LoadConversations(opt); err == nil {
				t.Errorf("%s: a token policy reads it", d.Name)
			}
		}
	}
}

// A data set is one entry: it is loaded, validated and named among the choices, for both kinds of policies.
func TestToyDataset(t *testing.T) {
	toy := Dataset{
		Name:  "toy",
		Check: func(o Options) error { return option.Want(o.Root != nil, "root", "the toy needs data.root") },
		sets: func(l *loader) (err error) {
			table := NewTable(3, 2, []float32{1, 0, 0, 1, 1, 1})
			l.bundle.RCE, err = NewSet("toy", table, 1, []Query{{ID: 0, Pool: []int32{1, 2}, Candidates: [][]int32{{1}},
				Rewards: []float64{0.5}}}, nil)
			return err
		},
		Conversations: func(o Options) (*conversation.Bundle, error) {
			return nil, errors.New("conversations of the toy in " + *o.Root)
		},
	}
	opt := DefaultOptions()
	opt.Name, opt.More = "toy", []Dataset{toy}
	if _, err := Load(opt); err == nil || err.Error() != "root: the toy needs data.root" {
		t.Errorf("without its key: %v", err)
	}
	root := "here"
	opt.Root = &root
	b, err := Load(opt)
	if err != nil || b.RCE.Len() != 1 || b.RCE.Candidate(0, 0).Reward != 0.5 || b.Fingerprint == "" {
		t.Errorf("got %+v, %v", b, err)
	}
	if _, err := LoadConversations(opt); err == nil || err.Error() != "conversations of the toy in here" {
		t.Errorf("as conversations: %v", err)
	}
	opt.Name = "toys"
	if _, err := opt.validate(); err == nil || !strings.Contains(err.Error(), "did you mean toy?") {
		t.Errorf("another name: %v", err)
	}
	if _, err := Load(opt); err == nil {
		t.Error("an unknown name is loaded")
	}
}
