package services

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Mode is how a service behaves.
type Mode string

// The modes.
const (
	// Healthy services answer.
	Healthy Mode = "healthy"
	// Slow services do what the first call with a key asks for, and answer it
	// after [Config.Delay]. They answer repeats at once.
	Slow Mode = "slow"
	// Flaky services answer the first three calls with a key with 503, do what the
	// fourth asks for but break the connection instead of answering, and answer
	// from the fifth on.
	Flaky Mode = "flaky"
	// Down services break every connection.
	Down Mode = "down"
	// Refusing services refuse for good: the payment provider answers the first
	// three calls for a refund with 503 and all others with 403, the carrier every
	// parcel with 422. Charges go on.
	Refusing Mode = "refusing"
)

// Fate is what becomes of one call.
type Fate string

// The fates.
const (
	Answered    Fate = "answered"    // done, or recognised as a repeat, and answered
	Late        Fate = "late"        // done, and answered too late
	Lost        Fate = "lost"        // done, and the connection broke before the answer
	Unavailable Fate = "unavailable" // not done: 503
	Broken      Fate = "broken"      // not done: the connection broke
	Refused     Fate = "refused"     // not done, and never will be: 4xx
)

// script has the fates of the calls with one key in their order. The last one is
// that of all further calls too.
type script []Fate

// scripts says what a mode does to an operation; what is not there is answered.
var scripts = map[Mode]map[string]script{
	Healthy: {},
	Slow: {
		opCharge: {Late, Answered},
		opRefund: {Late, Answered},
		opParcel: {Late, Answered},
	},
	Flaky: {
		opCharge: {Unavailable, Unavailable, Unavailable, Lost, Answered},
		opRefund: {Unavailable, Unavailable, Unavailable, Lost, Answered},
		opParcel: {Unavailable, Unavailable, Unavailable, Lost, Answered},
	},
	Down: {
		opCharge: {Broken},
		opRefund: {Broken},
		opParcel: {Broken},
	},
	Refusing: {
		opRefund: {Unavailable, Unavailable, Unavailable, Refused},
		opParcel: {Refused},
	},
}

// fate is that of the nth call, counted from 1.
func (m Mode) fate(operation string, n int) Fate {
	s := scripts[m][operation]
	if len(s) == 0 {
		return Answered
	}
	return s[min(n, len(s))-1]
}

// ParseMode reads the name of a mode.
func ParseMode(name string) (Mode, error) {
	if _, ok := scripts[Mode(name)]; !ok {
		names := make([]string, 0, len(scripts))
		for _, m := range slices.Sorted(maps.Keys(scripts)) {
			names = append(names, string(m))
		}
		return "", fmt.Errorf("there is no mode %q; the modes are %s", name, strings.Join(names, ", "))
	}
	return Mode(name), nil
}
