package api

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
)

// Problem is an RFC 9457 problem document, as the server sends and the client
// reads it.
type Problem struct { //nolint:errname // RFC 9457 calls it so
	Type   string         `json:"type,omitzero"`
	Title  string         `json:"title"`
	Status int            `json:"status"`
	Detail string         `json:"detail"`
	Errors []ProblemEntry `json:"errors,omitzero"`
	// Owner is the address of the instance that answers, of a problem of the status 421, if that is known.
	Owner string `json:"owner,omitzero"`

	// RetryAfter is when to try again; 0 if the server did not say.
	RetryAfter time.Duration `json:"-"`
}

// ProblemEntry is one of several things that are wrong with a request.
type ProblemEntry struct {
	// Message says what is wrong and what to do about it.
	Message string `json:"message"`
	// Location is where: a place in the request, or file:line:column.
	Location string `json:"location,omitzero"`
}

// Error returns what a person needs to know, each entry on a line of its own.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(cmp.Or(p.Detail, p.Title, fmt.Sprintf("HTTP status %d", p.Status)))
	for _, e := range p.Errors {
		b.WriteString("\n")
		if e.Location != "" {
			b.WriteString(e.Location + ": ")
		}
		b.WriteString(e.Message)
	}
	return b.String()
}

// elsewhere is the problem of what another instance answers.
type elsewhere struct {
	huma.ErrorModel
	Owner string `json:"owner,omitempty"`
}

// Unwrap returns the problem without the address.
func (e *elsewhere) Unwrap() error { return &e.ErrorModel }

// elsewhereAt says that another instance answers, at an address if that is known.
func elsewhereAt(owner, why string) error {
	status := http.StatusMisdirectedRequest
	return &elsewhere{huma.ErrorModel{Type: typeOf(status), Title: http.StatusText(status), Status: status, Detail: why}, owner}
}

// refuse answers a request that reached no operation.
func refuse(w http.ResponseWriter, status int, detail string) {
	refuseAs(w, typeOf(status), status, detail)
}

// NotReady tells who probes, or asks, to come again, and why what is asked is not ready.
func NotReady(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", unknownRetry)
	refuseAs(w, notReady.uri(), http.StatusServiceUnavailable, why)
}

// refuseAs does so with a type of its own.
func refuseAs(w http.ResponseWriter, kind string, status int, detail string) {
	body, err := json.Marshal(&Problem{Type: kind, Title: http.StatusText(status), Status: status, Detail: detail})
	if err != nil {
		body = nil // it holds only text of ours
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // whoever hung up needs no answer
}
