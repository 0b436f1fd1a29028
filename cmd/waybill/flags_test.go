package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// A log is one JSON object a line where that is asked for, by a flag or the environment.
func TestJSONLog(t *testing.T) {
	clearEnvironment(t)
	dev := []string{"dev", "--data-dir", t.TempDir(), "--kafka-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--log-level", "info"}
	t.Setenv("WAYBILL_LOG_FORMAT", "json")
	said, stop := background(t, true, "took the partition over", dev...)
	stop()
	for line := range strings.Lines(said) {
		var entry struct {
			Time  string `json:"time"`
			Level string `json:"level"`
			Msg   string `json:"msg"`
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Time == "" || entry.Level == "" || entry.Msg == "" {
			t.Errorf("%v: %s", err, line)
		}
	}
	waybill(t, "", append(dev, "--log-format", "xml")...).want(t, exitUsage, "", "use one of text, json")
}
