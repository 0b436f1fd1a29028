//go:build unix

package chaos

import (
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/test/audit"
	"github.com/waybill-dev/waybill/test/world"
)

// Only what stood on a journal and was aborted is decided again, and only in its
// partition.
func TestDecidedAgain(t *testing.T) {
	said := new(world.Log)
	log := slog.New(slog.NewTextHandler(said, nil)).With("partition", 1)
	for _, hung := range []struct {
		commit bool
		topic  string
		on     int32
	}{{false, "ns.journal", 4}, {true, "ns.journal", 5}, {false, "ns.alerts", 6}} {
		log.Warn(hungAndEnded, "commit", hung.commit, "topic", hung.topic, "on", hung.on, "offset", int64(7))
	}
	again := make(map[int32]bool)
	if decidedAgain(said.String(), "ns.journal", again); !maps.Equal(again, map[int32]bool{4: true}) {
		t.Errorf("%v, by\n%s", again, said)
	}
}

// A clock counts from its owner's claim on, and of an attempt two count.
func TestHowWrongClocksAre(t *testing.T) {
	f := &findings{clocks: map[int32][]claim{3: {{1, 0}, {10, -time.Second}, {20, time.Minute}, {30, 0}}}}
	for _, test := range []struct {
		started, expired int64
		wrong            time.Duration
	}{{2, 9, 0}, {2, 11, time.Second}, {11, 29, time.Minute}, {20, 31, time.Minute}, {30, 31, 0}} {
		if wrong := f.wrong(&audit.Expiry{Partition: 3, Started: test.started, Expired: test.expired}); wrong != test.wrong {
			t.Errorf("begun at %d, expired at %d: %s", test.started, test.expired, wrong)
		}
	}
}

// A signal follows the submission of its order where one lane reads both, and neither came on a partition that was added.
func TestWhatMayOvertake(t *testing.T) {
	for _, test := range []struct {
		source     string
		submission int32
		may        bool
	}{{"chaos.signals/5/3", 5, false}, {"chaos.signals/5/3", 8, true}, {"chaos.signals/12/3", 12, true}} {
		if may := overtook(test.source, test.submission); may != test.may {
			t.Errorf("%s, and the submission came in %d: %t", test.source, test.submission, may)
		}
	}
}
