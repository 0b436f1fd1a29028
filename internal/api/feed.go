package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/danielgtaylor/huma/v2/negotiation"
	"github.com/google/uuid"

	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
)

// What is kept for those who follow lists. More than one of them may have to hear is a reset.
const (
	keptChanges, keptChangeBytes     = 2048, 8 << 20 // to resume with
	pendingChanges, pendingPerStream = 1000, 4 << 20 // that one stream has not sent; bytes, which streams share
	changesAtOnce                    = 100           // that are made text at a time
	// followPace is about how long what is written is gathered before it is sent.
	followPace = 100 * time.Millisecond
)

const eventStream = "text/event-stream"

// asStream has what can be followed be answered by streams to who asks for server-sent events.
func asStream(streams, all *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if negotiation.SelectQValue(r.Header.Get("Accept"), []string{"application/json", eventStream}) == eventStream {
			if _, pattern := streams.Handler(r); pattern != "" {
				streams.ServeHTTP(w, r)
				return
			}
		}
		all.ServeHTTP(w, r)
	})
}

// streamed adds to the description of a listing that it can be followed. What the stream says stands in docs/api.md.
func streamed[Page any](api huma.API) map[string]*huma.Response {
	page := answers[Page](api, "A page, or, where Accept asks for text/event-stream, what changes")
	page.Content[eventStream] = sentEvents()
	return map[string]*huma.Response{"200": page}
}

// FollowInput is what streams of a list take.
type FollowInput struct {
	Last string `header:"Last-Event-ID" doc:"With Accept: text/event-stream, the id of the last event that was received. A browser's EventSource sends it by itself"`
}

// followsLists registers what is answered as a stream at the paths of listings. It stands in OpenAPI with these.
func (s *Server) followsLists(api huma.API) {
	register(api, identity.Viewer, huma.Operation{OperationID: "follow-orders", Method: http.MethodGet, Path: "/api/v1/orders", Errors: []int{http.StatusServiceUnavailable}},
		func(ctx context.Context, in *struct {
			ListFilter
			FollowInput
		},
		) (*huma.StreamResponse, error) {
			filter, err := filterOf(ctx, &in.ListFilter)
			if err != nil {
				return nil, err
			}
			return s.followList(ctx, in.Last, "order", filter.Selects, func(ctx context.Context, f *followingList, all []*pendingChange) (texts [][]byte, err error) {
				texts = make([][]byte, len(all))
				for n, p := range all {
					if p.is && err == nil {
						texts[n], err = p.summary(callerOf(ctx).May(identity.PayloadReader, p.Is.Workflow), f.instance.Partition(p.Is.ID))
					}
				}
				return texts, err
			})
		})
	register(api, identity.Viewer, huma.Operation{OperationID: "follow-alerts", Method: http.MethodGet, Path: "/api/v1/alerts", Errors: []int{http.StatusServiceUnavailable}},
		func(ctx context.Context, in *struct {
			FollowInput
			DecodeInput
		},
		) (*huma.StreamResponse, error) {
			seen := visible(callerOf(ctx), identity.Viewer)
			alerted := func(o *projections.Order) bool { return o.Alert != nil && (seen == nil || seen(o.Workflow)) }
			return s.followList(ctx, in.Last, "alert", alerted, func(ctx context.Context, f *followingList, all []*pendingChange) ([][]byte, error) {
				return f.alerts(ctx, all, in.Decode)
			})
		})
}

// FollowedAlert is an alert as a stream tells it.
type FollowedAlert struct {
	*Alert
	NotDecoded
}

// alerts are the texts of those that changes are of, decoded at once if that is asked for: what a stream holds is less than the codec is sent at a time.
func (f *followingList) alerts(ctx context.Context, all []*pendingChange, decodes bool) (texts [][]byte, err error) {
	told := make([]FollowedAlert, len(all))
	upTo := make([]int, len(all)+1) // how many payloads the alerts before it have
	var p payloads
	for n, c := range all {
		if c.is {
			told[n].Alert = alertOf(c.Is)
			if !callerOf(ctx).May(identity.PayloadReader, c.Is.Workflow) {
				maskAlert(told[n].Alert)
			} else if decodes {
				p.alert(told[n].Alert)
			}
		}
		upTo[n+1] = len(p.values)
	}
	why := f.decode(ctx, &p)
	texts = make([][]byte, len(all))
	for n := range told {
		if upTo[n+1] > upTo[n] {
			told[n].Undecoded = why
		}
		if told[n].Alert != nil && err == nil {
			texts[n], err = encodeSent(told[n])
		}
	}
	return texts, err
}

