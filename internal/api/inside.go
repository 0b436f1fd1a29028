package api

import (
	"bytes"
	"io"
	"net/http"
)

// Inside is a client of a server in the same process, for a page that it makes: it asks as whoever
// asks for the page, from the same address, and may no more than that. A token counts, and without one what the
// page's request says of who asks.
func Inside(server http.Handler, page *http.Request, token string) *Client {
	return &Client{base: "http://inside", shown: "the server", token: token, http: &http.Client{Transport: inside{server, page}}}
}

type inside struct {
	server http.Handler
	page   *http.Request
}

// asks is a request as one of whoever asks for the page.
func (i inside) asks(r *http.Request) *http.Request {
	asked := r.Clone(r.Context())
	asked.Host, asked.RemoteAddr, asked.TLS = i.page.Host, i.page.RemoteAddr, i.page.TLS
	asked.RequestURI = r.URL.RequestURI()
	if said := i.page.Header.Values("Authorization"); len(said) > 0 && r.Header.Get("Authorization") == "" {
		asked.Header["Authorization"] = said
	}
	if asked.Body == nil {
		asked.Body = http.NoBody
	}
	return asked
}

// Follow answers a page's request with the events of an order behind the one of a number, "" for all, as they come: as whoever
// asks for the page, as [Inside] does. The request has no place among those that are answered any more.
func Follow(server http.Handler, w http.ResponseWriter, page *http.Request, token, id, after string) {
	path, err := orderPath(id)
	if err != nil {
		refuse(w, http.StatusNotFound, err.Error())
		return
	}
	r, err := http.NewRequestWithContext(page.Context(), http.MethodGet, "http://inside"+path+"/events", http.NoBody)
	if err != nil {
		refuse(w, http.StatusNotFound, err.Error())
		return
	}
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	placeOf(page.Context()).free()
	server.ServeHTTP(w, inside{server, page}.asks(r))
}

// RoundTrip has the server answer.
func (i inside) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := i.asks(r)
	a := &answer{header: make(http.Header), status: http.StatusOK}
	i.server.ServeHTTP(a, asked)
	return &http.Response{
		Status: http.StatusText(a.status), StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header, Body: io.NopCloser(&a.body), ContentLength: int64(a.body.Len()), Request: r,
	}, nil
}

// answer is what a server answers, kept in memory.
type answer struct {
	header http.Header
	status int
	wrote  bool
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if !a.wrote {
		a.status, a.wrote = status, true
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.wrote = true
	return a.body.Write(b)
}
