package events

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A limit says how many attempts of steps that name it may be with their agents at a time, or begin in a
// second. It has a home, a record beside the orders, which gives its places. What its lane and those of orders
// tell each other travels on [Topics.Internal]: to the home a [Bid], to the order a [Grant].

// The types of these messages.
const (
	PlaceWanted Type = "waybill.place.wanted" // a [Bid]
	PlaceGiven  Type = "waybill.place.given"  // a [Grant]
)

// Limit is what a limit says. The record's key of a [Command] that applies one is its [LimitID].
type Limit struct {
	// AtATime is how many places there are, 0 for as many as there may be, [MaxPlaces].
	AtATime int `json:"atATime,omitzero"`
	// ASecond is how many are given in a second, and at once after a rest; 0 is no bound. One of the two is there.
	ASecond int `json:"aSecond,omitzero"`
}

// Append appends the limit's JSON.
func (l *Limit) Append(dst []byte) []byte {
	o := open(dst)
	o.number("atATime", int64(l.AtATime))
	o.number("aSecond", int64(l.ASecond))
	return o.end()
}

// MaxPlaces is how many places a limit may have, and may give in a second.
const MaxPlaces = 1000

// MaxPlacesAwaited is how many attempts may wait for places of a limit.
const MaxPlacesAwaited = 100_000

// CheckLimit says what is wrong with a limit, nil if nothing.
func CheckLimit(l *Limit) error {
	switch {
	case l.AtATime == 0 && l.ASecond == 0:
		return fmt.Errorf("it limits nothing; set atATime or aSecond, from 1 to %d", MaxPlaces)
	case l.AtATime < 0 || l.AtATime > MaxPlaces:
		return fmt.Errorf("atATime is %d; use 1 to %d", l.AtATime, MaxPlaces)
	case l.ASecond < 0 || l.ASecond > MaxPlaces:
		return fmt.Errorf("aSecond is %d; use 1 to %d", l.ASecond, MaxPlaces)
	}
	return nil
}

// CheckLimitName says what is wrong with the name of a limit, nil if nothing.
func CheckLimitName(name string) error { return checkObjectName("limit", name) }

// limited begins the ids of the homes of limits, behind which is the name.
const limited = ChildPrefix + "/limit."

// LimitID is the id of the home of a limit: @/limit.crm. No other record has it: of those that begin with
// [ChildPrefix] the ids of schedules hold no slash, and in others an order, a key or a schedule, none of which is
// empty, stands before the last one.
func LimitID(name string) string { return limited + name }

// LimitOf is the name of the limit that has an id, "" if none can have it.
func LimitOf(id string) string {
	name, is := strings.CutPrefix(id, limited)
	if !is || CheckLimitName(name) != nil {
		return ""
	}
	return name
}

// IsPlaces says that an id is of a home that gives places.
func IsPlaces(id string) bool { return LimitOf(id) != "" || IsTurn(id) }

// OnConflict is what becomes of an order that comes while another of its workflow is open under the same key.
type OnConflict string

// The values of [OnConflict].
const (
	ConflictQueue       OnConflict = "queue"        // it waits for its turn; the default
	ConflictReject      OnConflict = "reject"       // it fails
	ConflictCancelOther OnConflict = "cancel-other" // the open one is cancelled, and those fail that wait before it
)

// TurnID is the id of the home that lets one order of a workflow be open at a time under a key:
// @c-7/open.invoice. No other record has it, as of [CorrelationID].
func TurnID(workflow, key string) string { return homeID(key, openOf, workflow) }

// IsTurn says that an id is of such a home.
func IsTurn(id string) bool { return isHome(id, openOf) }

// TurnOf is the workflow whose orders have their turns at a home, "" if the id is of none.
func TurnOf(id string) string {
	if !IsTurn(id) {
		return ""
	}
	return id[strings.LastIndexByte(id, '/')+len(openOf)+1:]
}

// What a [Bid] may say.
const (
	// BidAsk asks for a place.
	BidAsk = "ask"
	// BidBack gives it back, or says that it is waited for no more.
	BidBack = "back"
	// BidUnwanted gives back one that nobody waits for.
	BidUnwanted = "unwanted"
)

// Bid is what an order tells the home of places of one that it asked for. The record's key is Home.
type Bid struct {
	Home  string `json:"home"`
	Bid   string `json:"bid"`
	Order string `json:"order"`
	Step  string `json:"step,omitzero"` // empty where the order itself has a turn
	// Wait is the number of the order's event with which it asked.
	Wait uint64 `json:"wait"`
	// Key is that of [BidAsk] among whose attempts and others' the home is fair; empty is one like others.
	Key string `json:"key,omitzero"`
	// OnConflict is of [BidAsk] for an order.
	OnConflict OnConflict `json:"onConflict,omitzero"`
	// Undo says of [BidAsk] that it is for an undo, which waits however many do.
	Undo bool `json:"undo,omitzero"`
}

// Append appends the bid's JSON.
func (b *Bid) Append(dst []byte) []byte {
	o := open(dst)
	o.text("home", b.Home)
	o.text("bid", b.Bid)
	o.text("order", b.Order)
	o.text("step", b.Step)
	o.count("wait", b.Wait)
	o.text("key", b.Key)
	o.text("onConflict", string(b.OnConflict))
	o.truth("undo", b.Undo)
	return o.end()
}

// Check says why nobody could have written the bid, nil if it can be.
func (b *Bid) Check() error {
	switch {
	case b.Bid != BidAsk && b.Bid != BidBack && b.Bid != BidUnwanted:
		return fmt.Errorf("bid %q: there is none of this name", b.Bid)
	case b.Order == "" || b.Wait == 0 || (b.Step == "") != IsTurn(b.Home):
		return errors.New("it says not whose place it is about")
	case (b.Bid == BidAsk && IsTurn(b.Home)) != slices.Contains([]OnConflict{ConflictQueue, ConflictReject, ConflictCancelOther}, b.OnConflict):
		return fmt.Errorf("it says %q of a conflict", b.OnConflict)
	}
	return nil
}

// Grant says that the home of places gives an order the one that it asked for, or that it gives none. The
// record's key is Order.
type Grant struct {
	Order string `json:"order"`
	Step  string `json:"step,omitzero"`
	Wait  uint64 `json:"wait"` // as of [Bid]
	Home  string `json:"home"`
	Error *Error `json:"error,omitzero"` // why there is no place for it, or it loses the one that it has; nil if it has one
}

// Append appends the grant's JSON.
func (g *Grant) Append(dst []byte) []byte {
	o := open(dst)
	o.text("order", g.Order)
	o.text("step", g.Step)
	o.count("wait", g.Wait)
	o.text("home", g.Home)
	o.fault(g.Error)
	return o.end()
}

// Codes of attempts, and of orders, for which there is no place.
const (
	UnknownLimit   = "unknown-limit"    // there is no limit of the name
	TooManyWaiting = "too-many-waiting" // [MaxPlacesAwaited] wait
	Conflict       = "conflict"         // another order is open under the key, as of [ConflictReject]
	Superseded     = "superseded"       // another order has come, as of [ConflictCancelOther]
)

// RateOver is the time in which a limit gives as many places as it gives a second.
const RateOver = time.Second
