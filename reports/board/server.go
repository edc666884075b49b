package board

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fulcrum/internal/regular"
)

// Server answers the requests of one reader, who holds the token. It must listen on 127.0.0.1 only.
//
// The token stands in the first address. The page takes it from there, keeps it for its origin, which includes the port, and sends it
// as a header: a cookie would go to every other server on 127.0.0.1 as well. What a link opens in a tab of its own has a key for that
// one path in its address. A request for another host (DNS rebinding), from another origin or without the token is refused; the page
// itself and its scripts hold nothing of the runs.
type Server struct {
	board *Board
	token string
	mux   *http.ServeMux
}

// NewServer returns the handler of a board.
func NewServer(b *Board, token string) *Server {
	s := &Server{board: b, token: token, mux: http.NewServeMux()}
	for name, kind := range map[string]string{"board.js": "text/javascript", "board.css": "text/css", "index.html": "text/html"} {
		pattern := "GET /" + strings.Replace(name, "index.html", "{$}", 1)
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind+"; charset=utf-8")
			_, _ = w.Write(asset(name)) // the reader may have gone
		})
	}
	s.mux.HandleFunc("GET /api/", replying(s.data))
	s.mux.HandleFunc("GET /run/{id}/file/{name...}", s.file)
	s.mux.HandleFunc("PUT /api/run/{id}/notes", replying(s.notes))
	s.mux.HandleFunc("POST /api/run/{id}/{what}", replying(s.control))
	s.mux.HandleFunc("POST /api/sweep/{id}/{what}", replying(s.control))
	return s
}

// HTTP returns the server that answers requests by s. Who sends one slowly, whether its head or its body, is cut off.
func (s *Server) HTTP() *http.Server {
	return &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10}
}

const wrongToken = "the token is missing or wrong: open the address that `run board` has printed"

// policy lets a page load what this server has, and nothing in the page itself run.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if status, text := s.refuse(r); status != 0 {
		http.Error(w, text, status)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// refuse says why a request gets no answer; status 0 means that it gets one.
func (s *Server) refuse(r *http.Request) (status int, text string) {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if !slices.Contains([]string{"127.0.0.1", "localhost"}, host) {
		return http.StatusMisdirectedRequest, "this board answers at 127.0.0.1 only"
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return http.StatusForbidden, "requests of other sites are refused"
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return http.StatusForbidden, "requests of other sites are refused"
	}
	if r.Method != http.MethodGet && r.Header.Get("Origin") == "" && r.Header.Get("X-Board-Token") == "" {
		return http.StatusForbidden, "a request that changes something must say where it comes from"
	}
	if !s.holds(r) {
		return http.StatusUnauthorized, wrongToken
	}
	return 0, ""
}

// holds reports whether a request may be answered: it has the token, or is for what anybody may see, or for the one path that its key
// is of.
func (s *Server) holds(r *http.Request) bool {
	same := func(given, want string) bool { return subtle.ConstantTimeCompare([]byte(given), []byte(want)) == 1 }
	if same(r.Header.Get("X-Board-Token"), s.token) {
		return true
	}
	if r.Method != http.MethodGet {
		return false
	}
	if q := r.URL.Query(); q.Has("token") { // a page of another board would not work
		return r.URL.Path == "/" && same(q.Get("token"), s.token)
	}
	return slices.Contains([]string{"/", "/board.js", "/board.css"}, r.URL.Path) || same(r.URL.Query().Get("key"), s.keyOf(r.URL.Path))
}

