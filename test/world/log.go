package world

import (
	"bytes"
	"sync"
)

// Log keeps what a program writes.
type Log struct {
	Heard func() // after each line, if it is set

	mu   sync.Mutex
	text bytes.Buffer
}

// Write takes what was written.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	n, err := l.text.Write(b)
	l.mu.Unlock()
	if l.Heard != nil {
		l.Heard()
	}
	return n, err //nolint:wrapcheck // it is nil
}

// String returns all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
