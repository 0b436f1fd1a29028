package api

import (
	"encoding/json"
	"html/template"
	"net/http"
	"strings"
)

// readable has people who ask for a page be told on one what is refused before it is made, such as that too many are made at a time.
// Programs are told as ever.
func readable(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "text/html") {
			w = &toPeople{ResponseWriter: w}
		}
		next.ServeHTTP(w, r)
	})
}

// toPeople makes a page of a problem.
type toPeople struct {
	http.ResponseWriter
	problem bool
}

// Unwrap lets a response controller reach what is beneath.
func (p *toPeople) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// WriteHeader begins the answer.
func (p *toPeople) WriteHeader(status int) {
	if h := p.Header(); h.Get("Content-Type") == "application/problem+json" {
		p.problem = true
		h.Set("Content-Type", "text/html; charset=utf-8")
	}
	p.ResponseWriter.WriteHeader(status)
}

// Write writes the answer; a problem is written at once, by [refuseAs].
func (p *toPeople) Write(b []byte) (int, error) {
	problem := new(Problem)
	if !p.problem || json.Unmarshal(b, problem) != nil {
		return p.ResponseWriter.Write(b)
	}
	return len(b), problemPage.Execute(p.ResponseWriter, problem)
}

// problemPage needs nothing but itself: what would look better is refused, too, maybe.
var problemPage = template.Must(template.New("problem").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{.Title}} – Waybill</title>
</head>
<body>
<main>
<h1>{{.Title}}</h1>
<p>{{.Detail}}</p>
<p><a href="">Load the page again</a></p>
</main>
</body>
</html>
`))
