// Package secret keeps passwords and keys out of files, messages and hosts that they are not for.
//
//	if what := secret.InAddress("http://me:pw@host/?api_key=1"); what != "" { … }   // a password
//	text = secret.Mask(text)                                                        // http://***@host/?api_key=***
//	client.CheckRedirect = secret.SameHost
//
// A secret stands in the environment. A configuration names it as ${oc.env:NAME}, which stays as it is written in the
// files of a run.
package secret

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

var (
	address  = regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"]+`)
	userinfo = regexp.MustCompile(`^([a-zA-Z][a-zA-Z0-9+.-]*://)([^\s/?#@]*)@`)
	// A password with a slash is not one to RFC 3986; whoever types one has it hidden all the same.
	loosely  = regexp.MustCompile(`^([a-zA-Z][a-zA-Z0-9+.-]*://)([^\s/?#@:]*(?::[^\s@]*)?)@`)
	argument = regexp.MustCompile(`([?&;])([^=&;#\s]+)=([^&;#\s]*)`)
	variable = regexp.MustCompile(`\$\{\s*oc\.env\s*:\s*[^},]+(,\s*(null|''|"")?\s*)?\}`)
	words    = regexp.MustCompile(`[A-Z]+(?:[a-z]+|\b|_)|[A-Z]?[a-z0-9]+|[A-Z0-9]+`)
	scheme   = regexp.MustCompile(`(?i)^(bearer|basic|token|key|apikey|api-key)?[\s:=]*$`)
)

// Named reports whether a header, a variable, a switch or a part of an address has a secret's name: api_key,
// X-Auth-Token, accessToken, DB_PASSWORD. A model's tokens (eos_token) are not secrets.
func Named(name string) bool {
	parts := words.FindAllString(name, -1)
	if len(parts) == 0 {
		return false
	}
	for i := range parts {
		parts[i] = strings.ToLower(strings.Trim(parts[i], "_"))
	}
	last := parts[len(parts)-1]
	if last == "token" && len(parts) > 1 {
		of := []string{"eos", "bos", "pad", "unk", "sep", "cls", "mask", "stop", "start", "end", "image", "video", "special", "per"}
		return !slices.Contains(of, parts[len(parts)-2])
	}
	return slices.Contains([]string{"key", "apikey", "token", "secret", "password", "passwd", "passphrase", "pass", "pwd", "auth",
		"authorization",
		"credential", "credentials", "signature", "sig", "cookie", "bearer"}, last)
}

// Literal reports whether text, as it is written in a configuration, holds a secret itself: anything but
// ${oc.env:NAME} and the word before it, as in "Bearer ${oc.env:NAME}".
func Literal(text string) bool {
	return strings.TrimSpace(text) != "" && (!variable.MatchString(text) || !scheme.MatchString(variable.ReplaceAllString(text, "")))
}

// InAddress names the secret written out in an address in text; "" without one.
func InAddress(text string) string {
	if !strings.Contains(text, "://") {
		return ""
	}
	// An interpolation may hold spaces and quotes: it is one letter that no address has.
	for _, a := range address.FindAllString(variable.ReplaceAllString(text, "\x00"), -1) {
		if m := userinfo.FindStringSubmatch(a); m != nil {
			user, password, _ := strings.Cut(m[2], ":")
			if strings.Trim(password, "\x00") != "" || password == "" && strings.Trim(user, "\x00") != "" { // a lone user may be a token
				return "a user or password"
			}
		}
		for _, m := range argument.FindAllStringSubmatch(a, -1) {
			if name := decoded(m[2]); Named(name) && strings.Trim(m[3], "\x00'") != "" {
				return "a secret (" + name + ")"
			}
		}
	}
	return ""
}

// Mask hides users, passwords and secret arguments of the addresses in text.
func Mask(text string) string {
	if !strings.Contains(text, "://") {
		return text
	}
	return address.ReplaceAllStringFunc(text, func(a string) string {
		a = loosely.ReplaceAllString(a, "${1}***@")
		return argument.ReplaceAllStringFunc(a, func(arg string) string {
			m := argument.FindStringSubmatch(arg)
			if !Named(decoded(m[2])) || m[3] == "" {
				return arg
			}
			return m[1] + m[2] + "=***"
		})
	})
}

func decoded(name string) string {
	if plain, err := url.QueryUnescape(name); err == nil {
		return plain
	}
	return name
}

// Arguments returns the arguments of a command on one line, without the values of those named like secrets.
func Arguments(argv []string) string {
	shown := slices.Clone(argv)
	for i, arg := range argv {
		name, _, given := strings.Cut(arg, "=")
		switch bare := strings.TrimLeft(name, "-"); {
		case bare == name || !Named(bare):
			shown[i] = Mask(shown[i])
		case given:
			shown[i] = name + "=***"
		case i+1 < len(argv) && !strings.HasPrefix(argv[i+1], "-"):
			shown[i+1] = "***"
		}
	}
	return strings.Join(shown, " ")
}

// RedirectError is a redirect that is not followed.
type RedirectError struct{ To string }

func (e *RedirectError) Error() string {
	return fmt.Sprintf("redirects to %s, which is not followed: give the final address", e.To)
}

// SameHost is the CheckRedirect of clients that send keys or data: it follows redirects that keep scheme, host, port,
// method and body, at most three, and sends no Referer. Others end in a *RedirectError.
func SameHost(req *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > 3 || req.URL.Scheme != first.URL.Scheme || req.URL.Host != first.URL.Host || req.Method != first.Method ||
		req.ContentLength != first.ContentLength {
		return &RedirectError{Address(req.URL)}
	}
	req.Header.Del("Referer")
	return nil
}

// Address returns an address without user, password, query and fragment: what a message may show of it.
func Address(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// Cause returns the cause of a client's error without the address that it was sent to.
func Cause(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		return outer.Err
	}
	return err
}
