package board

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func serverOf(b *Board) *Server { return NewServer(b, "SECRET") }

// call asks a server as its own page does, unless change says otherwise.
func call(s *Server, method, path, body string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "127.0.0.1:8000"
	r.Header.Set("X-Board-Token", "SECRET")
	r.Header.Set("Origin", "http://127.0.0.1:8000")
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func TestRequestsOfOthersAreRefused(t *testing.T) {
	s := serverOf(boardOf(t.TempDir()))
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for _, tc := range []struct {
		name, path string
		change     func(*http.Request)
		want       int
	}{
		{"its own page", "/api/runs", nil, 200},
		{"no token", "/api/runs", func(r *http.Request) { r.Header.Del("X-Board-Token") }, 401},
		{"a wrong token", "/api/runs", set("X-Board-Token", "SECREt"), 401},
		{"the token in an address that is not the first", "/api/runs?token=SECRET", func(r *http.Request) { r.Header.Del("X-Board-Token") }, 401},
		{"a cookie with the token", "/api/runs", func(r *http.Request) {
			r.Header.Del("X-Board-Token")
			for _, name := range []string{"token", "fulcrum_board", "fulcrum_board_8000"} {
				r.AddCookie(&http.Cookie{Name: name, Value: "SECRET"})
			}
		}, 401},
		{"a first address of another board", "/?token=SECREt", func(r *http.Request) { r.Header.Del("X-Board-Token") }, 401},
		{"no key", "/api/runs?key=", func(r *http.Request) { r.Header.Del("X-Board-Token") }, 401},
		{"another origin", "/api/runs", set("Origin", "http://evil.example"), 403},
		{"another port of this machine", "/api/runs", set("Origin", "http://127.0.0.1:9000"), 403},
		{"no origin: null", "/api/runs", set("Origin", "null"), 403},
		{"another site, as the browser says", "/api/runs", set("Sec-Fetch-Site", "cross-site"), 403},
		{"another host: DNS rebinding", "/api/runs", func(r *http.Request) { r.Host, r.Header["Origin"] = "evil.example:8000", nil }, 421},
		{"another host that begins like ours", "/api/runs", func(r *http.Request) { r.Host, r.Header["Origin"] = "127.0.0.1.evil", nil }, 421},
		{"a path out of the assets", "/../board.go", nil, 307},
		{"no such run", "/api/run/../../etc/passwd", nil, 307},
		{"an id that is a path", "/api/run/..%2f..%2fetc", nil, 404},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if w := call(s, "GET", tc.path, "", tc.change); w.Code != tc.want {
				t.Errorf("GET %s: %d %s, want %d", tc.path, w.Code, w.Body, tc.want)
			}
		})
	}
	nothing := func(r *http.Request) { r.Header.Del("X-Board-Token"); r.Header.Del("Origin") }
	for _, path := range []string{"/?token=SECRET", "/", "/board.js", "/board.css"} {
		w := call(s, "GET", path, "", nothing)
		if csp := w.Header().Get("Content-Security-Policy"); w.Code != 200 || strings.Contains(csp, "unsafe") ||
			!strings.Contains(csp, "default-src 'none'") || len(w.Result().Cookies()) > 0 || strings.Contains(w.Body.String(), "SECRET") {
			t.Errorf("%s: %d, policy %q, cookies %v: want the page, and no token in it", path, w.Code, csp, w.Result().Cookies())
		}
	}
	if w := call(s, "POST", "/api/run/x/stop", "", nothing); w.Code != 403 {
		t.Errorf("a change without an origin: %d, want 403", w.Code)
	}
	const stop = "/api/run/x/stop"
	if w := call(s, "POST", stop+"?key="+s.keyOf(stop), "", func(r *http.Request) { r.Header.Del("X-Board-Token") }); w.Code != 401 {
		t.Errorf("a change by a key: %d, want 401", w.Code)
	}
}

