package lvlm_test

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fulcrum/experiments/lvlm"
	"fulcrum/experiments/lvlm/store"
)

// killing kills a loop again and again.
type killing struct {
	*testing.T
	draw   *rand.Rand
	args   func(dir string) []string
	folder string         // where its runs lie
	hit    map[string]int // kills by the stage that was at work; "": between two of them
	lives  int
}

// life begins a run, or goes on with it.
func (k *killing) life(dir string) *process {
	k.lives++
	args := k.args(dir)
	if _, err := os.Stat(filepath.Join(dir, ".hydra", "config.yaml")); err == nil {
		args = []string{"resume", dir}
	}
	p := start(k.T, args...)
	p.Limit = 30 * time.Minute
	return p
}

// atWork is the stage that a loop was last at, and of each stage that it ended in this folder how long it took.
func (k *killing) atWork(dir string) (stage string, order []string, took map[string]time.Duration) {
	log, _ := os.ReadFile(filepath.Join(dir, "run.log")) // not there before the first stage
	took = map[string]time.Duration{}
	begun := time.Time{}
	for _, m := range regexp.MustCompile(`(?m)^\[([0-9: ,-]+)\].* - (\w+): (at work|done in|done before)`).FindAllStringSubmatch(string(log), -1) {
		now, err := time.Parse("2006-01-02 15:04:05,000", m[1])
		if err != nil {
			k.Fatal(err)
		}
		switch m[3] {
		case "at work":
			stage, begun = m[2], now
		default:
			stage = ""
			if m[3] == "done in" {
				order, took[m[2]] = append(order, m[2]), now.Sub(begun)
			}
		}
	}
	return stage, order, took
}

// kill ends a life at this moment, unless it has ended by itself.
func (k *killing) kill(p *process, dir string) bool {
	select {
	case <-p.Ended:
		if r := p.Wait(); r.Code != 0 {
			k.Fatalf("exit %d: %s", r.Code, r.Stderr)
		}
		return false
	default:
	}
	p.Signal(syscall.SIGKILL)
	p.Wait()
	stage, _, _ := k.atWork(dir)
	k.hit[stage]++
	return true
}

// once kills a run in each of these stages, in their order, within a share of the time that a stage took, and then lets it end. It
// returns the stages that ended before.
func (k *killing) once(dir string, stages []string, took map[string]time.Duration, share float64) (missed []string) {
	for _, stage := range stages {
		p := k.life(dir)
		for begun := false; !begun; time.Sleep(5 * time.Millisecond) {
			at, _, ended := k.atWork(dir)
			_, begun = ended[stage]
			begun = begun || at == stage || hasEnded(p)
		}
		time.Sleep(time.Duration(k.draw.Float64() * share * float64(took[stage])))
		before := k.hit[stage]
		if k.kill(p, dir); k.hit[stage] == before {
			missed = append(missed, stage)
		}
	}
	if r := k.life(dir).Wait(); r.Code != 0 {
		k.Fatalf("exit %d: %s", r.Code, r.Stderr)
	}
	return missed
}

// same reports where a run that was killed differs from one that was not: in its comparison, in what its stages chose and
// answered, and in the sequences of its beams. Where the model scores here, scores differ by rounding (docs/icl.md: other batches), and
// so do the log-probabilities of a selector that was trained on them: by at most so many nats.
func (k *killing) same(whole, killed string, nats float64) (files int) {
	read := func(dir, name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			k.Fatal(err)
		}
		if filepath.Base(name) == "beams.json" {
			var beams map[string]any
			if err := json.Unmarshal(text, &beams); err != nil {
				k.Fatal(err)
			}
			for q, b := range beams {
				if of, ok := b.(map[string]any); ok && q != "_meta" {
					beams[q] = of["id_list"]
				}
			}
			text, _ = json.Marshal(beams)
		}
		return strings.ReplaceAll(string(text), dir, "")
	}
	names := []string{"comparison.csv", "annotations.json", "selections.jsonl"}
	for _, pattern := range []string{"beams-*/beams.json", "*/predictions.jsonl", "*/selections.jsonl", "*/results.json"} {
		found, _ := filepath.Glob(filepath.Join(whole, "stages", pattern))
		if len(found) == 0 {
			k.Fatalf("no %s", pattern)
		}
		for _, path := range found {
			name, _ := filepath.Rel(whole, path)
			names = append(names, name)
		}
	}
	for _, name := range names {
		got, want := read(killed, name), read(whole, name)
		if got != want && (filepath.Base(name) != "predictions.jsonl" || apart(got, want) > nats) {
			k.Errorf("%s of %s:\n%s\nundisturbed:\n%s", name, filepath.Base(killed), got, want)
		}
	}
	return len(names)
}

// apart returns by how many nats the log-probabilities of two files of predictions differ at most: infinite where anything else differs.
func apart(a, b string) (most float64) {
	logprobs := regexp.MustCompile(`-[0-9.e-]+`)
	if logprobs.ReplaceAllString(a, "x") != logprobs.ReplaceAllString(b, "x") {
		return math.Inf(1)
	}
	others := logprobs.FindAllString(b, -1)
	for i, s := range logprobs.FindAllString(a, -1) {
		x, errX := strconv.ParseFloat(s, 64)
		y, errY := strconv.ParseFloat(others[i], 64)
		if errX != nil || errY != nil {
			return math.Inf(1)
		}
		most = max(most, math.Abs(x-y))
	}
	return most
}

