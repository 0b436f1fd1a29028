package api

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/address"
)

// Client talks to a running instance. What the server refuses is a [*Problem].
type Client struct {
	base    string
	shown   string // the same for people: without what it says of who asks
	token   string
	decodes bool // see [Client.Decoding]
	http    *http.Client
	server  *url.URL // of which base is made; nil for one that asks nobody else
	trusted []string // see [WithOwners]
}

// Option says how a [Client] asks.
type Option func(*Client)

// WithToken has requests say whose they are; "" says nothing.
func WithToken(token string) Option { return func(c *Client) { c.token = token } }

// WithTLS says whom the client trusts, and with which certificate it comes; nil is as
// without.
func WithTLS(config *tls.Config) Option {
	return func(c *Client) { c.http.Transport.(*http.Transport).TLSClientConfig = config } //nolint:forcetypeassert // it is ours
}

// WithOwners has what says who asks go to the owners of orders, too, whose hosts are covered by one of these patterns: a host,
// a network such as 10.1.0.0/16, * for all, or a pattern as [path.Match] has them. The last may leave open all of a host name but
// its last part, as in *.waybill.svc; one that has no dot, such as waybill-*, covers names without a dot. Of IP addresses it covers those of
// IPv4 if it has a dot, and those of IPv6 if it has a colon. Without, it goes to no other host than the server's.
func WithOwners(patterns []string) Option { return func(c *Client) { c.trusted = patterns } }

// ErrAway says that no instance answered at the address.
var ErrAway = errors.New("no Waybill answers")

// UnansweredError says that an instance was asked and that no answer came.
type UnansweredError struct{ error }

// Unwrap returns why.
func (e UnansweredError) Unwrap() error { return e.error }

