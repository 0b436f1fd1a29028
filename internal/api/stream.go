package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/codec"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
)

const (
	// maxFollowers is how many callers may follow orders at a time, and followPage how many events are held in memory of
	// each at most, beside what ends a page of a history.
	maxFollowers = 128
	// maxOfOne is how many of those one caller may have, or, where nobody is asked for a name, one address.
	maxOfOne   = 32
	followPage = 100
	// followFor ends a stream: who resumes it is asked anew who it is.
	followFor = 5 * time.Minute
	// keepAlive is how long a stream may say nothing, and followPatience how long its reader may take nothing.
	keepAlive, followPatience = 15 * time.Second, 10 * time.Second
)

type followInput struct {
	ID    string `path:"id" doc:"The order id, escaped for a path: a/b is a%2Fb"`
	After uint64 `header:"Last-Event-ID" format:"uint64" doc:"The number of the last event that was received: the stream goes on behind it. A browser's EventSource sends it by itself"`
	DecodeInput
}

func (s *Server) follow(api huma.API) {
	register(api, identity.Viewer, huma.Operation{
		OperationID: "follow-order", Method: http.MethodGet, Path: "/api/v1/orders/{id}/events",
		Summary: "Follow the journal events of an order", Tags: []string{"orders"},
		Description: fmt.Sprintf("Server-sent events: each is an event of the journal, as in the history, with its number as id; those that there are, and then those that come. The stream ends behind the last event of an order that has ended, and 204 says that there is nothing behind Last-Event-ID. It also ends after %s, when its reader takes nothing for %s, and when the instance stops: resume it with Last-Event-ID. With decode an event has undecoded if it has payloads that are as they are stored. An event of the type problem says what else ended it, as a problem document. Lines that begin with a colon say nothing. 503 says that %d are followed, which is the most at a time, and 429 that %d are by one caller.", followFor, followPatience, maxFollowers, maxOfOne),
		Responses: map[string]*huma.Response{
			"200": {Description: "The events", Content: map[string]*huma.MediaType{eventStream: sentEvents()}},
			"204": {Description: "The order has ended, and has no event behind Last-Event-ID"},
		},
		Errors: []int{http.StatusNotFound, http.StatusGone, http.StatusMisdirectedRequest, http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusServiceUnavailable},
	}, s.followOrder)
}

// sentEvents describes server-sent events: each as one object.
func sentEvents() *huma.MediaType {
	text := &huma.Schema{Type: huma.TypeString}
	return &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeObject, Required: []string{"data"}, Properties: map[string]*huma.Schema{"id": text, "event": text, "data": text}}}
}

func (s *Server) followOrder(ctx context.Context, in *followInput) (_ *huma.StreamResponse, err error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			done()
		}
	}()
	workflow, err := s.reach(ctx, i, in.ID, identity.Viewer)
	if err != nil {
		return nil, err
	}
	o, _, err := i.Order(in.ID)
	if err != nil {
		return nil, s.orderError(in.ID, "read order", err)
	}
	leave, err := s.followers.come(askingOf(ctx))
	if err != nil {
		return nil, err
	}
	f := &following{Server: s, instance: i, operation: "follow-order", id: in.ID, after: in.After, decodes: in.Decode, masked: workflow != "" && !callerOf(ctx).May(identity.PayloadReader, workflow)}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		defer done()
		defer leave()
		if o.State.Final() && in.After >= o.Seq {
			c.SetStatus(http.StatusNoContent)
			return
		}
		if !f.masked {
			s.audit(ctx, "payloads were read", "operation", f.operation, "of", in.ID) // a stream passes no [Server.mask]
		}
		_, w := humago.Unwrap(c)
		f.out, f.control = w, http.NewResponseController(w)
		f.run(ctx)
	}}, nil
}

// followers are those who follow orders and lists.
type followers struct {
	mu  sync.Mutex
	all int
	of  map[string]int // by who they are
}

// come takes the place of one who follows, until leave is called.
func (f *followers) come(a *asking) (leave func(), _ error) {
	who, named := a.who()
	whose := "from your address (or that of a proxy before you)"
	if named {
		whose = "by you"
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.of[who] >= maxOfOne:
		return nil, typed(tooManyStreams, retry(behindRetry, huma.Error429TooManyRequests(fmt.Sprintf("%d orders or lists are followed %s, which is the most for one; end one, or ask now and then", maxOfOne, whose))))
	case f.all >= maxFollowers:
		return nil, typed(tooBusy, retry(behindRetry, huma.Error503ServiceUnavailable(fmt.Sprintf("%d orders or lists are followed, which is the most at a time; try again later, or ask now and then", maxFollowers))))
	case f.of == nil:
		f.of = make(map[string]int)
	}
	f.all++
	f.of[who]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.all--
		if f.of[who]--; f.of[who] == 0 {
			delete(f.of, who)
		}
	}, nil
}

// count says how many there are.
func (f *followers) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all
}

// following is a stream of an order's events.
type following struct {
	*Server
	instance  *orchestrator.Instance
	operation string
	id        string
	after     uint64 // the number of the last event that was sent
	masked    bool
	decodes   bool // payloads are asked for decoded
	told      bool // that some were decoded is in the audit log
	out       http.ResponseWriter
	control   *http.ResponseController
}

