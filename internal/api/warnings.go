package api

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// warnings are what the log was told of late, by kind.
type warnings struct {
	mu    sync.Mutex
	kinds map[string]*warning
}

type warning struct {
	may    *rate.Limiter
	unsaid int // since the last one that was said
}

// another says whether one more of a kind is said, and how many were not since the last: ten are at once, and then one in six
// seconds. Kinds are few, and none is made of what a caller sends.
func (w *warnings) another(kind string, now time.Time) (said bool, unsaid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.kinds[kind]
	if of == nil {
		of = &warning{may: rate.NewLimiter(rate.Every(6*time.Second), 10)}
		if w.kinds == nil {
			w.kinds = make(map[string]*warning)
		}
		w.kinds[kind] = of
	}
	if !of.may.AllowN(now, 1) {
		of.unsaid++
		return false, 0
	}
	unsaid, of.unsaid = of.unsaid, 0
	return true, unsaid
}

// warn tells the log of a failure that is no caller's: a line for each request would be all that it says while Kafka is away.
func (s *Server) warn(what string, about ...any) {
	said, unsaid := s.warnings.another(what, time.Now())
	if !said {
		return
	}
	if unsaid > 0 {
		about = append(about, "unsaid", unsaid)
	}
	s.log.Warn(what, about...)
}
