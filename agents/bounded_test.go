package agents

import (
	"log/slog"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// A batch of requests cannot fill the memory, whatever the user's options say.
func TestBatchesAreBounded(t *testing.T) {
	s := &server{config: Config{Agent: "payment", Brokers: []string{"127.0.0.1:1"}, KafkaOptions: []kgo.Opt{kgo.MaxDecompressBatchBytes(1 << 30)}}, log: slog.New(slog.DiscardHandler)}
	client, err := kgo.NewClient(s.options("waybill")...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if limit := client.OptValue(kgo.MaxDecompressBatchBytes); limit != events.MaxDecompressed {
		t.Errorf("the limit is %v", limit)
	}
}
