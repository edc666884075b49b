package icl

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fulcrum/experiments/lvlm"
	"fulcrum/experiments/lvlm/store"
	"fulcrum/internal/torchx"
)

// TestMain is also the process that TestKills kills: a search of toyQueries queries over a store.
func TestMain(m *testing.M) {
	if dir := os.Getenv("ICL_TEST_DIR"); dir != "" {
		if err := killed(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if err := torchx.Load(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

const (
	toyQueries = 12
	inFlight   = 4 // prompts of a batch
)

// slowToy takes its time and writes down what it was asked: a byte a prompt.
type slowToy struct {
	toy
	asked *os.File
}

func (s *slowToy) Score(ctx context.Context, prompts []lvlm.Prompt) ([]lvlm.Likelihood, error) {
	if _, err := s.asked.WriteString(strings.Repeat(".", len(prompts))); err != nil {
		return nil, err
	}
	time.Sleep(200 * time.Microsecond)
	return s.toy.Score(ctx, prompts)
}

func killed(dir string) error {
	asked, err := os.OpenFile(filepath.Join(dir, "asked"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	kept, opt := filepath.Join(dir, "store"), lvlm.DefaultOptions()
	opt.Store, opt.Batch = &kept, inFlight
	scorer, err := lvlm.Open(context.Background(), opt, func() (lvlm.Scorer, error) { return &slowToy{asked: asked}, nil })
	if err != nil {
		return err
	}
	return searchAll(scorer, filepath.Join(dir, "beams.json"))
}

// searchAll writes the beams of the toy's queries.
func searchAll(scorer lvlm.Scorer, out string) error {
	s := &Search{Scorer: scorer, Records: toyRecords(toyQueries + 14), BeamsOptions: BeamsOptions{Score: "infoscore", Order: "right",
		Answer: "majority", Shots: 2, Width: 5}}
	var queries []int
	var all [][]Beam
	for i := range toyQueries {
		var pool []int32
		for k := range 14 {
			pool = append(pool, int32(toyQueries+k))
		}
		beams, _, err := s.Beams(context.Background(), i, pool)
		if err != nil {
			return err
		}
		queries, all = append(queries, i), append(all, beams)
	}
	return WriteBeams(out, nil, queries, all)
}

// killAt kills a process as soon as a file is longer than so many bytes, unless it ends before.
func killAt(cmd *exec.Cmd, path string, size int64, end chan error) {
	for len(end) == 0 {
		if info, err := os.Stat(path); err == nil && info.Size() > size {
			_ = cmd.Process.Kill() // it may have ended
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// TestKills: a search that is killed again and again ends with the beams of one that never was, nothing that was answered is asked
// again but what was in flight, and nothing is lost.
func TestKills(t *testing.T) {
	kills := 100
	if testing.Short() {
		kills = 15
	}
	dir, want := t.TempDir(), filepath.Join(t.TempDir(), "beams.json")
	if err := searchAll(&toy{}, want); err != nil {
		t.Fatal(err)
	}
	asked, kept := 0, 0
	count := func() (int, int) {
		text, err := os.ReadFile(filepath.Join(dir, "asked"))
		if err != nil {
			return 0, 0 // killed before it asked anything
		}
		s, err := store.Open(filepath.Join(dir, "store"))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return len(text), s.Len()
	}
	ended, worked := 0, 0
	for i := 0; i < kills || ended == 0; i++ {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "ICL_TEST_DIR="+dir)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		end := make(chan error, 1)
		go func() { end <- cmd.Wait() }()
		if i < kills { // by what it asks: a clock would not know how fast the machine is
			killAt(cmd, filepath.Join(dir, "asked"), int64(asked-4+rand.IntN(1800/kills)), end)
		}
		err := <-end
		if err == nil {
			ended++
		} else if cmd.ProcessState.Exited() {
			t.Fatal(err)
		}
		nowAsked, nowKept := count()
		again := nowAsked - asked - (nowKept - kept)
		if again < 0 || again > inFlight || err == nil && again != 0 {
			t.Fatalf("life %d: %d prompts asked, %d kept", i, nowAsked-asked, nowKept-kept)
		}
		if nowKept > kept && nowKept < 1000 {
			worked++
		}
		asked, kept = nowAsked, nowKept
	}
	if worked < 3 {
		t.Errorf("only %d lives did a part of the work: the kills come at the wrong moments", worked)
	}
	got, err := os.ReadFile(filepath.Join(dir, "beams.json"))
	if err != nil {
		t.Fatal(err)
	}
	if expected, _ := os.ReadFile(want); !slices.Equal(got, expected) {
		t.Error("other beams than those of a search that was never killed")
	}
	t.Logf("%d lives, %d of them did a part; %d prompts asked, %d kept", kills+1, worked, asked, kept)
}
