package secret

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestNamed(t *testing.T) {
	for _, name := range []string{"api_key", "API-Key", "key", "apikey", "apiKey", "accessToken", "token", "X-Auth-Token",
		"OPENAI_API_KEY", "HF_TOKEN", "Authorization",
		"Proxy-Authorization", "Cookie", "db.password", "AWS_SECRET_ACCESS_KEY", "client_secret", "sig", "X-Amz-Signature", "PASSWORD",
		"x-goog-api-key", "MyAPIKey", "APIKEY", "--api-key"} {
		if !Named(name) {
			t.Errorf("%s is no secret", name)
		}
	}
	for _, name := range []string{"", "model", "max_tokens", "tokens", "eos_token", "pad-token", "keyword", "keys", "monkey",
		"Content-Type", "OMP_NUM_THREADS", "tokenizer", "authors", "secretary", "key_env", "per_token"} {
		if Named(name) {
			t.Errorf("%s is a secret", name)
		}
	}
}

func TestLiteral(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, " ": false, "${oc.env:TOKEN}": false, "Bearer ${oc.env:TOKEN}": false, "Basic ${oc.env:A}:${oc.env:B}": false,
		"${oc.env:T,null}": false, "${oc.env:T,''}": false,
		"sk-1": true, "Bearer sk-1": true, "${oc.env:T,sk-1}": true, "${my.token}": true, "Bearer ${oc.env:T}x": true, "token": true,
		"***": true,
	} {
		if got := Literal(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestAddresses(t *testing.T) {
	for _, tc := range []struct{ text, found, masked string }{
		{"http://host/score", "", "http://host/score"},
		{"http://host/a@b?x=1&eos_token=2", "", "http://host/a@b?x=1&eos_token=2"},
		{"http://me:PW@host/score", "a user or password", "http://***@host/score"},
		{"http://me@host", "a user or password", "http://***@host"},
		{"[http://a/, 'https://me:P%40W@h:80/x?api_key=K&n=1#f']", "a user or password", "[http://a/, " +
			"'https://***@h:80/x?api_key=***&n=1#f']"},
		{"https://h/x?n=1&api%5Fkey=K", "a secret (api_key)", "https://h/x?n=1&api%5Fkey=***"},
		{"https://h/x?token=", "", "https://h/x?token="},
		{"https://h/x?token=${oc.env:T}&n=1", "", "https://h/x?token=***&n=1"},
		{"https://${oc.env:U}:${oc.env:P}@h/x", "", "https://***@h/x"},
		{`https://h/x?token=${oc.env: T, ""}`, "", ""},
		{"https://me:${oc.env:P}@h/x", "", "https://***@h/x"},
		{"https://${oc.env:U}:PW@h/x", "a user or password", "https://***@h/x"},
		{"https://TOKEN:@h/x", "a user or password", "https://***@h/x"},
		{"https://me:${pw}@h/x", "a user or password", "https://***@h/x"},
		{"http://me:p/w@host/x", "", "http://***@host/x"}, // no address: refused as such
		{"s3://bucket/a@b", "", "s3://bucket/a@b"},
		{"run: key=http://me:PW@host: refused", "a user or password", "run: key=http://***@host: refused"},
		{"no address, me:PW@host", "", "no address, me:PW@host"},
	} {
		if got := InAddress(tc.text); got != tc.found {
			t.Errorf("%s: found %q, want %q", tc.text, got, tc.found)
		}
		if got := Mask(tc.text); got != tc.masked && tc.masked != "" {
			t.Errorf("%s: masked %q, want %q", tc.text, got, tc.masked)
		}
	}
}

func TestArguments(t *testing.T) {
	got := Arguments([]string{"judge", "--api-key=K", "--n=1", "--token", "T", "-x", "--password", "-y", "http://me:PW@h", "end"})
	if want := "judge --api-key=*** --n=1 --token *** -x --password -y http://***@h end"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A client follows what stays with its host, with its body and without a Referer, and nothing else.
func TestSameHost(t *testing.T) {
	var foreign int
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { foreign++ }))
	defer other.Close()
	status, to := 307, ""
	var last *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if last = r; r.URL.Path != "/final" {
			http.Redirect(w, r, to, status)
		}
	}))
	defer server.Close()
	client := &http.Client{CheckRedirect: SameHost}
	ask := func() error {
		reply, err := client.Post(server.URL+"/start?token=T", "text/plain", strings.NewReader("body"))
		if err == nil {
			reply.Body.Close()
		}
		return err
	}
	to = "/final"
	if err := ask(); err != nil || last.Header.Get("Referer") != "" || last.ContentLength != 4 {
		t.Errorf("a redirect on the host: %v, %v", err, last.Header)
	}
	for name, set := range map[string]func(){
		"another host":   func() { to = other.URL + "/?token=T" },
		"another scheme": func() { to = strings.Replace(server.URL, "http", "https", 1) },
		"a circle":       func() { to = "/start" }, "a redirect that drops the body": func() { to, status = "/final", 302 },
	} {
		status = 307
		set()
		err := ask()
		if err == nil || !strings.Contains(Cause(err).Error(), "not followed") || strings.Contains(Cause(err).Error(), "token=T") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if foreign != 0 {
		t.Errorf("%d requests reached another host", foreign)
	}
}
