package orchestrator

import (
	"testing"

	"github.com/waybill-dev/waybill/test/kafka"
)

func TestMain(m *testing.M) { kafka.Main(m) }