// run sends events until the order has ended, or nobody reads them, or ctx ends. It has no place among the requests that
// are answered but while it reads.
func (f *following) run(ctx context.Context) {
	f.out.Header().Set("Content-Type", eventStream)
	_ = f.control.SetReadDeadline(time.Time{}) // of the request, which was read; who closes the connection is heard
	watch := f.instance.Watch(f.id)
	defer watch.Close()
	over, quiet := time.NewTimer(f.followFor), time.NewTicker(keepAlive)
	defer over.Stop()
	defer quiet.Stop()
	place := placeOf(ctx)
	if f.decodes && f.send(nil) != nil { // that it follows is heard before the codec is
		return
	}
	for {
		if !place.again(ctx) {
			return
		}
		o, page, err := f.next(ctx)
		place.free()
		if err != nil {
			f.fails(ctx, err)
			return
		}
		text, err := f.text(ctx, page.Events)
		if ctx.Err() != nil {
			return // who resumes has what comes of it decoded
		}
		if err != nil {
			f.fails(ctx, f.broken("mask the events of order "+f.id, err))
			return
		}
		if f.send(text) != nil {
			return
		}
		if page.Next > 0 {
			select {
			case <-over.C:
				return
			default:
				continue
			}
		}
		if o.State.Final() && f.after >= o.Seq {
			return
		}
		select {
		case <-watch.Written:
		case <-quiet.C: // the order may not be kept here any more
			if f.send([]byte(": nothing new\n\n")) != nil {
				return
			}
		case <-over.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// next reads how the order stands, and then events behind those that were sent.
func (f *following) next(ctx context.Context) (*projections.Order, orchestrator.HistoryPage, error) {
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	o, _, err := f.instance.Order(f.id)
	if err != nil {
		return nil, orchestrator.HistoryPage{}, f.orderError(f.id, "follow order", err)
	}
	page, err := f.instance.History(ctx, f.id, f.after, followPage)
	if err != nil {
		return nil, orchestrator.HistoryPage{}, f.orderError(f.id, "read the history of order", err)
	}
	return o, page, nil
}

// text is how events are sent, and takes them for sent. What is decoded of them is asked for at once: a page is less than the codec is sent at a time.
func (f *following) text(ctx context.Context, page []events.Event) ([]byte, error) {
	var p payloads
	upTo := make([]int, len(page)+1) // how many payloads the events before it have
	if f.decodes && !f.masked {
		for n := range page {
			p.event(&page[n])
			upTo[n+1] = len(p.values)
		}
	}
	why := f.decode(ctx, &p)
	var text []byte
	for n := range page {
		event := page[n].Append(nil)
		if why != "" && upTo[n+1] > upTo[n] {
			event = append(append(append(event[:len(event)-1], `,"undecoded":`...), strconv.Quote(why)...), '}')
		}
		if f.masked {
			var err error
			if event, err = maskedEvent(event); err != nil {
				return nil, err
			}
		}
		if events.Depth(event) > codec.Deepest || !utf8.Valid(event) { // as a codec may have it
			var err error
			if event, err = encodeSent(json.RawMessage(event)); err != nil {
				return nil, err
			}
		}
		text = appendSent(text, strconv.FormatUint(page[n].Seq, 10), "", event)
		f.after = page[n].Seq
	}
	return text, nil
}

// decode has payloads be decoded, or says why they are not.
func (f *following) decode(ctx context.Context, p *payloads) (why string) {
	if why = f.decoded(ctx, p); why == "" && len(p.values) > 0 && !f.told {
		f.told = true
		f.audit(ctx, decodedFor, "operation", f.operation, "of", f.id)
	}
	return why
}

// appendSent appends a server-sent event, whose data are JSON: line breaks are but between its values.
func appendSent(text []byte, id, kind string, data []byte) []byte {
	if id != "" {
		text = append(append(append(text, "id: "...), id...), '\n')
	}
	if kind != "" {
		text = append(append(append(text, "event: "...), kind...), '\n')
	}
	data = bytes.ReplaceAll(bytes.ReplaceAll(data, []byte{'\n'}, []byte{' '}), []byte{'\r'}, []byte{' '})
	return append(append(append(text, "data: "...), data...), "\n\n"...)
}

// send hands text to the reader, who must take it in time. Between what is sent there is no deadline: it would end the stream.
func (f *following) send(text []byte) error {
	_ = f.control.SetWriteDeadline(time.Now().Add(f.patience))
	_, err := f.out.Write(text)
	if err == nil {
		err = f.control.Flush()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		f.log.Info("a stream was ended, because its reader took nothing", "for", f.patience)
	}
	_ = f.control.SetWriteDeadline(time.Time{})
	return err
}

// fails tells the reader why the stream ends, if ctx has not.
func (f *following) fails(ctx context.Context, err error) {
	model, is := errors.AsType[*huma.ErrorModel](err)
	if ctx.Err() != nil || !is {
		return
	}
	told := &Problem{Type: cmp.Or(model.Type, typeOf(model.Status)), Title: model.Title, Status: model.Status, Detail: model.Detail}
	if there, is := errors.AsType[*elsewhere](err); is {
		told.Owner = there.Owner
	}
	problem, err := json.Marshal(told)
	if err == nil {
		_ = f.send(appendSent(nil, "", "problem", problem)) // whoever hung up needs no answer
	}
}
