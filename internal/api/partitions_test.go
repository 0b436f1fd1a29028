package api

import (
	"errors"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/orchestrator"
)

// That no instance is there is told, and is another thing than that nobody asked, or that it is not known.
func TestWhichInstancesThereAre(t *testing.T) {
	for name, c := range map[string]struct {
		tell func(*Partitions)
		want string
	}{
		"nobody asks":     {func(*Partitions) {}, `{"partitions":[]}`},
		"there is none":   {func(p *Partitions) { p.present(nil, 0, nil) }, `{"partitions":[],"instances":[]}`},
		"there are some":  {func(p *Partitions) { p.present([]orchestrator.Present{{Instance: "i-1"}}, 2, nil) }, `{"partitions":[],"instances":[{"instance":"i-1","partitions":[]}],"moreInstances":2}`},
		"it is not known": {func(p *Partitions) { p.present(nil, 0, errors.New("why")) }, `{"partitions":[],"instancesUnknown":"why"}`},
	} {
		p := &Partitions{Partitions: []Partition{}}
		c.tell(p)
		if said, err := encodeSent(p); err != nil || strings.TrimSpace(string(said)) != c.want {
			t.Errorf("%s: %s, %v", name, said, err)
		}
	}
}
