package api

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
)

// Bytes are what a record has, which may be anything.
type Bytes struct {
	Text   *string `json:"text" doc:"Null if it is not UTF-8"`
	Base64 []byte  `json:"base64,omitempty" doc:"Where it is not UTF-8"`
	Size   int     `json:"size" doc:"In bytes. A listing has the first 256 of a key"`
}

// TransformSchema says that a record may have none.
func (Bytes) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Nullable = true
	return s
}

// bytesOf is nil for what is not there. The size is what it has in all.
func bytesOf(b []byte, size int) *Bytes {
	switch {
	case b == nil:
		return nil
	case utf8.Valid(b):
		return &Bytes{Text: new(string(b)), Size: size}
	}
	return &Bytes{Base64: b, Size: size}
}

// DeadLetter is an input that was put aside, as a listing has it.
type DeadLetter struct {
	Partition int32   `json:"partition" doc:"Of the dead letters: with the offset it names one"`
	Offset    int64   `json:"offset"`
	At        *Time   `json:"at" doc:"When it was put aside; when the input was written, if a release before has put it aside"`
	Written   *Time   `json:"written" doc:"When the input was written"`
	Topic     *string `json:"topic" doc:"On which it was"`
	Source    *string `json:"source" doc:"topic/partition/offset where it was"`
	Key       *Bytes  `json:"key" doc:"The id of its order, unless that is what is wrong; null for none"`
	Reason    string  `json:"reason" doc:"Why it was put aside"`
	ValueSize int     `json:"valueSize" doc:"In bytes"`
}

// WholeDeadLetter is all of a dead letter.
type WholeDeadLetter struct {
	DeadLetter
	Headers []LetterHeader  `json:"headers" nullable:"false" doc:"With those that Waybill added"`
	Value   *Bytes          `json:"value" doc:"Null for none"`
	Decoded json.RawMessage `json:"decoded,omitempty" doc:"The value as the codec decodes it, where decode asked for that"`
	// Discarded is who has it not be listed any more.
	Discarded        *LetterDiscard `json:"discarded" doc:"Null if it is listed"`
	DiscardedUnknown bool           `json:"discardedUnknown,omitzero" doc:"Whether it is listed is not known yet, because much was put aside behind it: asked again, the instance has read on"`
	NotDecoded
}

// LetterDiscard is the mark of a dead letter that is not listed any more.
type LetterDiscard struct {
	By   *string `json:"by"`
	Note *string `json:"note"`
	At   *Time   `json:"at"`
}

// LetterHeader is a header of a dead letter.
type LetterHeader struct {
	Key   string `json:"key"`
	Value *Bytes `json:"value" doc:"Of waybill_actor without its signature, with which the input could be sent again"`
}

// DeadLetterPage is a part of the dead letters.
type DeadLetterPage struct {
	DeadLetters []DeadLetter `json:"deadLetters" nullable:"false"`
	Next        string       `json:"next,omitempty" doc:"Give it as after to get the next page; left out on the last"`
}

// Replayed is an input that was a dead letter.
type Replayed struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Order     string `json:"order"`
	Unsigned  bool   `json:"unsigned,omitzero" doc:"Its author was known by a signature, which is left out, because it is over the value of before"`
}

// Correction is the body of a request to put a dead letter back.
type Correction struct {
	Value json.RawMessage `json:"value,omitempty" example:"{\"workflow\":\"order-fulfilment\",\"input\":{\"total\":42}}" doc:"Replaces its value; left out, that stays as it was"`
}

const letterPath = "/api/v1/dead-letters/{partition}/{offset}"

