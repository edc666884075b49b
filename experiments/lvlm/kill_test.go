package lvlm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fulcrum/internal/testkit/runtest"
)

const killedPrompts = 240

// TestMain is also the client that TestKills kills: it scores all prompts, eight at a time, and says each when its score is there.
func TestMain(m *testing.M) {
	url, dir := os.Getenv("LVLM_TEST_URL"), os.Getenv("LVLM_TEST_STORE")
	if url == "" {
		os.Exit(runtest.Main(m))
	}
	opt := DefaultOptions()
	opt.Backend, opt.URL, opt.Store, opt.Concurrency = "vllm", &url, &dir, 8
	scorer, err := Open(context.Background(), opt, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	scorer.recheck.enough = 0 // the hundredth alone, which the test knows
	var wg sync.WaitGroup
	for i, p := range prompts("", killedPrompts) {
		wg.Go(func() {
			l, err := scorer.Score(context.Background(), []Prompt{p})
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(3)
			}
			fmt.Printf("%d %x\n", i, l[0].pack())
		})
	}
	wg.Wait()
}

// Whenever the client is killed or the server is lost, no score that the client had is asked for again, none is lost, and all
// are the model's.
func TestKills(t *testing.T) {
	var ends atomic.Pointer[func(n int)] // what the n-th request of this life does to it
	stand := Start(t, &Server{Kind: "vllm", Model: Toy{}, Wait: 2 * time.Millisecond,
		Refuse: func(n int) (int, http.Header) { (*ends.Load())(n); return 0, nil }})
	dir, have, lost := t.TempDir(), map[int]string{}, 0
	for life := 0; len(have) < killedPrompts; life++ {
		if life == 300 {
			t.Fatalf("%d scores after %d lives", len(have), life)
		}
		stand.Forget()
		before := len(have)
		alive, kill := context.WithCancel(t.Context())
		last := 5 + rand.IntN(100) // request of this life: a clock would not know how fast the machine is
		end := func(n int) {
			switch {
			case n <= last:
			case life%3 == 2: // the server is lost
				time.AfterFunc(200*time.Millisecond, kill)
				panic(http.ErrAbortHandler)
			default:
				kill()
			}
		}
		ends.Store(&end)
		cmd := exec.CommandContext(alive, os.Args[0])
		cmd.Env = append(os.Environ(), "LVLM_TEST_URL="+stand.URL, "LVLM_TEST_STORE="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		fresh := map[int]string{}
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if number, score, ok := strings.Cut(lines.Text(), " "); ok {
				if i, err := strconv.Atoi(number); err == nil {
					fresh[i] = score
				}
			}
		}
		cmd.Wait() // killed, or at its end
		kill()
		for p, n := range stand.Asked() {
			for i := range have {
				if strings.Contains(p, fmt.Sprintf("user\n%d<|im_end|>", i)) {
					t.Fatalf("life %d: prompt %d was asked again, %d times", life, i, n)
				}
			}
		}
		for i, score := range fresh {
			if old, ok := have[i]; ok && old != score {
				t.Fatalf("life %d: prompt %d scores %s, before %s", life, i, score, old)
			}
			have[i] = score
		}
		if len(have) > before {
			lost++
		}
	}
	for i, p := range prompts("", killedPrompts) {
		want := Likelihood{LogProbs: truth(t, "vllm", p), Tokens: []int{'r', 'e', 'd', 257}}
		if got := fmt.Sprintf("%x", want.pack()); have[i] != got {
			t.Fatalf("prompt %d: got %s, want %s", i, have[i], got)
		}
	}
	if lost < 3 {
		t.Errorf("%d lives scored anything: they ended before or after everything", lost)
	}
}

// BenchmarkServer compares the scorer, store included, with a bare load generator that posts the same bodies as many at a time,
// in turns. The server is one whose work is done elsewhere, as on a GPU: four answers at a time, 20 ms each, prompts of 280
// tokens with two pictures of 40 kB.
func BenchmarkServer(b *testing.B) {
	const n, slots, concurrency = 600, 4, 16
	stand := &Server{Kind: "vllm", Model: Toy{}}
	var canned []byte // an answer of the stand-in
	free := make(chan struct{}, slots)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if canned == nil || r.Method == http.MethodGet {
			stand.ServeHTTP(w, r)
			return
		}
		io.Copy(io.Discard, r.Body)
		free <- struct{}{}
		time.Sleep(20 * time.Millisecond)
		<-free
		w.Write(canned)
	}))
	defer front.Close()
	opt := DefaultOptions()
	opt.Backend, opt.URL, opt.Concurrency = "vllm", &front.URL, concurrency
	dir := b.TempDir()
	opt.Store = &dir
	scorer, err := Open(b.Context(), opt, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer scorer.Close()
	s := scorer.scorer.(*server)
	pictures := [2]string{noise(b, 1), noise(b, 2)}
	warm := prompts(pictures[0], 1)
	warm[0].Shots[0].Image = pictures[1]
	if canned, err = s.client.Do(b.Context(), http.MethodPost, "/v1/chat/completions", bodyOf(b, s, warm[0])); err != nil {
		b.Fatal(err)
	}
	round := 0
	var bare, ours time.Duration
	for b.Loop() {
		round++
		asked := prompts(pictures[0], n)
		for i := range asked {
			asked[i].Shots[0].Image, asked[i].Query.Question = pictures[1], fmt.Sprint("round ", round, " question ", i)
		}
		bodies := make([][]byte, n)
		for i, p := range asked {
			p.Query.Question += "!"
			bodies[i] = bodyOf(b, s, p)
		}
		start := time.Now()
		var wg sync.WaitGroup
		next := make(chan []byte, n)
		for _, body := range bodies {
			next <- body
		}
		close(next)
		for range concurrency {
			wg.Go(func() {
				for body := range next {
					if _, err := s.client.Do(b.Context(), http.MethodPost, "/v1/chat/completions", body); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		bare += time.Since(start)
		start = time.Now()
		if _, err := scorer.Score(b.Context(), asked); err != nil {
			b.Fatal(err)
		}
		ours += time.Since(start)
	}
	b.ReportMetric(float64(n*round)/bare.Seconds(), "bare/s")
	b.ReportMetric(float64(n*round)/ours.Seconds(), "scorer/s")
	b.ReportMetric(100*bare.Seconds()/ours.Seconds(), "%")
}

// noise is a picture that does not compress, as a data: URL.
func noise(b *testing.B, seed uint64) string {
	b.Helper()
	const side = 112
	img := image.NewRGBA(image.Rect(0, 0, side, side))
	draw := rand.New(rand.NewPCG(seed, 0))
	for i := range img.Pix {
		img.Pix[i] = uint8(draw.Uint32()) | 3*uint8(i%4/3)
	}
	var out bytes.Buffer
	if err := png.Encode(&out, img); err != nil {
		b.Fatal(err)
	}
	return dataURL(out.Bytes())
}

func bodyOf(b *testing.B, s *server, p Prompt) []byte {
	b.Helper()
	_, body, err := s.protocol.scoring(p)
	if err != nil {
		b.Fatal(err)
	}
	data, err := json.Marshal(body)
	if err != nil {
		b.Fatal(err)
	}
	return data
}
