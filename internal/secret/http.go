package secret

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

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
	var outer *url.Error
	if errors.As(err, &outer) {
		return outer.Err
	}
	return err
}