func (s *Server) deadLetters(api huma.API) {
	register(api, identity.PayloadReader, huma.Operation{
		OperationID: "list-dead-letters", Method: http.MethodGet, Path: "/api/v1/dead-letters",
		Summary: "List the inputs that were put aside", Tags: []string{"dead letters"},
		Description: "The one first that was put aside last. A page has fewer than limit, or none, where it takes long to find more: next says that more may follow. Those that were discarded are left out. The caller must have the role for all workflows.",
		Errors:      []int{http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
	}, s.listDeadLetters)
	register(api, identity.PayloadReader, huma.Operation{
		OperationID: "get-dead-letter", Method: http.MethodGet, Path: letterPath,
		Summary: "Get all of an input that was put aside", Tags: []string{"dead letters"},
		Description: "The caller must have the role for all workflows.",
		Errors:      []int{http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
	}, s.getDeadLetter)
	register(api, identity.Admin, huma.Operation{
		OperationID: "replay-dead-letter", Method: http.MethodPost, Path: letterPath + "/replay",
		Summary: "Put an input that was put aside back on its topic", Tags: []string{"dead letters"},
		Description: "In the partition of its order, with the headers that it came with and waybill_replayed_from. Where callers are asked who they are, a submission or a command with another value must name the caller as by. What orders tell each other is put back as it was, or not at all. The dead letter stays, and so it can be put back again: what that means is the same as sending the input twice. 409 if it would be put aside again for its form, or cannot be put back, and why; that there is no order of its id is not looked at. After 503 it may be on the topic, or get there within half a minute.",
		RequestBody: &huma.RequestBody{}, MaxBodyBytes: maxBody, BodyReadTimeout: bodyTimeout,
		Errors: []int{http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
	}, s.replayDeadLetter)
	register(api, identity.Admin, huma.Operation{
		OperationID: "discard-dead-letter", Method: http.MethodPost, Path: letterPath + "/discard",
		Summary: "Have an input that was put aside not be listed any more", Tags: []string{"dead letters"},
		Description: "It can still be got by its name, which says by whom it was dealt with, when and why, and put back. That is a mark on the topic. Doing it again changes nothing: who did it first stays. After 503 it may be done, or be within half a minute.",
		RequestBody: &huma.RequestBody{}, MaxBodyBytes: maxBody, BodyReadTimeout: bodyTimeout, DefaultStatus: http.StatusNoContent,
		Errors: []int{http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
	}, s.discardDeadLetter)
}

type deadLettersInput struct {
	Reason string    `query:"reason" minLength:"1" doc:"Only those whose reason has this text"`
	Topic  string    `query:"topic" minLength:"1" doc:"Only what was on this input: orders, replies, commands, signals, internal, or the whole name of the topic"`
	Order  string    `query:"order" minLength:"1" doc:"Only what has this key"`
	Since  time.Time `query:"since" example:"2026-01-01T00:00:00Z" doc:"Only what was put aside since then"`
	Limit  int       `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	After  string    `query:"after" doc:"The next of the page before"`
}

func (s *Server) listDeadLetters(ctx context.Context, in *deadLettersInput) (*struct{ Body DeadLetterPage }, error) {
	i, ctx, done, err := s.useLetters(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	after, err := readLetterPlace(in.After)
	if err != nil {
		return nil, errCursor
	}
	filter := orchestrator.LetterFilter{Reason: in.Reason, Topic: in.Topic, Key: in.Order, Since: in.Since}
	if in.Topic != "" {
		if filter.Topic, err = inputOf(i.Topics(), in.Topic); err != nil {
			return nil, err
		}
	}
	page, err := i.DeadLetters(ctx, &filter, after, in.Limit)
	if err != nil {
		return nil, s.letterError("list dead letters", err)
	}
	out := &struct{ Body DeadLetterPage }{DeadLetterPage{DeadLetters: make([]DeadLetter, len(page.Letters)), Next: letterCursor(page.Next)}}
	for n := range page.Letters {
		out.Body.DeadLetters[n] = deadLetterOf(&page.Letters[n])
	}
	return out, nil
}

// inputOf is the topic of an input by its whole name, or by the last part of that.
func inputOf(topics *events.Topics, name string) (string, error) {
	for _, topic := range []string{topics.Namespace + "." + name, name} {
		if _, is := topics.Input(topic); is {
			return topic, nil
		}
	}
	return "", huma.Error422UnprocessableEntity(fmt.Sprintf("topic %q is no input: use orders, replies, commands, signals or internal", name))
}

// useLetters is [Server.use] for who may read what was put aside, whatever it is about: of many a dead letter
// nobody can tell of which workflow it is.
func (s *Server) useLetters(ctx context.Context) (*orchestrator.Instance, context.Context, func(), error) {
	if c := callerOf(ctx); !c.Everywhere(identity.PayloadReader) {
		return nil, nil, nil, huma.Error403Forbidden(forbidden(c, identity.PayloadReader) + ", for all workflows")
	}
	return s.use(ctx)
}

func deadLetterOf(d *orchestrator.DeadLetter) DeadLetter {
	return DeadLetter{
		Partition: d.Partition, Offset: d.Offset, At: at(d.At), Written: at(d.Written), Topic: text(d.Topic), Source: text(d.Source),
		Key: bytesOf(d.Key, d.KeySize), Reason: d.Reason, ValueSize: d.ValueSize,
	}
}

// LetterInput names a dead letter.
type LetterInput struct {
	Partition int64 `path:"partition" minimum:"0" maximum:"2147483647"` // huma would cut what an int32 does not hold
	Offset    int64 `path:"offset" minimum:"0"`
}

func (in *LetterInput) name() string { return fmt.Sprintf("%d/%d", in.Partition, in.Offset) }

func (s *Server) getDeadLetter(ctx context.Context, in *struct {
	LetterInput
	DecodeInput
},
) (*struct{ Body WholeDeadLetter }, error) {
	i, ctx, done, err := s.useLetters(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	askingOf(ctx).target = in.name()
	r, err := i.DeadLetter(ctx, int32(in.Partition), in.Offset)
	if err != nil {
		return nil, s.letterError("get dead letter "+in.name(), err)
	}
	letter := wholeLetterOf(r)
	mark, known, err := i.Discarded(ctx, r.Partition, r.Offset)
	if err != nil {
		return nil, s.letterError("see whether it is discarded: dead letter "+in.name(), err)
	}
	if letter.DiscardedUnknown = !known && mark == nil; mark != nil {
		letter.Discarded = &LetterDiscard{text(mark.By), text(mark.Note), at(mark.At)}
	}
	return &struct{ Body WholeDeadLetter }{letter}, nil
}

func wholeLetterOf(r *kgo.Record) WholeDeadLetter {
	listed := orchestrator.LetterOf(r)
	whole := WholeDeadLetter{DeadLetter: deadLetterOf(&listed), Headers: make([]LetterHeader, len(r.Headers)), Value: bytesOf(r.Value, len(r.Value))}
	whole.Key = bytesOf(r.Key, len(r.Key))
	for n, h := range r.Headers {
		value := h.Value
		if h.Key == events.HeaderActor {
			value = unsigned(value)
		}
		whole.Headers[n] = LetterHeader{strings.ToValidUTF8(h.Key, "�"), bytesOf(value, len(value))}
	}
	return whole
}

// unsigned is who signed an input, without the signature: it counts for a day, for whoever has it.
func unsigned(header []byte) []byte {
	if at := bytes.IndexByte(header, '{'); at >= 0 {
		return header[at:]
	}
	return nil
}

type replayInput struct {
	LetterInput
	Body *Correction
}

func (s *Server) replayDeadLetter(ctx context.Context, in *replayInput) (*struct{ Body Replayed }, error) {
	i, ctx, done, err := s.useLetters(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	askingOf(ctx).target = in.name()
	replay := orchestrator.Replay{Partition: int32(in.Partition), Offset: in.Offset, By: callerOf(ctx).Subject}
	if in.Body != nil {
		replay.Value = in.Body.Value
	}
	bounded, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	r, err := i.Replay(bounded, &replay)
	if err != nil {
		return nil, s.letterError("replay dead letter "+in.name(), err)
	}
	askingOf(ctx).target += " on " + r.Topic + " of order " + string(r.Key)
	if replay.Value != nil {
		askingOf(ctx).target += ", corrected"
	}
	return &struct{ Body Replayed }{Replayed{r.Topic, r.Partition, r.Offset, string(r.Key), r.Unsigned}}, nil
}

type discardInput struct {
	LetterInput
	Body *Act
}

func (s *Server) discardDeadLetter(ctx context.Context, in *discardInput) (*struct{}, error) {
	i, ctx, done, err := s.useLetters(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	askingOf(ctx).target = in.name()
	act := Act{}
	if in.Body != nil {
		act = *in.Body
	}
	by, err := author(ctx, act.By, askingOf(ctx).address)
	if err != nil {
		return nil, err
	}
	if len(act.Note) > maxDiscardNote {
		return nil, huma.Error422UnprocessableEntity(fmt.Sprintf("the note has %d bytes; at most %d are kept", len(act.Note), maxDiscardNote), &huma.ErrorDetail{Message: "is too long", Location: "body.note"})
	}
	bounded, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	if err := i.Discard(bounded, int32(in.Partition), in.Offset, by, act.Note); err != nil {
		return nil, s.letterError("discard dead letter "+in.name(), err)
	}
	return nil, nil
}

// maxDiscardNote is how long a note may be, in bytes.
const maxDiscardNote = 1 << 10

func (s *Server) letterError(doing string, err error) error {
	switch {
	case errors.Is(err, orchestrator.ErrNoLetter):
		return huma.Error404NotFound(err.Error())
	case errors.Is(err, orchestrator.ErrRefused):
		return huma.Error409Conflict(strings.TrimPrefix(err.Error(), orchestrator.ErrRefused.Error()+": "))
	}
	s.warn("the dead letters do not answer", "doing", doing, "error", err)
	problem := huma.Error503ServiceUnavailable(fmt.Sprintf("%s: %v; see that the topic has a leader, and that the orchestrators may read it", doing, err))
	if errors.Is(err, kerr.TopicAuthorizationFailed) { // which does not pass by itself
		return problem
	}
	return typed(kafkaSilent, retry(behindRetry, problem))
}

// letterCursor names a place in the listing of dead letters, "" for none.
func letterCursor(p orchestrator.LetterPlace) string {
	if p == nil {
		return ""
	}
	text, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("encode a place: %v", err)) // it has numbers alone
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func readLetterPlace(cursor string) (p orchestrator.LetterPlace, err error) {
	if cursor == "" {
		return nil, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, err
	}
	if p == nil {
		return nil, errors.New("it names no place")
	}
	return p, nil
}
