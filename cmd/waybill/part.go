package main

import "context"

// part is something that runs beside others.
type part struct {
	stop context.CancelFunc
	done chan struct{}
	err  error // set before done is closed
}

// start runs f until [part.end]. What it depends on may end only after it, so
// the end of ctx alone does not stop it.
func start(ctx context.Context, f func(context.Context) error) *part {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &part{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = f(ctx)
	}()
	return p
}

// end stops the part, waits for it, and returns its error.
func (p *part) end() error {
	p.stop()
	<-p.done
	return p.err
}