// encodeSent makes JSON of what a stream sends, as answers are made of it.
func encodeSent(v any) ([]byte, error) {
	var text strings.Builder
	err := format.Marshal(&text, v)
	return []byte(strings.TrimSuffix(text.String(), "\n")), err
}

// listChange is one of what was written, by its number among all.
type listChange struct {
	projections.Change
	number uint64
	texts  [2]struct { // of its summary, masked and whole: many hear the same
		once sync.Once
		text []byte
		err  error
	}
}

// summary is how the order is listed, for those who may read payloads, or not.
func (c *listChange) summary(may bool, partition int32) ([]byte, error) {
	t := &c.texts[map[bool]int{true: 1}[may]]
	t.once.Do(func() {
		told := summaryOf(partition, c.Is, time.Now())
		if !may {
			told.mask()
		}
		t.text, t.err = encodeSent(told)
	})
	return t.text, t.err
}

// listener is who follows a list.
type listener struct {
	selects func(*projections.Order) bool
	wake    chan struct{} // has one if there is something to send

	mu      sync.Mutex
	pending map[string]*pendingChange // by order
	turns   []string                  // their orders, the first that changed first
	bytes   int
	reset   string // why the list is to be read again; "" if it is not
	upTo    uint64 // what was heard of
}

// pendingChange is what became of an order since it was told of last: the last change is enough.
type pendingChange struct {
	*listChange
	first uint64 // the number of the first that was not sent
	was   bool   // on the list, for all that was sent
	is    bool
}

// hear takes a change. It waits for nobody.
func (l *listener) hear(c *listChange) {
	was, is := c.Was != nil && l.selects(c.Was), c.Is != nil && l.selects(c.Is)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.upTo = c.number
	if !was && !is {
		return
	}
	id := c.order()
	if p := l.pending[id]; p != nil {
		l.bytes += c.Size - p.Size
		p.listChange, p.is = c, is
	} else {
		l.bytes += c.Size
		l.pending[id] = &pendingChange{c, c.number, was, is}
		l.turns = append(l.turns, id)
	}
	if len(l.turns) > pendingChanges || l.bytes > pendingPerStream {
		l.drop("more changed than is kept for a stream that has not sent it")
	}
	l.ring()
}

func (c *listChange) order() string {
	if c.Is == nil {
		return c.Was.ID
	}
	return c.Is.ID
}

// drop has the list be read again. l.mu is held.
func (l *listener) drop(why string) {
	l.pending, l.turns, l.bytes, l.reset = make(map[string]*pendingChange), nil, 0, why
}

func (l *listener) ring() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// take returns what is to be sent next, whether there is more, and the number to resume behind: all before it was sent.
func (l *listener) take() (all []*pendingChange, reset string, upTo uint64, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.turns), changesAtOnce)
	if reset, l.reset = l.reset, ""; reset != "" {
		n = 0 // what comes behind it was not sent yet
	}
	for _, id := range l.turns[:n] {
		p := l.pending[id]
		delete(l.pending, id)
		l.bytes -= p.Size
		all = append(all, p)
	}
	if l.turns = l.turns[n:]; len(l.turns) == 0 {
		l.turns = nil
		return all, reset, l.upTo, false
	}
	return all, reset, l.pending[l.turns[0]].first - 1, true
}

// listFeed tells those who follow lists of an instance what is written there. One goroutine does, and nothing that writes
// waits for it.
type listFeed struct {
	instance *orchestrator.Instance
	leftOut  func() orchestrator.LeftOut
	name     string // of the feed: its numbers are its own

	mu     sync.Mutex
	ended  bool
	number uint64 // of the last change
	recent []*listChange
	bytes  int // of those
	all    map[*listener]struct{}
	left   orchestrator.LeftOut
}

