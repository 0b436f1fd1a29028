package bench

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// parseStat reads the first line of /proc/stat: the ticks that all processors spent on each kind of thing.
func parseStat(text string) (worked, stolen time.Duration) {
	const tick = 10 * time.Millisecond // of Linux, wherever Go runs on it
	line, _, _ := strings.Cut(text, "\n")
	ticks := strings.Fields(strings.TrimPrefix(line, "cpu "))
	for n, text := range ticks {
		spent, _ := strconv.ParseInt(text, 10, 64)
		switch n {
		case 0, 1, 2, 5, 6: // user, nice, system, interrupts
			worked += time.Duration(spent) * tick
		case 7:
			stolen += time.Duration(spent) * tick
		}
	}
	return worked, stolen
}

// machine is for how long its processors have worked by a time, for whatever, and for how long they could not since the
// host of a virtual machine gave them to others, as far as it says so. Both are 0 where there is no /proc/stat. Linux
// looks at each tick what works, so they are too short where much works for less than one.
type machine struct {
	at             time.Time
	worked, stolen time.Duration
}

func theMachine() machine {
	text, _ := os.ReadFile("/proc/stat") // without it nothing is known
	worked, stolen := parseStat(string(text))
	return machine{time.Now(), worked, stolen}
}

// since are processors, on average.
func (m machine) since(before machine) Machine {
	passed := m.at.Sub(before.at).Seconds()
	return Machine{CPU: (m.worked - before.worked).Seconds() / passed, Stolen: (m.stolen - before.stolen).Seconds() / passed}
}

// Machine is how many processors of the machine worked, for whatever, and how many its host gave to others, by
// the ticks of Linux: on a machine that is not full it may be less than this process had.
type Machine struct {
	CPU    float64 `json:"cpu_cores"`
	Stolen float64 `json:"stolen_cores"`
}