const rounding = 1e-4 // nats

// stored counts the answers that a store holds.
func stored(t *testing.T, dir string) int {
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.Len()
}

// TestICLLoopKills kills the whole loop with its model in every stage, at moments by chance, at least twenty times: it ends with the
// same comparison, the same selections and as many answers in its store. KILL_LOOP="exp=icl_shapes" kills another loop.
func TestICLLoopKills(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes: make test-long")
	}
	dir := t.TempDir()
	args := func(dir string) []string {
		if given := os.Getenv("KILL_LOOP"); given != "" {
			return append(strings.Fields(given), "hydra.run.dir="+dir)
		}
		return loop(dir, "icl.baselines=[image,random,oracle]", "icl.shots=[2]", "icl.seeds=1")
	}
	k, whole, took := wholeThen(t, dir, args)
	_, stages, _ := k.atWork(whole)
	want := stored(t, filepath.Join(whole, "stages", "store"))
	kills, files, runs := 0, 0, 0
	for left := stages; kills < 20 || len(left) > 0; runs++ {
		folder := filepath.Join(dir, strconv.Itoa(runs))
		missed := k.once(folder, stages, took, 0.6)
		kills += len(stages) - len(missed)
		left = slices.DeleteFunc(slices.Clone(stages), func(stage string) bool { return k.hit[stage] > 0 })
		files = k.same(whole, folder, rounding)
		if n := stored(t, filepath.Join(folder, "stages", "store")); n != want {
			t.Errorf("run %d: %d answers in the store, undisturbed %d", runs, n, want)
		}
	}
	t.Logf("%d stages, %d answers; %d kills in %d lives of %d runs, by stage %v; %d files equal", len(stages), want, kills, k.lives, runs,
		k.hit, files)
}

// wholeThen runs a loop undisturbed.
func wholeThen(t *testing.T, dir string, args func(string) []string) (k *killing, whole string, took map[string]time.Duration) {
	seed := uint64(time.Now().UnixNano())
	if given, err := strconv.ParseUint(os.Getenv("KILL_SEED"), 10, 64); err == nil {
		seed = given
	}
	t.Logf("moments by KILL_SEED=%d", seed)
	k = &killing{T: t, draw: rand.New(rand.NewPCG(seed, 0)), args: args, folder: dir, hit: map[string]int{}}
	whole = filepath.Join(dir, "whole")
	if r := k.life(whole).Wait(); r.Code != 0 {
		t.Fatalf("exit %d: %s", r.Code, r.Stderr)
	}
	k.lives = 0
	_, _, took = k.atWork(whole)
	return k, whole, took
}

// TestICLLoopServedKills counts at the model, a stand-in of a server: of a loop that is killed at twenty moments nothing is requested
// again but what was under way when it was killed, and what the server is checked by: the same sample and edges of beams in every life,
// but for some of the sample that depend on the order of answers.
func TestICLLoopServedKills(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes: make test-long")
	}
	const concurrency, sample = 4, 4
	stand := lvlm.Start(t, &lvlm.Server{Kind: "vllm", Model: lvlm.Toy{}, Wait: 5 * time.Millisecond})
	var mu sync.Mutex
	requests := map[string]int{}
	counted := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && len(body) > 0 {
			mu.Lock()
			requests[string(body)]++
			mu.Unlock()
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		stand.ServeHTTP(w, r)
	}))
	defer counted.Close()
	dir := t.TempDir()
	args := func(dir string) []string {
		return loop(dir, "icl.model=null", "lvlm.backend=vllm", "lvlm.url="+counted.URL, "lvlm.concurrency="+strconv.Itoa(concurrency),
			"icl.baselines=[image,random,oracle]", "icl.shots=[2]", "beams.queries=36")
	}
	k, whole, took := wholeThen(t, dir, args)
	asking := []string{"beams", "image_2shot", "random_0_2shot", "oracle_2shot", "placebo_rce_grpo_0_2shot"}
	undisturbed, probes := requests, 0 // each process asks the probes, and checks the server
	for _, n := range undisturbed {
		if n > 1 {
			probes++
		}
	}
	if probes > len(undisturbed)/2 || len(undisturbed) < 500 {
		t.Fatalf("undisturbed: %d prompts, %d of them requested again", len(undisturbed), probes)
	}
	again, kills, files := 0, 0, 0
	for run := 0; kills < 20; run++ {
		mu.Lock()
		requests = map[string]int{}
		mu.Unlock()
		folder := filepath.Join(dir, strconv.Itoa(run))
		kills += len(asking) - len(k.once(folder, asking, took, 0.5))
		files = k.same(whole, folder, 0)
		for body, n := range requests {
			if undisturbed[body] <= 1 {
				again += n - 1
			}
			if undisturbed[body] == 0 {
				t.Errorf("a prompt that the undisturbed loop did not ask: %.200s", body)
			}
		}
	}
	if again > kills*(concurrency+sample) {
		t.Errorf("%d requests were made again, want at most the %d under way and %d of the sample at each of %d kills", again, concurrency,
			sample, kills)
	}
	t.Logf("%d prompts and %d asked twice undisturbed; %d lives, kills by stage %v; %d requests made again, at most %d under way; %d files "+
		"equal", len(undisturbed)-probes, probes, k.lives, k.hit, again, kills*concurrency, files)
}