// NewClient returns a client of the server at an address such as
// http://127.0.0.1:8080. Close it.
func NewClient(server string, opts ...Option) (*Client, error) {
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	if scheme, host, _ := strings.Cut(server, "://"); strings.HasPrefix(host, ":") { // as where a server listens is said
		server = scheme + "://localhost" + host
	}
	u, err := address.Parse(server, address.User)
	if err != nil {
		server = server[strings.LastIndex(server, "@")+1:] // what stands before it may be a password
		return nil, fmt.Errorf("%q: give an address such as http://127.0.0.1:8080: %w", server, err)
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: time.Minute,
		MaxIdleConnsPerHost: connections,
	}
	c := &Client{base: strings.TrimSuffix(u.String(), "/"), http: &http.Client{
		Transport: transport,
		// What says who asks goes to no other server, nor in clear.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	c.server = u
	shown := *u
	shown.User = nil
	c.shown = strings.TrimSuffix(shown.String(), "/")
	connectsWithin(dialTimeout)(c)
	for _, set := range opts {
		set(c)
	}
	return c, nil
}

// Decoding is the same client, which asks for payloads as the server's codec decodes them, where the server has that for what is read. What it returns is to be
// shown, and nothing else: it says in Undecoded why payloads are as they are stored.
func (c *Client) Decoding() *Client {
	own := *c
	own.decodes = true
	return &own
}

// decoded is a query of what may be decoded.
func (c *Client) decoded(query map[string]string) url.Values {
	all := values(query)
	if c.decodes {
		all.Set("decode", "true")
	}
	return all
}

// connections is how many connections are kept: as many as are used at once when
// many orders are acted on.
const connections = 32

// dialTimeout is how long a connection may take: an address that is told may be of a host that is gone.
const dialTimeout = 5 * time.Second

// connectsWithin says how long a connection may take, and the handshake of TLS behind that.
func connectsWithin(most time.Duration) Option {
	return func(c *Client) {
		t := c.http.Transport.(*http.Transport) //nolint:forcetypeassert // it is ours
		t.DialContext, t.TLSHandshakeTimeout = (&net.Dialer{Timeout: most}).DialContext, most
	}
}

// Close closes the connections that are kept for later requests.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// encode makes JSON of what is asked for. An input that is {}, [] or "" is one.
func encode(v any, opts ...jsonv2.Options) ([]byte, error) {
	return jsonv2.Marshal(v, jsonv1.OmitEmptyWithLegacySemantics(true), jsonv2.JoinOptions(opts...))
}

// Submit submits an order and returns its id.
func (c *Client) Submit(ctx context.Context, s *Submission) (string, error) {
	body, err := encode(s, jsontext.AllowDuplicateNames(true))
	if err != nil {
		return "", fmt.Errorf("encode the submission: %w", err)
	}
	var receipt Receipt
	err = c.call(ctx, http.MethodPost, "/api/v1/orders", nil, body, &receipt)
	return receipt.OrderID, err
}

// Rerun runs an order that has ended again, as a new one. With an ID it may be repeated until it
// is known what became of it.
func (c *Client) Rerun(ctx context.Context, id string, r *Rerun) (*Receipt, error) {
	path, err := orderPath(id)
	if err != nil {
		return nil, err
	}
	body, err := encode(r, jsontext.AllowDuplicateNames(true))
	if err != nil {
		return nil, fmt.Errorf("encode the rerun: %w", err)
	}
	receipt := new(Receipt)
	return receipt, c.call(ctx, http.MethodPost, path+"/rerun", nil, body, receipt)
}

// Ready returns nil when the instance serves all that it was given.
func (c *Client) Ready(ctx context.Context) error {
	return c.call(ctx, http.MethodGet, "/readyz", nil, nil, nil)
}

// Agents returns how the server's instance stands with agents, and if attendance is wanted, which Kafka is asked for, who
// reads their requests.
func (c *Client) Agents(ctx context.Context, attendance bool) (*Agents, error) {
	var all Agents
	return &all, c.call(ctx, http.MethodGet, "/api/v1/agents", url.Values{"attendance": {strconv.FormatBool(attendance)}}, nil, &all)
}

// Activity returns what the server's instance measured in the last hour.
func (c *Client) Activity(ctx context.Context) (*Activity, error) {
	var a Activity
	return &a, c.call(ctx, http.MethodGet, "/api/v1/activity", nil, nil, &a)
}

// Caller returns who asks, and what it may do.
func (c *Client) Caller(ctx context.Context) (*Caller, error) {
	caller := new(Caller)
	return caller, c.call(ctx, http.MethodGet, "/api/v1/caller", nil, nil, caller)
}

// Order returns the state record of an order.
func (c *Client) Order(ctx context.Context, id string) (*Order, error) {
	path, err := orderPath(id)
	if err != nil {
		return nil, err
	}
	var o Order
	return &o, c.call(ctx, http.MethodGet, path, c.decoded(nil), nil, &o)
}

// OrderAsOf returns the state record of an order as it was after its event of a number.
func (c *Client) OrderAsOf(ctx context.Context, id string, seq uint64) (*Order, error) {
	path, err := orderPath(id)
	if err != nil {
		return nil, err
	}
	var o Order
	return &o, c.call(ctx, http.MethodGet, path+"/history/"+strconv.FormatUint(seq, 10), c.decoded(nil), nil, &o)
}

// History returns all journal events of an order, each as it stands in the
// journal.
func (c *Client) History(ctx context.Context, id string) (*History, error) {
	return c.HistoryAfter(ctx, id, 0)
}

// HistoryAfter returns what happened to the order after an event, by its number.
func (c *Client) HistoryAfter(ctx context.Context, id string, seq uint64) (*History, error) {
	all := &History{Events: []json.RawMessage{}}
	for after := strconv.FormatUint(seq, 10); ; {
		page, err := c.HistoryPage(ctx, id, after, 0)
		if err != nil {
			return nil, err
		}
		all.Events, all.Masked = append(all.Events, page.Events...), all.Masked || page.Masked
		all.Undecoded = cmp.Or(all.Undecoded, page.Undecoded)
		if after = page.Next; after == "" {
			return all, nil
		}
	}
}

// HistoryPage returns a page of what happened to the order, after the place where another ended, or after an
// event, by its number. With a limit of 0 it is as long as the server makes it.
func (c *Client) HistoryPage(ctx context.Context, id, after string, limit int) (*History, error) {
	path, err := orderPath(id)
	if err != nil {
		return nil, err
	}
	query := map[string]string{"after": after}
	if limit > 0 {
		query["limit"] = strconv.Itoa(limit)
	}
	page := new(History)
	return page, c.call(ctx, http.MethodGet, path+"/history", c.decoded(query), nil, page)
}

func orderPath(id string) (string, error) {
	if err := events.CheckOrderID(id); err != nil {
		return "", err
	}
	return "/api/v1/orders/" + PathEscape(id), nil
}

// Filter selects orders; what is empty selects all.
type Filter struct {
	State    string
	Workflow string
	// Step selects orders of which this step failed, or its undo.
	Step string
	// Where selects orders that are found by each NAME=VALUE.
	Where []string
	// Newest has them by when they were accepted, the newest first; it takes Workflow, and not Where.
	Newest bool
}

// Orders returns a page of the orders.
func (c *Client) Orders(ctx context.Context, f Filter, limit int, after string) (*OrderPage, error) {
	var page OrderPage
	query := values(map[string]string{
		"state": f.State, "workflow": f.Workflow, "step": f.Step, "limit": strconv.Itoa(limit), "after": after,
	})
	query["where"] = f.Where
	if f.Newest {
		query.Set("sort", "accepted")
	}
	if err := c.call(ctx, http.MethodGet, "/api/v1/orders", query, nil, &page); err != nil {
		return &page, err
	}
	for i := range page.Orders {
		if o := &page.Orders[i]; slices.ContainsFunc(f.Where, func(where string) bool { return !o.found(where) }) {
			return &OrderPage{}, fmt.Errorf("%s lists order %q, which is not found by what was asked for: it is of a release that does not know where; upgrade it", c.shown, o.OrderID)
		}
	}
	return &page, nil
}

// found says whether the order has the label of a NAME=VALUE, as the server reads that.
func (o *Summary) found(where string) bool {
	name, value, _ := strings.Cut(where, "=")
	is, has := o.Labels[name]
	return has && is == events.LabelValue(value)
}

// Command has the order's owner carry out an operator's command, and returns
// the state record afterwards. With the same ID it may be repeated until the
// outcome is known.
func (c *Client) Command(ctx context.Context, id string, command *events.Command) (*Order, error) {
	path, err := orderPath(id)
	if err != nil {
		return nil, err
	}
	body, err := encode(&struct {
		*events.Command
		Name string `json:"command,omitzero"` // the path says it
		Key  string `json:"id,omitzero"`      // a header says it
	}{Command: command}, jsontext.AllowDuplicateNames(true))
	if err != nil {
		return nil, fmt.Errorf("encode the command: %w", err)
	}
	request, err := c.request(ctx, http.MethodPost, path+"/"+command.Command, nil, body)
	if err != nil {
		return nil, err
	}
	if command.ID != "" {
		request.Header.Set("Idempotency-Key", command.ID)
	}
	response, err := c.send(request)
	if err != nil {
		return nil, err
	}
	var o Order
	return &o, c.read(response, &o)
}

// PrepareBulk has the orders of a bulk act looked up. Nothing is done to them.
func (c *Client) PrepareBulk(ctx context.Context, r *BulkRequest) (*Bulk, error) {
	body, err := encode(r, jsontext.AllowDuplicateNames(true))
	if err != nil {
		return nil, fmt.Errorf("encode the bulk act: %w", err)
	}
	b := new(Bulk)
	return b, c.call(ctx, http.MethodPost, "/api/v1/bulk", nil, body, b)
}

// Bulk returns how a bulk act stands.
func (c *Client) Bulk(ctx context.Context, id string) (*Bulk, error) {
	b := new(Bulk)
	return b, c.call(ctx, http.MethodGet, bulkPath(id), nil, nil, b)
}

// Bulks returns the bulk acts that the instance knows, newest first.
func (c *Client) Bulks(ctx context.Context) (*BulkPage, error) {
	page := new(BulkPage)
	return page, c.call(ctx, http.MethodGet, "/api/v1/bulk", nil, nil, page)
}

// BulkOrders returns a page of the orders that a bulk act is about.
func (c *Client) BulkOrders(ctx context.Context, id string, limit, after int) (*BulkOrders, error) {
	return c.bulkOrders(ctx, id, map[string]string{"limit": strconv.Itoa(limit), "after": strconv.Itoa(after)})
}

// BulkOrdersNow is [Client.BulkOrders] with how each of the orders is now.
func (c *Client) BulkOrdersNow(ctx context.Context, id string, limit, after int) (*BulkOrders, error) {
	return c.bulkOrders(ctx, id, map[string]string{"limit": strconv.Itoa(limit), "after": strconv.Itoa(after), "now": "true"})
}

func (c *Client) bulkOrders(ctx context.Context, id string, query map[string]string) (*BulkOrders, error) {
	page := new(BulkOrders)
	return page, c.call(ctx, http.MethodGet, bulkPath(id)+"/orders", values(query), nil, page)
}

// StartBulk has a bulk act be carried out. One that was started before is not started again.
func (c *Client) StartBulk(ctx context.Context, id string) (*Bulk, error) {
	b := new(Bulk)
	return b, c.call(ctx, http.MethodPost, bulkPath(id)+"/start", nil, nil, b)
}

// StopBulk ends a bulk act: what was done stays done.
func (c *Client) StopBulk(ctx context.Context, id string) (*Bulk, error) {
	b := new(Bulk)
	return b, c.call(ctx, http.MethodPost, bulkPath(id)+"/stop", nil, nil, b)
}

func bulkPath(id string) string { return "/api/v1/bulk/" + PathEscape(id) }

// Schedules returns a page of the schedules.
func (c *Client) Schedules(ctx context.Context, limit int, after string) (*SchedulePage, error) {
	var page SchedulePage
	return &page, c.call(ctx, http.MethodGet, "/api/v1/schedules", c.decoded(map[string]string{"limit": strconv.Itoa(limit), "after": after}), nil, &page)
}

// Schedule returns a schedule, and how it stands.
func (c *Client) Schedule(ctx context.Context, name string) (*Schedule, error) {
	s := new(Schedule)
	return s, c.call(ctx, http.MethodGet, schedulePath(name), c.decoded(nil), nil, s)
}

// Preview returns the next ticks of a schedule behind a time; a zero time is now.
func (c *Client) Preview(ctx context.Context, name string, after time.Time, count int) (*Ticks, error) {
	query := map[string]string{"count": strconv.Itoa(count)}
	if !after.IsZero() {
		query["after"] = after.UTC().Format(time.RFC3339Nano)
	}
	t := new(Ticks)
	return t, c.call(ctx, http.MethodGet, schedulePath(name)+"/preview", values(query), nil, t)
}

// Apply has a schedule be as it is given. Under its key the command acts once.
func (c *Client) Apply(ctx context.Context, name, key string, s *Application) (*Schedule, error) {
	body, err := encode(s, jsontext.AllowDuplicateNames(true))
	if err != nil {
		return nil, fmt.Errorf("encode the schedule: %w", err)
	}
	return sent[Schedule](ctx, c, http.MethodPut, schedulePath(name), key, body)
}

// ActOnSchedule pauses, resumes or deletes a schedule. Under its key the command acts once.
func (c *Client) ActOnSchedule(ctx context.Context, name, key, command string, act *Act) (*Schedule, error) {
	if command == events.CommandDelete {
		return keyed[Schedule](ctx, c, http.MethodDelete, schedulePath(name), key, act)
	}
	return keyed[Schedule](ctx, c, http.MethodPost, schedulePath(name)+"/"+command, key, act)
}

// Backfill has ticks of a schedule begin orders that have passed. Under its key the command acts once.
func (c *Client) Backfill(ctx context.Context, name, key string, r *BackfillRequest) (*Schedule, error) {
	return keyed[Schedule](ctx, c, http.MethodPost, schedulePath(name)+"/backfill", key, r)
}

func schedulePath(name string) string { return "/api/v1/schedules/" + PathEscape(name) }

// Key returns what there is under a key of the business.
func (c *Client) Key(ctx context.Context, key string) (*Keyed, error) {
	var k Keyed
	return &k, c.call(ctx, http.MethodGet, "/api/v1/keys", url.Values{"key": {key}}, nil, &k)
}

// Limits returns a page of the limits.
func (c *Client) Limits(ctx context.Context, limit int, after string) (*LimitPage, error) {
	var page LimitPage
	return &page, c.call(ctx, http.MethodGet, "/api/v1/limits", values(map[string]string{"limit": strconv.Itoa(limit), "after": after}), nil, &page)
}

// Limit returns a limit, and how it stands.
func (c *Client) Limit(ctx context.Context, name string) (*Limit, error) {
	l := new(Limit)
	return l, c.call(ctx, http.MethodGet, limitPath(name), nil, nil, l)
}

// ApplyLimit has a limit be as it is given. Under its key the command acts once.
func (c *Client) ApplyLimit(ctx context.Context, name, key string, l *LimitApplication) (*Limit, error) {
	return keyed[Limit](ctx, c, http.MethodPut, limitPath(name), key, l)
}

// DeleteLimit has there be no limit of a name any more. Under its key the command acts once.
func (c *Client) DeleteLimit(ctx context.Context, name, key string, act *Act) (*Limit, error) {
	return keyed[Limit](ctx, c, http.MethodDelete, limitPath(name), key, act)
}

func limitPath(name string) string { return "/api/v1/limits/" + PathEscape(name) }

// keyed is [sent] of what is to be encoded.
func keyed[Answer any](ctx context.Context, c *Client, method, path, key string, command any) (*Answer, error) {
	body, err := encode(command)
	if err != nil {
		return nil, fmt.Errorf("encode the command: %w", err)
	}
	return sent[Answer](ctx, c, method, path, key, body)
}

// sent sends a command that acts once under its key, and reads the answer.
func sent[Answer any](ctx context.Context, c *Client, method, path, key string, body []byte) (*Answer, error) {
	request, err := c.request(ctx, method, path, nil, body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Idempotency-Key", key)
	response, err := c.send(request)
	if err != nil {
		return nil, err
	}
	answer := new(Answer)
	return answer, c.read(response, answer)
}

// Signal tells an order what happened, and returns what became of the signal. With an ID it may be
// repeated until that is known.
func (c *Client) Signal(ctx context.Context, id string, signal *Signal) (*Heard, error) {
	path, err := orderPath(id)
	if err != nil {
		return nil, err
	}
	body, err := encode(signal)
	if err != nil {
		return nil, fmt.Errorf("encode the signal: %w", err)
	}
	h := new(Heard)
	return h, c.call(ctx, http.MethodPost, path+"/signals", nil, body, h)
}

// SignalKey tells whoever waits under a key what happened, as [Client.Signal] does an order.
func (c *Client) SignalKey(ctx context.Context, signal *KeySignal) (*Heard, error) {
	body, err := encode(signal)
	if err != nil {
		return nil, fmt.Errorf("encode the signal: %w", err)
	}
	h := new(Heard)
	return h, c.call(ctx, http.MethodPost, "/api/v1/signals", nil, body, h)
}

// SignalWaits returns a page of the steps that wait for signals; for a signal, and of a workflow, unless these are empty.
func (c *Client) SignalWaits(ctx context.Context, signal, workflow string, limit int, after string) (*SignalWaitPage, error) {
	var page SignalWaitPage
	query := map[string]string{"signal": signal, "workflow": workflow, "limit": strconv.Itoa(limit), "after": after}
	return &page, c.call(ctx, http.MethodGet, "/api/v1/signals/waiting", values(query), nil, &page)
}

// Alerts returns a page of the open alerts.
func (c *Client) Alerts(ctx context.Context, limit int, after string) (*AlertPage, error) {
	return c.AlertsAbout(ctx, "", limit, after)
}

// AlertsAbout returns a page of those of a reason, the oldest first; of all for none.
func (c *Client) AlertsAbout(ctx context.Context, reason events.AlertReason, limit int, after string) (*AlertPage, error) {
	var page AlertPage
	return &page, c.call(ctx, http.MethodGet, "/api/v1/alerts", c.decoded(map[string]string{"reason": string(reason), "limit": strconv.Itoa(limit), "after": after}), nil, &page)
}

// AlertReasons counts the open alerts by their reason, with the oldest of each, at most limit.
func (c *Client) AlertReasons(ctx context.Context, limit int) (*AlertReasons, error) {
	var all AlertReasons
	return &all, c.call(ctx, http.MethodGet, "/api/v1/alerts/reasons", values(map[string]string{"limit": strconv.Itoa(limit)}), nil, &all)
}

// Approvals returns a page of what waits for people to decide; with mine what the caller may, with overdue
// what is due.
func (c *Client) Approvals(ctx context.Context, mine, overdue bool, limit int, after string) (*ApprovalPage, error) {
	query := map[string]string{"limit": strconv.Itoa(limit), "after": after}
	if mine {
		query["mine"] = "true"
	}
	if overdue {
		query["overdue"] = "true"
	}
	var page ApprovalPage
	return &page, c.call(ctx, http.MethodGet, "/api/v1/approvals", c.decoded(query), nil, &page)
}

// LetterFilter selects dead letters; what is empty selects all.
type LetterFilter struct {
	// Reason is a part of the reason, Topic the input, such as orders, and Order the key.
	Reason, Topic, Order string
	// Since leaves out those that were put aside before.
	Since time.Time
}

// DeadLetters returns a page of the inputs that were put aside.
func (c *Client) DeadLetters(ctx context.Context, f LetterFilter, limit int, after string) (*DeadLetterPage, error) {
	query := map[string]string{"reason": f.Reason, "topic": f.Topic, "order": f.Order, "limit": strconv.Itoa(limit), "after": after}
	if !f.Since.IsZero() {
		query["since"] = f.Since.UTC().Format(time.RFC3339Nano)
	}
	var page DeadLetterPage
	return &page, c.call(ctx, http.MethodGet, "/api/v1/dead-letters", values(query), nil, &page)
}

// DeadLetter returns all of an input that was put aside.
func (c *Client) DeadLetter(ctx context.Context, partition int32, offset int64) (*WholeDeadLetter, error) {
	d := new(WholeDeadLetter)
	return d, c.call(ctx, http.MethodGet, fmt.Sprintf("/api/v1/dead-letters/%d/%d", partition, offset), c.decoded(nil), nil, d)
}

// Replay puts an input that was put aside back on its topic, with another value unless that is nil.
func (c *Client) Replay(ctx context.Context, partition int32, offset int64, value []byte) (*Replayed, error) {
	body, err := encode(&Correction{Value: value}, jsontext.AllowDuplicateNames(true))
	if err != nil {
		return nil, fmt.Errorf("encode the value: %w", err)
	}
	r := new(Replayed)
	return r, c.call(ctx, http.MethodPost, fmt.Sprintf("/api/v1/dead-letters/%d/%d/replay", partition, offset), nil, body, r)
}

// Discard has an input that was put aside not be listed any more.
func (c *Client) Discard(ctx context.Context, partition int32, offset int64, act *Act) error {
	body, err := encode(act)
	if err != nil {
		return fmt.Errorf("encode why: %w", err)
	}
	return c.call(ctx, http.MethodPost, fmt.Sprintf("/api/v1/dead-letters/%d/%d/discard", partition, offset), nil, body, nil)
}

// Workflows returns the registered definitions.
func (c *Client) Workflows(ctx context.Context) (*Workflows, error) {
	all := new(Workflows)
	return all, c.call(ctx, http.MethodGet, "/api/v1/workflows", nil, nil, all)
}

// Workflow returns a definition in its canonical form; version 0 is the newest that is not
// retired.
func (c *Client) Workflow(ctx context.Context, name string, version int) (json.RawMessage, error) {
	var definition json.RawMessage
	err := c.call(ctx, http.MethodGet, "/api/v1/workflows/"+PathEscape(name), values(map[string]string{"version": strconv.Itoa(version)}), nil, &definition)
	return definition, err
}

// Versions returns the versions of a workflow, and how many open orders have each.
func (c *Client) Versions(ctx context.Context, name string) (*Versions, error) {
	v := new(Versions)
	return v, c.call(ctx, http.MethodGet, "/api/v1/workflows/"+PathEscape(name)+"/versions", nil, nil, v)
}

// Migration says what would become of an order that goes on as one of another version of its workflow, in
// which its steps have the names that names has by those of now.
func (c *Client) Migration(ctx context.Context, id string, version int, names map[string]string) (*Migration, error) {
	path, err := orderPath(id)
	if err != nil {
		return nil, err
	}
	query := url.Values{"to": {strconv.Itoa(version)}}
	for _, old := range slices.Sorted(maps.Keys(names)) {
		query.Add("map", old+"="+names[old])
	}
	m := new(Migration)
	return m, c.call(ctx, http.MethodGet, path+"/migration", query, nil, m)
}

// Retire lets no new order have a version of a workflow, or ends that.
func (c *Client) Retire(ctx context.Context, name string, version int, retired bool) error {
	body, err := encode(&Retirement{version, retired})
	if err != nil {
		return fmt.Errorf("encode the retirement: %w", err)
	}
	return c.call(ctx, http.MethodPost, "/api/v1/workflows/"+PathEscape(name)+"/retire", nil, body, nil)
}

// Register registers a workflow. Problems are reported under the name file. If no new order may have it
// the answer says why, else it is empty.
func (c *Client) Register(ctx context.Context, file string, source []byte) (retired string, err error) {
	response, err := c.do(ctx, http.MethodPost, "/api/v1/workflows", values(map[string]string{"file": file}), source)
	if err != nil {
		return "", err
	}
	return response.Header.Get(RetiredHeader), c.read(response, nil)
}

// Projection reads the projection of a partition: begin gets the partition's
// head, then yield every key and its value, in order.
func (c *Client) Projection(ctx context.Context, partition int32, begin func(Partition) error, yield func(Entry) error) error {
	path := fmt.Sprintf("/api/v1/partitions/%d/projection", partition)
	response, err := c.do(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := jsontext.NewDecoder(bufio.NewReaderSize(response.Body, 64<<10))
	var head Partition
	if err := jsonv2.UnmarshalDecode(lines, &head); err != nil {
		return fmt.Errorf("read the projection of partition %d: %w", partition, err)
	}
	if err := begin(head); err != nil {
		return err
	}
	for {
		var e Entry
		err := jsonv2.UnmarshalDecode(lines, &e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the projection of partition %d: %w", partition, err)
		}
		if err := yield(e); err != nil {
			return err
		}
	}
}

// Partitions returns the heads of all partitions.
func (c *Client) Partitions(ctx context.Context) ([]Partition, error) {
	var all Partitions
	err := c.call(ctx, http.MethodGet, "/api/v1/partitions", nil, nil, &all)
	return all.Partitions, err
}

// Instances returns the partitions, and which instances there are.
func (c *Client) Instances(ctx context.Context) (*Partitions, error) {
	all := new(Partitions)
	return all, c.call(ctx, http.MethodGet, "/api/v1/partitions", values(map[string]string{"instances": "true"}), nil, all)
}

// SkipLost has a partition go on behind inputs that were lost. The server must be its
// owner.
func (c *Client) SkipLost(ctx context.Context, partition int32, act *Act) (*Partition, error) {
	body, err := encode(act)
	if err != nil {
		return nil, fmt.Errorf("encode the command: %w", err)
	}
	p := new(Partition)
	return p, c.call(ctx, http.MethodPost, fmt.Sprintf("/api/v1/partitions/%d/skip-lost", partition), nil, body, p)
}

// Upgrade says how far the namespace is with an upgrade.
func (c *Client) Upgrade(ctx context.Context) (*Upgrade, error) {
	u := new(Upgrade)
	return u, c.call(ctx, http.MethodGet, "/api/v1/upgrade", nil, nil, u)
}

// FinishUpgrade has the newest format written from now on.
func (c *Client) FinishUpgrade(ctx context.Context) (*Upgrade, error) {
	u := new(Upgrade)
	return u, c.call(ctx, http.MethodPost, "/api/v1/upgrade/finish", nil, nil, u)
}

// failed says that nothing was answered. The library's error has the whole address.
func (c *Client) failed(err error) error {
	if whole, ok := errors.AsType[*url.Error](err); ok {
		err = whole.Err
	}
	return fmt.Errorf("ask %s: %w", c.shown, UnansweredError{err})
}

// values leaves out what is empty.
func values(all map[string]string) url.Values {
	query := make(url.Values)
	for name, value := range all {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query
}

func (c *Client) call(ctx context.Context, method, path string, query url.Values, body []byte, into any) error {
	response, err := c.do(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	return c.read(response, into)
}

// read decodes the body of a response, unless into is nil, and closes it.
func (c *Client) read(response *http.Response, into any) error {
	defer response.Body.Close()
	if into == nil {
		return nil
	}
	if err := jsonv2.UnmarshalRead(response.Body, into, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return fmt.Errorf("read what %s answered: %w", c.shown, err)
	}
	return nil
}

// do returns the response if it is not a refusal. The caller closes its body.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, body []byte) (*http.Response, error) {
	request, err := c.request(ctx, method, path, query, body)
	if err != nil {
		return nil, err
	}
	return c.send(request)
}

func (c *Client) request(ctx context.Context, method, path string, query url.Values, body []byte) (*http.Request, error) {
	address := c.base + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, c.failed(err)
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	if method != http.MethodGet {
		request.Header.Set("Content-Type", "application/json")
	}
	return request, nil
}

// send returns the response if it is not a refusal. The caller closes its body. What the server says that another instance
// answers is asked there, once, if it only reads and [Client.follows] that.
func (c *Client) send(request *http.Request) (*http.Response, error) {
	response, err := c.ask(request)
	problem, refused := errors.AsType[*Problem](err)
	if !refused || problem.Status != http.StatusMisdirectedRequest || problem.Owner == "" || request.Method != http.MethodGet || c.server == nil {
		return response, err
	}
	owner, why := c.follows(problem.Owner)
	if owner == nil {
		problem.Detail += "; it was not asked there: " + why
		return nil, problem
	}
	there := request.Clone(request.Context())
	if there.URL, err = url.Parse(owner.String() + strings.TrimPrefix(request.URL.String(), c.base)); err != nil {
		return nil, c.failed(err)
	}
	there.Host = there.URL.Host
	response, err = (&Client{shown: problem.Owner, http: c.http}).ask(there)
	switch other, answered := errors.AsType[*Problem](err); {
	case answered && other.Status == http.StatusMisdirectedRequest:
		problem.Detail += "; asked there, it says the same: the partition moves, or one of the two does not know yet"
	case errors.Is(err, ErrAway):
		problem.Detail += "; nobody answers there"
	case err != nil && !answered:
		problem.Detail += fmt.Sprintf("; asked there: %v", err)
	default:
		return response, err
	}
	return nil, problem
}

// follows returns the address of an owner that is asked in the server's place, with what says who asks, nil if it is not,
// and why. Who may write to the group of the instances may have said any: nothing goes there in clear that does not to the server, and
// what says who asks to its host alone, and to those of [WithOwners].
func (c *Client) follows(to string) (owner *url.URL, why string) {
	owner, err := address.Advertised(to)
	if err != nil {
		return nil, "it is no address that is followed"
	}
	if c.server.Scheme == "https" && owner.Scheme != "https" {
		return nil, "it is without TLS, and the server is not"
	}
	host := strings.ToLower(owner.Hostname())
	named := slices.ContainsFunc(c.trusted, func(pattern string) bool {
		return covers(strings.TrimSuffix(strings.ToLower(pattern), "."), strings.TrimSuffix(host, "."))
	})
	if c.known() && !named && host != strings.ToLower(c.server.Hostname()) {
		return nil, "what says who you are goes to no other host unless --owner-hosts names it"
	}
	owner.User = c.server.User
	return owner, ""
}

// covers says whether a host is one of those for which a pattern of [WithOwners] is; both are in lower case, without a dot at the end.
// A * stands for dots, too, and whoever likes has names under a domain of his own: so 10.1.* does not cover 10.1.evil.example, nor
// waybill-* waybill-1.evil.example.
func covers(pattern, host string) bool {
	ip, err := netip.ParseAddr(host)
	isIP := err == nil
	if network, err := netip.ParsePrefix(pattern); err == nil {
		return isIP && network.Contains(ip)
	}
	matches, err := path.Match(pattern, host)
	part := host[strings.LastIndex(host, ".")+1:]
	switch {
	case err != nil || !matches:
		return false
	case pattern == "*", pattern == host:
		return true
	case isIP: // not by cafe*, which is for names
		return strings.Contains(pattern, ".") && ip.Is4() || strings.Contains(pattern, ":") && ip.Is6()
	case part == "", part[0] >= '0' && part[0] <= '9': // no name, and for some systems another way to write an IP address
		return false
	case !strings.Contains(pattern, "."):
		return part == host
	}
	return strings.HasSuffix(pattern, "."+part)
}

// known says whether requests say who asks.
func (c *Client) known() bool {
	if c.token != "" || c.server.User != nil {
		return true
	}
	transport, is := c.http.Transport.(*http.Transport)
	return is && transport.TLSClientConfig != nil && len(transport.TLSClientConfig.Certificates) > 0
}

// ask returns the response if it is not a refusal. The caller closes its body.
func (c *Client) ask(request *http.Request) (*http.Response, error) {
	response, err := c.http.Do(request)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%w at %s: start one with `waybill dev`, or name another with --server", ErrAway, c.shown)
	}
	if err != nil {
		return nil, c.failed(err)
	}
	if response.StatusCode < 300 {
		return response, nil
	}
	defer response.Body.Close()
	if response.StatusCode < 400 {
		return nil, fmt.Errorf("%s leads to %q, which is not followed: name the server that answers with --server", c.shown, response.Header.Get("Location"))
	}
	problem := &Problem{Status: response.StatusCode}
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("read what %s answered: %w", c.shown, err)
	}
	if err := jsonv2.Unmarshal(text, problem); err != nil {
		switch response.StatusCode {
		default:
			return nil, fmt.Errorf("%s answered with status %s and no problem document: is it a Waybill?", c.shown, response.Status)
		case http.StatusTooManyRequests:
			problem = &Problem{Status: response.StatusCode, Detail: fmt.Sprintf("%s answered with status %s, as a proxy does that takes no more at present; try again later", c.shown, response.Status)}
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			problem = &Problem{Status: response.StatusCode, Detail: fmt.Sprintf("%s answered with status %s, as a proxy does that reaches no Waybill", c.shown, response.Status)}
		}
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		problem.RetryAfter = time.Duration(seconds) * time.Second
	}
	return nil, problem
}
