package events

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Schedule is what begins orders at times, and what these are. The record's key of a [Command] that
// applies one is its [ScheduleID].
type Schedule struct {
	// Cron is when: five fields, or six with seconds before them. Every is a duration instead, from Start
	// on, or else from 1970. One of the two is there.
	Cron  string `json:"cron,omitzero"`
	Every string `json:"every,omitzero"`
	// Zone is that of Cron, by its name in the IANA database; empty is UTC.
	Zone string `json:"zone,omitzero"`
	// Start and End are the first and the last time at which it may begin one; zero is none.
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// Jitter is by how much an order begins later than its tick, at most.
	Jitter string `json:"jitter,omitzero"`
	// Overlap says what becomes of a tick while an order of one before has not ended, empty is
	// [OverlapSkip]; and CatchUp of those that nobody took in time, empty is [CatchUpNone].
	Overlap string `json:"overlap,omitzero"`
	CatchUp string `json:"catchUp,omitzero"`
	// Window is how late an order may begin, whatever made its tick wait; empty is a day.
	Window string `json:"window,omitzero"`

	// What follows is of the orders: as of [Submission].

	Workflow string            `json:"workflow"`
	Version  int               `json:"version,omitzero"`
	Input    jsontext.Value    `json:"input,omitzero"`
	Priority Priority          `json:"priority,omitzero"`
	Labels   map[string]string `json:"labels,omitempty"`
	ReplyTo  string            `json:"replyTo,omitzero"`
}

// Append appends the schedule's JSON.
func (s *Schedule) Append(dst []byte) []byte {
	o := open(dst)
	o.text("cron", s.Cron)
	o.text("every", s.Every)
	o.text("zone", s.Zone)
	o.time("start", s.Start)
	o.time("end", s.End)
	o.text("jitter", s.Jitter)
	o.text("overlap", s.Overlap)
	o.text("catchUp", s.CatchUp)
	o.text("window", s.Window)
	o.name("workflow")
	o.b = appendText(o.b, s.Workflow)
	o.number("version", int64(s.Version))
	o.raw("input", s.Input)
	o.text("priority", string(s.Priority))
	o.pairs("labels", s.Labels)
	o.text("replyTo", s.ReplyTo)
	return o.end()
}

// What becomes of a tick while an order of one before has not ended.
const (
	OverlapSkip     = "skip"         // it begins none
	OverlapQueueOne = "queue-one"    // the first such tick waits for that end, the others begin none
	OverlapQueue    = "queue"        // all wait, one after the other
	OverlapCancel   = "cancel-other" // that order is cancelled; the last such tick waits for its end
	OverlapAllow    = "allow"        // it begins one all the same
)

// What becomes of ticks that nobody took in time.
const (
	CatchUpNone   = "none"
	CatchUpLatest = "latest" // the last of them begins an order
	CatchUpAll    = "all"    // each does
)

// Why a tick began no order.
const (
	SkippedOverlap  = "overlap"  // an order of one before had not ended
	SkippedMissed   = "missed"   // nobody took it in time
	SkippedPaused   = "paused"   // the schedule was paused
	SkippedReplaced = "replaced" // one with other ticks was applied, or it was deleted, before it was decided on
	SkippedTooMany  = "too-many" // [MaxOpen] orders had not ended
	SkippedRejected = "rejected" // an order of its backfill before was Rejected, as it would be
)

// MaxOpen is how many orders of a schedule may be there that have not ended.
const MaxOpen = 100

// MaxBackfills is how many backfills of a schedule may be there that have not ended.
const MaxBackfills = 10

// MaxPauses is how many pauses of a schedule may be there, beside the last, of which ticks wait for the end of an order.
const MaxPauses = 100

// MaxSchedule is the largest schedule, in bytes of JSON.
const MaxSchedule = 64 << 10

// ScheduleLabel and TickLabel are the labels of an order that a schedule began: its name, and the tick. BackfillLabel
// is that of one which a backfill began: its number.
const (
	ScheduleLabel = "schedule"
	TickLabel     = "tick"
	BackfillLabel = "backfill"
)

// maxObjectName is the longest name of a schedule, and of a limit, in bytes.
const maxObjectName = 100

// CheckScheduleName says what is wrong with the name of a schedule, nil if nothing.
func CheckScheduleName(name string) error { return checkObjectName("schedule", name) }

func checkObjectName(kind, name string) error {
	const form = "use lower-case letters, digits, '.', '_' and hyphens, the first and last a letter or digit"
	switch {
	case name == "":
		return fmt.Errorf("the name of the %s is empty; %s", kind, form)
	case len(name) > maxObjectName:
		return fmt.Errorf("the name of the %s has %d bytes; at most %d are allowed", kind, len(name), maxObjectName)
	case strings.Trim(name, "._-") != name, strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "":
		return fmt.Errorf("the name of the %s is %q; %s", kind, strings.ToValidUTF8(name, "\uFFFD"), form)
	}
	return nil
}

// ScheduleID is the id under which the journal has the events of a schedule. No order has it: of those
// that begin with [ChildPrefix] all others hold a slash.
func ScheduleID(name string) string { return ChildPrefix + name }

// ScheduleOf is the name of the schedule that has an id, "" if none can have it.
func ScheduleOf(id string) string {
	name, own := strings.CutPrefix(id, ChildPrefix)
	if !own || CheckScheduleName(name) != nil {
		return ""
	}
	return name
}

// TickText is a tick in UTC. All are of whole seconds.
func TickText(tick time.Time) string { return tick.UTC().Format(time.RFC3339) }

// TickID is the id of the order that a tick begins.
func TickID(schedule string, incarnation int, tick time.Time) string {
	return fmt.Sprintf("%s/%d/%s", ScheduleID(schedule), incarnation, TickText(tick))
}

// BackfillID is the id of the order that a tick begins in a backfill.
func BackfillID(schedule string, incarnation int, tick time.Time, backfill int) string {
	return fmt.Sprintf("%s/%d", TickID(schedule, incarnation, tick), backfill)
}