// keyOf is what opens one path, and no other, without the token.
func (s *Server) keyOf(path string) string {
	mac := hmac.New(sha256.New, []byte(s.token))
	mac.Write([]byte(path))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

func (s *Server) linkTo(path string) string { return path + "?key=" + s.keyOf(path) }

// data answers what the page asks for.
func (s *Server) data(_ http.ResponseWriter, r *http.Request) (any, error) {
	answer, err := s.board.answer(strings.TrimPrefix(r.URL.Path, "/api/"), r.URL.Query())
	if d, ok := answer.(*detail); ok && err == nil {
		d.Links = map[string]string{"all as JSON": s.linkTo(r.URL.Path)}
		for _, name := range d.Files {
			d.Links[name] = s.linkTo("/run/" + d.Run.ID + "/file/" + name)
		}
	}
	return answer, err
}

// replying writes what f answers, or its error, as JSON.
func replying(f func(http.ResponseWriter, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer, err := f(w, r)
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		if err == nil {
			var data []byte
			if data, err = json.Marshal(answer); err == nil {
				_, _ = w.Write(data)
				return
			}
		}
		status := http.StatusInternalServerError
		if r, ok := errors.AsType[refusal](err); ok {
			status = r.status
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
	}
}

// answer returns what lies at a path of the interface: runs, values, sparks, run/ID, run/ID/curves, run/ID/completions, sweep/ID,
// sweep/ID/told, sweep/ID/curves, sweep/ID/compare, compare, compare/curves.
func (b *Board) answer(path string, q url.Values) (any, error) {
	b.refresh()
	return b.known(path, q)
}

// known is answer without a look for what is new.
func (b *Board) known(path string, q url.Values) (any, error) {
	parts := strings.Split(path, "/")
	switch {
	case path == "runs":
		return b.list(int64(within(q.Get("since"), 0, 0, 1<<62)), within(q.Get("most"), 0, 0, 1<<30)), nil
	case path == "values":
		return b.values(q), nil
	case path == "sparks":
		return b.sparks(q.Get("ids")), nil
	case path == "compare":
		return b.comparison(q.Get("ids"))
	case path == "compare/curves":
		return b.seeds(b.seeded, q.Get("ids"), q)
	case len(parts) == 3 && parts[0] == "sweep" && parts[2] == "told":
		return b.reported(parts[1], q)
	case len(parts) == 3 && parts[0] == "sweep" && parts[2] == "curves":
		return b.seeds(b.settings, parts[1], q)
	case len(parts) == 3 && parts[0] == "sweep" && parts[2] == "compare":
		return b.comparison(b.jobsOf(parts[1]))
	case len(parts) == 2 && parts[0] == "run":
		return b.detail(parts[1])
	case len(parts) == 2 && parts[0] == "sweep":
		return b.sweepPage(parts[1])
	case len(parts) == 3 && parts[0] == "run" && parts[2] == "curves":
		return b.curves(parts[1], q)
	case len(parts) == 3 && parts[0] == "run" && parts[2] == "completions":
		return b.completions(parts[1], q)
	}
	return nil, refusal{http.StatusNotFound, "nothing is here"}
}

// listAnswer are the runs and sweeps that have changed since a version, and those that are gone.
type listAnswer struct {
	Version int64        `json:"version"`
	Reading int          `json:"reading"` // runs that are yet to be read
	Roots   []string     `json:"roots"`
	Runs    []entry      `json:"runs"`
	Sweeps  []sweepEntry `json:"sweeps"`
	Gone    []string     `json:"gone"`
	Control bool         `json:"control"` // runs can be stopped and resumed
}

// list returns what has changed since a version. Where most is not 0 and all is asked for, it returns no more than the newest
// runs, for the first paint: their version, too, is 0, so that the page then asks for all.
func (b *Board) list(since int64, most int) *listAnswer {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := &listAnswer{Version: b.version, Reading: b.reading, Roots: b.roots, Runs: []entry{}, Sweeps: []sweepEntry{}, Gone: []string{},
		Control: b.opt.Stop != nil}
	for _, e := range b.runs {
		if e.Version > since || since == 0 {
			a.Runs = append(a.Runs, *e)
		}
	}
	for _, s := range b.sweeps {
		if s.Version > since || since == 0 {
			a.Sweeps = append(a.Sweeps, *s)
		}
	}
	for _, g := range b.gone {
		if g.version > since {
			a.Gone = append(a.Gone, g.id)
		}
	}
	if n := len(a.Runs) - most; since == 0 && most > 0 && n > 0 {
		slices.SortFunc(a.Runs, func(x, y entry) int { return cmp.Compare(y.Start, x.Start) })
		a.Version, a.Reading, a.Runs = 0, a.Reading+n, a.Runs[:most]
	}
	return a
}

// file hands out a file of a run. What a run holds may be hostile: it gets an origin of its own and runs no script.
func (s *Server) file(w http.ResponseWriter, r *http.Request) {
	e, ok := s.board.run(r.PathValue("id"))
	name := r.PathValue("name")
	if !ok || !slices.Contains(shownFiles(), name) {
		http.NotFound(w, r)
		return
	}
	root, err := os.OpenRoot(e.dir)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer root.Close()
	f, err := regular.OpenIn(root, filepath.FromSlash(name)) // follows no link out of the folder
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		http.NotFound(w, r)
		return
	}
	kind := "text/plain; charset=utf-8"
	w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'")
	if strings.HasSuffix(name, ".html") {
		kind = "text/html; charset=utf-8"
		w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:")
	}
	w.Header().Set("Content-Type", kind)
	http.ServeContent(w, r, "", info.ModTime(), f)
}

func (s *Server) notes(w http.ResponseWriter, r *http.Request) (any, error) {
	e, ok := s.board.run(r.PathValue("id"))
	if !ok {
		return nil, refusal{http.StatusNotFound, "no such run"}
	}
	data, err := bodyOf(w, r, 4*maxNote)
	if err != nil {
		return nil, err
	}
	if err := writeNotes(e.dir, data); err != nil {
		return nil, refusal{http.StatusBadRequest, err.Error()}
	}
	n, _ := readNotes(e.dir)
	return n, nil
}

// bodyOf reads what a request carries, within its bytes and the time of HTTP.
func bodyOf(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("more than %d bytes", most)}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, refusal{http.StatusRequestTimeout, "the request took too long"}
	}
	if err != nil {
		return nil, refusal{http.StatusBadRequest, err.Error()}
	}
	return data, nil
}