func newListFeed(i *orchestrator.Instance, leftOut func() orchestrator.LeftOut) *listFeed {
	return &listFeed{instance: i, leftOut: leftOut, name: uuid.NewString(), all: make(map[*listener]struct{}), left: leftOut()}
}

// listen adds a listener to the feed of the instance that is attached, which begins with the first.
func (s *Server) listen(l *listener, last string) (*listFeed, error) {
	u, why := s.borrow()
	if why != nil {
		return nil, retryUnknown(fmt.Sprintf("not ready: %v; try again in a moment", why))
	}
	s.feedMu.Lock()
	defer s.feedMu.Unlock()
	if f := s.feed; f != nil && f.instance == u.Instance && f.join(l, last) {
		u.by.Done()
		return f, nil
	}
	source := u.Feed() // before anybody reads a list
	f := newListFeed(u.Instance, u.LeftOut)
	f.join(l, last)
	s.feed = f
	go func() {
		defer u.by.Done()
		defer source.Close()
		f.run(u.alive, source)
	}()
	return f, nil
}

// join adds a listener, which hears what it missed since the event of an id if that is known, and else that the list is
// to be read. It reports false if the feed has ended.
func (f *listFeed) join(l *listener, last string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return false
	}
	l.mu.Lock()
	l.upTo = f.number
	l.drop("from now on it is told what changes")
	l.ring()
	name, number, _ := strings.Cut(last, "/")
	n, err := strconv.ParseUint(number, 10, 64)
	known := name == f.name && err == nil && n <= f.number && f.number-n <= uint64(len(f.recent))
	if known {
		l.reset = ""
	}
	l.mu.Unlock()
	if known {
		for _, c := range f.recent[len(f.recent)-int(f.number-n):] {
			l.hear(c)
		}
	}
	f.all[l] = struct{}{}
	return true
}

func (f *listFeed) leave(l *listener) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, l)
}

// run tells what the source has until ctx ends, or nobody has listened for a while: who resumes is soon back.
func (f *listFeed) run(ctx context.Context, source *projections.Feed) {
	look := time.NewTicker(keepAlive)
	defer look.Stop()
	deserted := 0
	for {
		select {
		case <-source.Written:
			changes, lost := source.Take()
			f.tell(nil, lost)
			for some := range slices.Chunk(changes, changesAtOnce) { // who comes and goes waits for no more
				f.tell(some, false)
			}
		case <-look.C:
			if f.turned() {
				f.tell(nil, true)
			}
			if deserted++; f.heard() {
				deserted = 0
			}
			if deserted >= 2 && f.end(false) {
				return
			}
		case <-ctx.Done():
			f.end(true)
			return
		}
	}
}

// tell tells all what was written.
func (f *listFeed) tell(changes []projections.Change, lost bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if lost {
		f.number++ // nobody resumes behind what was lost
		f.recent, f.bytes, f.left = nil, 0, f.leftOut()
		for l := range f.all {
			l.mu.Lock()
			l.upTo = f.number
			l.drop("orders may have changed of which nothing was told, or the partitions that the list has")
			l.ring()
			l.mu.Unlock()
		}
	}
	for n := range changes {
		f.number++
		c := &listChange{Change: changes[n], number: f.number}
		f.recent, f.bytes = append(f.recent, c), f.bytes+c.Size
		for l := range f.all {
			l.hear(c)
		}
	}
	for len(f.recent) > keptChanges || f.bytes > keptChangeBytes {
		f.bytes -= f.recent[0].Size
		f.recent = f.recent[1:]
	}
}

// turned says whether the list has other partitions than before.
func (f *listFeed) turned() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !reflect.DeepEqual(f.left, f.leftOut())
}

func (f *listFeed) heard() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.all) > 0
}

// end ends the feed; unless that must be, not where somebody came.
func (f *listFeed) end(must bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = must || len(f.all) == 0
	return f.ended
}

// FollowReset is what is sent where a list is to be read, or read again.
type FollowReset struct {
	Detail string `json:"detail"`
	LeftOut
}

