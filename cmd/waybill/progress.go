package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progressEvery is how often progress is printed where there is no terminal.
const progressEvery = 10 * time.Second

// progress shows how far a long command is: by a bar on a terminal, else by a
// line now and then.
type progress struct {
	out   io.Writer
	total int
	bar   *progressbar.ProgressBar // nil without a terminal

	mu           sync.Mutex
	done, failed int
	said         time.Time
}

func newProgress(out io.Writer, total int) *progress {
	p := &progress{out: out, total: total, said: time.Now()}
	if total > 0 && isTerminal(out) {
		p.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(out),
			progressbar.OptionSetWidth(30),
			progressbar.OptionShowCount(),
			progressbar.OptionShowIts(),
			progressbar.OptionSetItsString("orders"),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(),
		)
	}
	return p
}

// add counts an order.
func (p *progress) add(failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	if failed {
		p.failed++
	}
	p.show()
}

// at says how many orders are counted by now.
func (p *progress) at(done, failed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.failed = done, failed
	p.show()
}

// show shows it. p.mu is held.
func (p *progress) show() {
	if p.bar != nil {
		if p.failed > 0 {
			p.bar.Describe(fmt.Sprintf("%d failed", p.failed))
		}
		_ = p.bar.Set(p.done) // a terminal that went away stops nothing
		return
	}
	if now := time.Now(); now.Sub(p.said) >= progressEvery {
		p.said = now
		fmt.Fprintf(p.out, "%d of %d orders, %d failed\n", p.done, p.total, p.failed)
	}
}

// end takes the bar away.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Clear() // as above
	}
}
