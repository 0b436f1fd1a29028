package orchestrator

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// So many histories are read at once, and the next waits for its turn or until its
// caller has hung up. A reader that failed is not used again.
func TestHistoriesShareReaders(t *testing.T) {
	i := &Instance{readers: newReaders(), kafka: []kgo.Opt{kgo.SeedBrokers("127.0.0.1:1"), kgo.DisableClientMetrics()}}
	var used []*pageReader
	for range maxReaders {
		client, err := i.reader(t.Context())
		must(t, err)
		used = append(used, client)
	}
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	if _, err := i.reader(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("one reader more than %d: %v", maxReaders, err)
	}
	i.giveBack(used[0], 0, nil)
	if client, err := i.reader(t.Context()); err != nil || client != used[0] {
		t.Errorf("the reader was not kept: %v", err)
	}
	i.giveBack(used[1], 0, errors.New("it failed"))
	client, err := i.reader(t.Context())
	must(t, err)
	if client == used[1] {
		t.Error("a reader that failed is used again")
	}
	for _, client := range append(used, client) {
		client.Close()
	}
}