// FollowLeft is what is sent of an order that left a list: its id under the name that it has in the list. Of an alert it stands
// under both, since clients go by orderId, too.
type FollowLeft struct {
	OrderID string `json:"orderId"`
	Order   string `json:"order,omitempty"`
}

// followList sends what changes on a list.
func (s *Server) followList(ctx context.Context, last, kind string, selects func(*projections.Order) bool, encode func(context.Context, *followingList, []*pendingChange) ([][]byte, error)) (_ *huma.StreamResponse, err error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	leave, err := s.followers.come(askingOf(ctx))
	if err != nil {
		done()
		return nil, err
	}
	f := &followingList{following: following{Server: s, instance: i, operation: "follow-" + kind + "s"}, kind: kind, encode: encode, listener: &listener{selects: selects, wake: make(chan struct{}, 1)}}
	if f.feed, err = s.listen(f.listener, last); err != nil {
		leave()
		done()
		return nil, err
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		defer done()
		defer leave()
		defer f.feed.leave(f.listener)
		_, w := humago.Unwrap(c)
		f.out, f.control = w, http.NewResponseController(w)
		placeOf(ctx).free()
		if caller := callerOf(ctx); caller.Somewhere(identity.PayloadReader) {
			s.audit(ctx, "payloads were read", "operation", f.operation) // a stream passes no [Server.mask]
		}
		f.run(ctx)
	}}, nil
}

// followingList is a stream of what changes on a list.
type followingList struct {
	following
	kind string // of events that tell of what is on the list
	// encode makes a text of each change of what is on the list.
	encode   func(ctx context.Context, f *followingList, all []*pendingChange) ([][]byte, error)
	listener *listener
	feed     *listFeed
}

// run sends what changes until nobody reads it, or ctx ends, or it was sent for so long that who asks is to be asked anew.
func (f *followingList) run(ctx context.Context) {
	f.out.Header().Set("Content-Type", eventStream)
	_ = f.control.SetReadDeadline(time.Time{}) // of the request, which was read; who closes the connection is heard
	over, quiet := time.NewTimer(f.followFor), time.NewTicker(keepAlive)
	defer over.Stop()
	defer quiet.Stop()
	pace := time.NewTicker(followPace)
	defer pace.Stop()
	for {
		select {
		case <-f.listener.wake:
		case <-quiet.C:
			if f.send([]byte(": nothing new\n\n")) != nil {
				return
			}
			continue
		case <-over.C:
			return
		case <-ctx.Done():
			return
		}
		for more := true; more; {
			var text []byte
			var err error
			text, more, err = f.next(ctx)
			if ctx.Err() != nil {
				return // who resumes has what comes of it decoded
			}
			if err != nil {
				f.fails(ctx, f.broken("tell what changes on a list", err))
				return
			}
			if len(text) > 0 && f.send(text) != nil {
				return
			}
		}
		select { // what is written meanwhile is sent together
		case <-pace.C:
		case <-ctx.Done():
			return
		}
	}
}

// next is what is to be sent now, and whether more is.
func (f *followingList) next(ctx context.Context) (text []byte, more bool, _ error) {
	all, reset, upTo, more := f.listener.take()
	id := f.feed.name + "/" + strconv.FormatUint(upTo, 10)
	if reset != "" {
		data, err := json.Marshal(&FollowReset{"read the list: " + reset, LeftOut(f.instance.LeftOut())})
		if err != nil {
			return nil, false, fmt.Errorf("encode a reset: %w", err)
		}
		text = appendSent(text, id, "reset", data)
	}
	texts, err := f.encode(ctx, f, all)
	if err != nil {
		return nil, false, err
	}
	for n, p := range all {
		data := texts[n]
		kind, with := f.kind, ""
		switch {
		case p.is:
		case p.was:
			kind = "left"
			gone := &FollowLeft{OrderID: p.order()}
			if f.kind == "alert" {
				gone.Order = gone.OrderID
			}
			if data, err = json.Marshal(gone); err != nil {
				return nil, false, fmt.Errorf("encode what left a list: %w", err)
			}
		default:
			continue // it came and left again
		}
		if n == len(all)-1 {
			with = id
		}
		text = appendSent(text, with, kind, data)
	}
	return text, more, nil
}