// control stops or resumes a run or a sweep.
func (s *Server) control(w http.ResponseWriter, r *http.Request) (any, error) {
	id, what, dir := r.PathValue("id"), r.PathValue("what"), ""
	if e, ok := s.board.run(id); ok {
		dir = e.dir
	} else if e, ok := s.board.sweep(id); ok {
		dir = e.dir
	}
	do := map[string]func(string) error{"stop": s.board.opt.Stop, "resume": s.board.opt.Resume}[what]
	if dir == "" || do == nil {
		return nil, refusal{http.StatusNotFound, "there is nothing to do this to"}
	}
	if what == "resume" {
		data, err := bodyOf(w, r, 4<<10)
		if err != nil {
			return nil, err
		}
		var given struct{ Agreed string }
		if ask := s.board.ask(dir); json.Unmarshal(data, &given) != nil || given.Agreed != ask.Agreed {
			return ask, nil
		}
	}
	if err := do(dir); err != nil {
		return nil, refusal{http.StatusConflict, err.Error()}
	}
	return map[string]bool{"done": true}, nil
}

// question is what a reader agrees to before a run goes on: the folder may be somebody else's, and its configuration names programs.
type question struct {
	Starts []Start `json:"starts"`
	Agreed string  `json:"agreed"` // what a request holds whose reader has read this, and not what the folder said before
}

func (b *Board) ask(dir string) question {
	q := question{Starts: []Start{}}
	if b.opt.Starts != nil {
		q.Starts = append(q.Starts, b.opt.Starts(dir)...)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", dir, q.Starts))
	q.Agreed = hex.EncodeToString(sum[:])
	return q
}

// Address is what a reader opens: with the token.
func Address(at net.Addr, token string) string { return fmt.Sprintf("http://%s/?token=%s", at, token) }
