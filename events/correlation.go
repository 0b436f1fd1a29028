package events

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// A signal may be for whoever waits for it under a key of the business, and not for an order by its id.
// A key of a name has a home, a record beside the orders: a correlation. What its lane and those of orders
// tell each other travels on [Topics.Internal]: to the home a [Want], to the order a [Pass].

// The types of these messages.
const (
	SignalWanted Type = "waybill.signal.wanted" // a [Want]
	SignalPassed Type = "waybill.signal.passed" // a [Pass]
)

// MaxSignalKey is the longest key under which a signal is waited for, in bytes of UTF-8.
const MaxSignalKey = 200

// MaxWaits is how many steps may wait for signals of one name under one key.
const MaxWaits = 1000

// MaxOnce is how many ids of signals that acted a correlation remembers: beyond that the oldest go.
const MaxOnce = 1000

// CheckSignalKey says what is wrong with a key of a signal, nil if nothing.
func CheckSignalKey(key string) error {
	switch {
	case key == "":
		return errors.New("it is empty; a key is a text of 1 byte at least")
	case len(key) > MaxSignalKey:
		return fmt.Errorf("it has %d bytes; at most %d are allowed", len(key), MaxSignalKey)
	case !utf8.ValidString(key):
		return errors.New("it is not UTF-8")
	}
	return nil
}

// What the last part of the id of a key's home begins with, behind which is a name: "." or, where the key was cut, "+".
const (
	keyedBy = "/signal"
	openOf  = "/open"
)

// inNames are the characters of the names of signals and workflows.
const inNames = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

// Of an id of more than maxHomeID bytes the key's end gives way to a hash of it.
const (
	maxHomeID = 200
	cutKey    = 60
)

// CorrelationID is the id of the home of what is signalled by a name under a key: @ref-7/signal.payment. No
// other record has it. Of those that begin so the ids of schedules hold no slash; what is behind the last
// slash of a child's is the name of a step, perhaps with numbers behind colons, or has a tilde, or is a time or
// a number.
func CorrelationID(signal, key string) string { return homeID(key, keyedBy, signal) }

func homeID(key, of, name string) string {
	id := ChildPrefix + key + of + "." + name
	if len(id) <= maxHomeID {
		return id
	}
	return cutHome(key) + of + "+" + name
}

// cutHome begins the id of a home of a key that was cut.
func cutHome(key string) string {
	sum := sha256.Sum256([]byte(key))
	n := min(cutKey, len(key))
	for n > 0 && n < len(key) && !utf8.RuneStart(key[n]) {
		n--
	}
	return ChildPrefix + key[:n] + "~" + hex.EncodeToString(sum[:childHash])
}

// HomesOf are what the ids of the homes of a key begin with: those of [CorrelationID] and of [TurnID], behind which is a
// name. Ids with a slash behind that are of other records.
func HomesOf(key string) []string {
	return []string{
		ChildPrefix + key + openOf + ".", ChildPrefix + key + keyedBy + ".",
		cutHome(key) + openOf + "+", cutHome(key) + keyedBy + "+",
	}
}

// StartedID is the id of the order that the event of a number of a correlation begins: @ref-7/signal.payment/order.3.
// No other record has it: what is behind the last slash of another's has no dot, or a tilde, or begins as a
// correlation's.
func StartedID(correlation string, number uint64) string {
	return correlation + "/order." + strconv.FormatUint(number, 10)
}

// IsCorrelation says that an id is of a correlation.
func IsCorrelation(id string) bool { return isHome(id, keyedBy) }

func isHome(id, of string) bool {
	last := strings.LastIndexByte(id, '/')
	if !OwnID(id) || last < 0 {
		return false
	}
	name, is := strings.CutPrefix(id[last:], of)
	return is && len(name) > 1 && (name[0] == '.' || name[0] == '+') && strings.Trim(name[1:], inNames) == ""
}

// What a [Want] may say.
const (
	// WantAwait says that a step waits from here on.
	WantAwait = "await"
	// WantWithdraw says that it waits no more. What was given to it, and of which it has not said that
	// it was heard, it has not heard.
	WantWithdraw = "withdraw"
	// WantHeard says that it has heard a signal.
	WantHeard = "heard"
	// WantUnheard gives a signal back.
	WantUnheard = "unheard"
)

// Want is what an order tells the home of a key of one of its waits. The record's key is Correlation.
type Want struct {
	Correlation string `json:"correlation"`
	Want        string `json:"want"`
	Signal      string `json:"signal"` // its name
	Key         string `json:"key"`
	Order       string `json:"order"`
	Step        string `json:"step"`
	// Wait is the number of the order's event with which the step began to wait.
	Wait uint64 `json:"wait"`
	// SignalID is the id of the signal that was heard, or comes back.
	SignalID string `json:"signalId,omitzero"`
	// Over says that the step waits for no more after it has heard this one.
	Over bool `json:"over,omitzero"`
	// Given is that of the [Pass] that comes back, and Reason is why: one of the Signal constants, or
	// empty if there is no such wait.
	Given  uint64 `json:"given,omitzero"`
	Reason string `json:"reason,omitzero"`
}

// Append appends the want's JSON.
func (w *Want) Append(dst []byte) []byte {
	o := open(dst)
	o.text("correlation", w.Correlation)
	o.text("want", w.Want)
	o.text("signal", w.Signal)
	o.text("key", w.Key)
	o.text("order", w.Order)
	o.text("step", w.Step)
	o.count("wait", w.Wait)
	o.text("signalId", w.SignalID)
	o.truth("over", w.Over)
	o.count("given", w.Given)
	o.text("reason", w.Reason)
	return o.end()
}

// Pass is a signal that the home of a key gives an order's wait, or says that the wait is refused. The
// record's key is Order.
type Pass struct {
	Order       string `json:"order"`
	Step        string `json:"step"`
	Wait        uint64 `json:"wait"` // as of [Want]
	Correlation string `json:"correlation"`
	Signal      string `json:"signal"` // its name
	Key         string `json:"key"`

	// SignalID, Data, Source, AnsweredBy and ReplyTo are those of the signal. One that has no id has its
	// Source for it.
	SignalID   string         `json:"signalId,omitzero"`
	Data       jsontext.Value `json:"data,omitzero"`
	Source     string         `json:"source,omitzero"`
	AnsweredBy string         `json:"answeredBy,omitzero"`
	ReplyTo    string         `json:"replyTo,omitzero"`
	// Given is the number of the home's event that gives it.
	Given uint64 `json:"given,omitzero"`
	// Refused is why the wait is refused, empty if this is a signal.
	Refused string `json:"refused,omitzero"`
}

// Append appends the pass's JSON.
func (p *Pass) Append(dst []byte) []byte {
	o := open(dst)
	o.text("order", p.Order)
	o.text("step", p.Step)
	o.count("wait", p.Wait)
	o.text("correlation", p.Correlation)
	o.text("signal", p.Signal)
	o.text("key", p.Key)
	o.text("signalId", p.SignalID)
	o.raw("data", p.Data)
	o.text("source", p.Source)
	o.text("answeredBy", p.AnsweredBy)
	o.text("replyTo", p.ReplyTo)
	o.count("given", p.Given)
	o.text("refused", p.Refused)
	return o.end()
}

// CorrelationKeep is how long what is known of a key is kept for people to look at once nothing is left that
// is to be known: no wait, no signal, and no id.
const CorrelationKeep = time.Hour

// TooManyWaits is the code of a step that would have waited under a key for which [MaxWaits] do.
const TooManyWaits = "too-many-waits"
