package broker

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
)

// clusterLog hands kfake's log lines to slog. Its informational lines are
// about single requests, which is debugging to anybody but kfake's authors.
type clusterLog struct {
	log   *slog.Logger
	flush *flusher // nil if nothing is flushed
}

func (l clusterLog) Logf(level kfake.LogLevel, format string, args ...any) {
	to := slog.LevelDebug
	switch {
	// Said of every transaction that takes over 5 ms, which with fsync is
	// most of them.
	case strings.HasPrefix(format, "txn: EndTxn slow"):
	case level == kfake.LogLevelError:
		to = slog.LevelError
	case level == kfake.LogLevelWarn:
		to = slog.LevelWarn
	}
	// kfake says that it could not write something, and goes on.
	if l.flush != nil && (strings.HasPrefix(format, "persist ") || strings.HasPrefix(format, "rebuildSegments ")) {
		l.flush.fail(fmt.Errorf(format, args...))
	}
	if l.log.Enabled(context.Background(), to) {
		l.log.Log(context.Background(), to, "broker: "+fmt.Sprintf(format, args...))
	}
}
