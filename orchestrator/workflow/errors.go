package workflow

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/token"

	"github.com/waybill-dev/waybill/yamlfile"
)

// Error is one problem in a file.
type Error = yamlfile.Error

// Errors is what is wrong with a file, in the order of the file. It is never
// empty where [Parse] returns it.
type Errors = yamlfile.Errors //nolint:errname // it is a list of them

// problems collects what is wrong with one file.
type problems struct{ yamlfile.Reader }

func (p *problems) add(at *token.Token, format string, args ...any) { p.Add(at, format, args...) }

func (p *problems) sorted() Errors { return p.Sorted() }

// maxError bounds what the errors about an order say, in bytes: they become
// part of its events.
const maxError = 1 << 10

// bound cuts a message off where it is too long for an event.
func bound(message string) string {
	const mark = "…"
	message = strings.ToValidUTF8(message, "�")
	if len(message) <= maxError {
		return message
	}
	return strings.ToValidUTF8(message[:maxError-len(mark)], "") + mark
}

// guarded calls a library, and makes an error of a panic: what it makes of a
// file or an order must not end the process.
func guarded(call func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("internal error: %v", r)
		}
	}()
	return call()
}
