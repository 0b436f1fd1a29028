package httpagent

import (
	"net/http"
	"net/url"
	"strings"
)

// maxRedirects is how many redirects of a call are followed.
const maxRedirects = 5

// follow lets the client follow a redirect, or take it for the answer. It is
// followed only to the host that the file names: what a call carries, its
// credentials first of all, is for that host.
func follow(next *http.Request, before []*http.Request) error {
	switch {
	case len(before) > maxRedirects, origin(next.URL) != origin(before[0].URL):
		return http.ErrUseLastResponse
	case next.Method != before[len(before)-1].Method && next.Response.StatusCode != http.StatusSeeOther:
		// On 301 and 302 the client would go on with a GET, which is not what the
		// step asked for. 303 asks for it: the call is done, its result is there.
		return http.ErrUseLastResponse
	}
	return nil
}

// unfollowed says why a redirect was taken for the answer, and nothing of its
// location but the host.
func unfollowed(resp *http.Response) string {
	to, err := resp.Location()
	switch {
	case err != nil:
		return "it says nowhere where to"
	case origin(to) != origin(resp.Request.URL):
		return "redirects are followed only to the same scheme, host and port, this one leads to " + shorten(origin(to), 100)
	case resp.Request.Method != http.MethodGet && resp.Request.Method != http.MethodHead && (resp.StatusCode == http.StatusMovedPermanently || resp.StatusCode == http.StatusFound):
		return "the operation would become a GET; change the URL to the one that it leads to"
	}
	return "it is not followed, or there were too many in a row"
}

// origin returns scheme, host and port.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}
