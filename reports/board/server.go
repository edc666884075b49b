package board

import (
	"cmp"
	"crypto/subtle"
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
)

// Server answers the requests of one reader, who holds the token. It must listen on 127.0.0.1 only.
//
// The token stands in the first address and then in a cookie that other sites' requests do not carry. A request for
// another host (DNS rebinding), from another origin or without the token is refused.
type Server struct {
	board  *Board
	token  string
	cookie string
	mux    *http.ServeMux
}

// NewServer returns the handler of a board. name tells its cookie from those of other boards on this machine.
func NewServer(b *Board, token, name string) *Server {
	s := &Server{board: b, token: token, cookie: "fulcrum_board_" + name, mux: http.NewServeMux()}
	for name, kind := range map[string]string{"board.js": "text/javascript", "board.css": "text/css"} {
		s.mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind+"; charset=utf-8")
			_, _ = w.Write(asset(name)) // the reader may have gone
		})
	}
	s.mux.HandleFunc("GET /{$}", s.index)
	s.mux.HandleFunc("GET /api/", s.data)
	s.mux.HandleFunc("GET /run/{id}/file/{name...}", s.file)
	s.mux.HandleFunc("PUT /api/run/{id}/notes", s.notes)
	s.mux.HandleFunc("POST /api/run/{id}/{what}", s.control)
	s.mux.HandleFunc("POST /api/sweep/{id}/{what}", s.control)
	return s
}

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
		return http.StatusUnauthorized, "the token is missing or wrong: open the address that `run board` has printed"
	}
	return 0, ""
}

func (s *Server) holds(r *http.Request) bool {
	given := []string{r.Header.Get("X-Board-Token")}
	if c, err := r.Cookie(s.cookie); err == nil {
		given = append(given, c.Value)
	}
	if r.URL.Path == "/" && r.Method == http.MethodGet {
		given = append(given, r.URL.Query().Get("token"))
	}
	return slices.ContainsFunc(given, func(t string) bool { return subtle.ConstantTimeCompare([]byte(t), []byte(s.token)) == 1 })
}

// index hands out the page. The address with the token leads to the one without.
func (s *Server) index(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has("token") {
		http.SetCookie(w, &http.Cookie{Name: s.cookie, Value: s.token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(asset("index.html"))
}

// data answers what the page asks for.
func (s *Server) data(w http.ResponseWriter, r *http.Request) {
	answer, err := s.board.answer(strings.TrimPrefix(r.URL.Path, "/api/"), r.URL.Query())
	reply(w, answer, err)
}

func reply(w http.ResponseWriter, answer any, err error) {
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

// answer returns what lies at a path of the interface: runs, run/ID, run/ID/curves, run/ID/completions, sweep/ID,
// sweep/ID/curves, sweep/ID/compare, compare, compare/curves.
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
	case path == "compare":
		return b.comparison(q.Get("ids"))
	case path == "compare/curves":
		return b.seeds(b.seeded, q.Get("ids"), q)
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
	f, err := root.Open(filepath.FromSlash(name)) // follows no link out of the folder
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

func (s *Server) notes(w http.ResponseWriter, r *http.Request) {
	e, ok := s.board.run(r.PathValue("id"))
	if !ok {
		reply(w, nil, refusal{http.StatusNotFound, "no such run"})
		return
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4*maxNote))
	if err == nil {
		err = writeNotes(e.dir, data)
	}
	if err != nil {
		reply(w, nil, refusal{http.StatusBadRequest, err.Error()})
		return
	}
	reply(w, readNotes(e.dir), nil)
}

// control stops or resumes a run or a sweep.
func (s *Server) control(w http.ResponseWriter, r *http.Request) {
	id, dir := r.PathValue("id"), ""
	if e, ok := s.board.run(id); ok {
		dir = e.dir
	} else if e, ok := s.board.sweep(id); ok {
		dir = e.dir
	}
	do := map[string]func(string) error{"stop": s.board.opt.Stop, "resume": s.board.opt.Resume}[r.PathValue("what")]
	if dir == "" || do == nil {
		reply(w, nil, refusal{http.StatusNotFound, "there is nothing to do this to"})
		return
	}
	if err := do(dir); err != nil {
		reply(w, nil, refusal{http.StatusConflict, err.Error()})
		return
	}
	reply(w, map[string]bool{"done": true}, nil)
}

// Address is what a reader opens: with the token.
func Address(at net.Addr, token string) string { return fmt.Sprintf("http://%s/?token=%s", at, token) }