// A link opens in a tab of its own what it names, without the token, and nothing else.
func TestLinksHaveKeys(t *testing.T) {
	root := t.TempDir()
	finishedRun(t, filepath.Join(root, "run"), 0.1)
	s := serverOf(boardOf(root))
	call(s, "GET", "/api/runs", "", nil)
	id := idOf(filepath.Join(root, "run"))
	var d detail
	if err := json.Unmarshal(call(s, "GET", "/api/run/"+id, "", nil).Body.Bytes(), &d); err != nil || len(d.Links) != len(d.Files)+1 {
		t.Fatalf("%d links to %d files and the JSON, %v", len(d.Links), len(d.Files), err)
	}
	nothing := func(r *http.Request) { r.Header.Del("X-Board-Token"); r.Header.Del("Origin") }
	for name, link := range d.Links {
		if w := call(s, "GET", link, "", nothing); w.Code != 200 {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		_, key, _ := strings.Cut(link, "?")
		for _, other := range []string{"/api/runs", "/run/" + id + "/file/" + configFile + "x", "/api/run/" + id + "/curves"} {
			if w := call(s, "GET", other+"?"+key, "", nothing); w.Code != 401 {
				t.Errorf("the key of %s opens %s: %d", name, other, w.Code)
			}
		}
	}
	if serverOf(boardOf(root)).keyOf("/api/runs") == NewServer(boardOf(root), "OTHER").keyOf("/api/runs") {
		t.Error("boards have the same keys")
	}
}

// A request that comes slowly is cut off, its head as well as its body, and one with too large a body is refused.
func TestSlowRequests(t *testing.T) {
	root := t.TempDir()
	finishedRun(t, filepath.Join(root, "run"), 0.1)
	b := boardOf(root)
	b.opt.Resume = func(string) error { return nil }
	s := serverOf(b)
	call(s, "GET", "/api/runs", "", nil)
	path := "/api/run/" + idOf(filepath.Join(root, "run")) + "/"
	server := s.HTTP()
	if server.ReadHeaderTimeout <= 0 || server.ReadTimeout <= 0 || server.ReadTimeout > time.Minute || server.IdleTimeout <= 0 ||
		server.MaxHeaderBytes <= 0 {
		t.Fatalf("a request may take %v for its head and %v in all", server.ReadHeaderTimeout, server.ReadTimeout)
	}
	server.ReadHeaderTimeout, server.ReadTimeout = 200*time.Millisecond, 200*time.Millisecond
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	host := listener.Addr().String()
	head := "PUT %s HTTP/1.1\r\nHost: " + host + "\r\nX-Board-Token: SECRET\r\nOrigin: http://" + host + "\r\nContent-Length: 100\r\n\r\n{"
	for name, tc := range map[string]struct{ sent, want string }{
		"a head":        {"GET / HTTP/1.1\r\nHost:", ""},
		"notes":         {fmt.Sprintf(head, path+"notes"), "408"},
		"resume":        {strings.Replace(fmt.Sprintf(head, path+"resume"), "PUT", "POST", 1), "408"},
		"without token": {strings.Replace(fmt.Sprintf(head, path+"notes"), "SECRET", "OTHER", 1), "401"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", host)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(c, tc.sent); err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(c)
			if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+tc.want) && tc.want != "" {
				t.Errorf("%.300q, %v: want %s and the end of the connection", answer, err, tc.want)
			}
		})
	}
}

// A resume asks what the reader agrees to. An agreement to what the folder said before is none.
func TestResumeAsksFirst(t *testing.T) {
	root := t.TempDir()
	finishedRun(t, filepath.Join(root, "run"), 0.1)
	starts, resumed := []Start{{"on_end.command", "rm <b>"}}, 0
	b := boardOf(root)
	b.opt.Resume = func(string) error { resumed++; return nil }
	b.opt.Stop = func(string) error { return nil }
	b.opt.Starts = func(string) []Start { return starts }
	s := serverOf(b)
	call(s, "GET", "/api/runs", "", nil)
	path := "/api/run/" + idOf(filepath.Join(root, "run")) + "/"
	var asked question
	for _, body := range []string{"", "{}", "null", `{"agreed":"yes"}`, `{"agreed":""}`, "[]", `{"agreed":true}`} {
		asked = question{}
		w := call(s, "POST", path+"resume", body, nil)
		if err := json.Unmarshal(w.Body.Bytes(), &asked); err != nil || w.Code != 200 || resumed != 0 || asked.Agreed == "" ||
			!slices.Equal(asked.Starts, starts) {
			t.Fatalf("%q: %d %s (%v), resumed %d times", body, w.Code, w.Body, err, resumed)
		}
	}
	agree := func() { call(s, "POST", path+"resume", fmt.Sprintf(`{"agreed":%q}`, asked.Agreed), nil) }
	starts = []Start{{"on_end.command", "another"}}
	if agree(); resumed != 0 {
		t.Error("resumed by an agreement to another command")
	}
	starts = []Start{{"on_end.command", "rm <b>"}}
	if agree(); resumed != 1 {
		t.Errorf("resumed %d times after the agreement, want once", resumed)
	}
	if w := call(s, "POST", path+"stop", "", nil); w.Code != 200 || !strings.Contains(w.Body.String(), "done") {
		t.Errorf("stop: %d %s: want no question", w.Code, w.Body)
	}
}

// A server on another port of this machine learns nothing of the board's session from the browser that has both open; a second tab of
// the board does, and a link opens its file.
func TestSessionIsOfItsPort(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "run")
	finishedRun(t, dir, 0.1)
	b := boardOf(root)
	server := httptest.NewServer(serverOf(b))
	defer server.Close()
	var heads []http.Header
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heads = append(heads, r.Header)
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<p id=other>other</p>")
	}))
	defer other.Close()
	w := openBrowser(t)
	w.open(server.URL + "/?token=SECRET")
	w.until(rowOf("run"))
	w.open(other.URL)
	w.until("document.getElementById('other')")
	if kept := fmt.Sprint(w.js("document.cookie + JSON.stringify(localStorage)"), heads); strings.Contains(kept, "SECRET") || len(heads) == 0 {
		t.Errorf("another port has the token: %s", kept)
	}
	w.open(server.URL + "/#/run/" + idOf(dir))
	w.until("document.querySelectorAll('.links a').length > 3")
	w.open(w.js("document.querySelector('.links a[href*=\"metrics.jsonl\"]').href").(string))
	w.until("document.body.innerText.includes('global_step')")
	w.quiet()
}
