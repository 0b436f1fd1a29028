package agents

import (
	"errors"
	"strings"

	"github.com/waybill-dev/waybill/events"
)

// The codes of the errors that the package itself replies with. All of them but
// CodeError are permanent: the next attempt would fail the same way.
const (
	CodeError            = "error"                 // a handler's error that has no code of its own; transient
	CodePanic            = "panic"                 // the handler panicked; value and stack are in the agent's log only
	CodeBadInput         = "bad-input"             // the input does not fit the handler's type
	CodeBadOutput        = "bad-output"            // the output cannot be written as JSON
	CodeOutputTooLarge   = "output-too-large"      // the reply would be larger than a message may be
	CodeUnknownOperation = events.UnknownOperation // the agent does not serve the operation
)

// ErrStopped is the cause ([context.Cause]) with which handlers' contexts end
// when the agent stops and [Config.StopTimeout] is over. A request whose handler
// gives up because of it is not answered; another instance executes it.
var ErrStopped = errors.New("the agent stops")

// Error is a handler's error with what the orchestrator needs to know of it.
// [errors.As] finds it however deep it is wrapped. The message of the reply is
// that of the outermost error.
type Error struct {
	// Code is a short word that workflows and operators can go by, such as
	// "card-declined". Empty means [CodeError].
	Code string
	// Permanent says that no retry can heal the fault (A5).
	Permanent bool
	// Err is the cause. It may be nil.
	Err error

	own bool // this package's, and it says nothing about the service
}

// Permanent returns an [*Error] for a fault that no retry can heal: the step
// fails at once and the order is dealt with as its workflow says (A5).
func Permanent(code string, err error) error { return &Error{Code: code, Permanent: true, Err: err} }

// Transient returns an [*Error] for a fault that may heal by itself: the agent
// tries again as [Config.Retry] says, and once that has given up the supervisor
// does, while the step's retry policy allows. [RetryAfter] adds a wish for a pause.
func Transient(code string, err error) error { return &Error{Code: code, Err: err} }

// Error returns the message of the cause, or the code if there is none.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.code()
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func (e *Error) code() string {
	if e.Code == "" {
		return CodeError
	}
	return e.Code
}

// own is a permanent error of this package that says nothing about the service
// behind the agent: it was not asked, or it is not known what it answered.
func own(code string, err error) error {
	return &Error{Code: code, Permanent: true, Err: err, own: true}
}

// isOwn says whether an error says nothing about the service.
func isOwn(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.own
}

// permanent says whether no retry can heal an error.
func permanent(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Permanent
}

// maxMessage bounds the message of a replied error, in bytes: it is kept in the
// order's history for good.
const maxMessage = 4096

// fault is err as a reply carries it.
func fault(err error) *events.Error {
	message := err.Error()
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "..."
	}
	var e *Error
	if !errors.As(err, &e) {
		return &events.Error{Code: CodeError, Message: message}
	}
	return &events.Error{Code: e.code(), Message: message, Permanent: e.Permanent}
}
