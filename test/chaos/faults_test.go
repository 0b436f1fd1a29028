//go:build unix

package chaos

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// done is a fault that was inflicted.
type done struct {
	fault
	Target       string
	Began, Ended time.Time
	Left         string // why it was left out, if it was
}

// inflict goes through the schedules of all targets, and returns when the last
// fault is over and everything is up again.
func (r *run) inflict(ctx context.Context, began time.Time) {
	for n := range targets {
		name, hit := r.target(n)
		r.background.Go(func() {
			for _, f := range schedule(r.seed, n, r.brokers, r.duration, r.session) {
				select {
				case <-time.After(time.Until(began.Add(f.At))):
				case <-ctx.Done():
					return
				}
				if r.without != nil && r.without.MatchString(string(f.Kind)) {
					continue
				}
				d := done{fault: f, Target: name, Began: time.Now()}
				for _, i := range r.instances {
					note(i.log, fmt.Sprintf("%s: %s, for %s", d.Target, f.Kind, f.Hold.Round(time.Millisecond)))
				}
				d.Left = hit(ctx, f)
				d.Ended = time.Now()
				r.Logf("%7s %-7s %s, %s%s", d.Began.Sub(began).Round(100*time.Millisecond), d.Target, f.Kind, d.Ended.Sub(d.Began).Round(100*time.Millisecond), d.Left)
				r.mu.Lock()
				r.faults = append(r.faults, d)
				r.mu.Unlock()
			}
		})
	}
	r.background.Wait()
}

// target is what has the schedule of this number, and what inflicts its faults.
// That says why, if it cannot.
func (r *run) target(n int) (name string, hit func(context.Context, fault) (left string)) {
	switch n {
	case ofKafka:
		return "kafka", func(ctx context.Context, f fault) string { r.hitKafka(ctx, f); return "" }
	case ofCallers:
		return "caller", r.hitInputs
	case ofTopics:
		return "topics", r.hitTopics
	}
	i := r.instances[n-1]
	return i.name, func(ctx context.Context, f fault) string { return r.hit(ctx, i, f) }
}

// hold lets a fault last.
func hold(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (r *run) hitKafka(ctx context.Context, f fault) {
	all := r.kafka.nodes
	one := all[f.Detail%uint64(len(all)):][:1]
	kill, stop, start := []string{"kill", "-s", "KILL"}, []string{"stop", "-t", "30"}, []string{"start"}
	switch f.Kind {
	case kafkaKill:
		r.bounce(ctx, f, all, kill, start)
	case kafkaRestart:
		r.bounce(ctx, f, all, stop, start)
	case brokerKill:
		r.bounce(ctx, f, one, kill, start)
	case onlyReplica:
		r.bounce(ctx, f, all[len(all)-1:], kill, start)
	case brokerRestart:
		r.bounce(ctx, f, one, stop, start)
	case brokerPause:
		r.bounce(ctx, f, one, []string{"pause"}, []string{"unpause"})
	case rolling:
		for n, b := range all {
			r.bounce(ctx, f, all[n:n+1], stop, start)
			if err := b.inSync(context.WithoutCancel(ctx)); err != nil {
				r.Errorf("Kafka does not come back: %v", err)
			}
		}
	}
}

// bounce takes nodes down with one command of Docker's, and up with another.
func (r *run) bounce(ctx context.Context, f fault, nodes []*node, down, up []string) {
	for _, b := range nodes {
		down, up = append(slices.Clip(down), b.name), append(slices.Clip(up), b.name)
	}
	if _, err := tryDocker(down...); err != nil {
		r.Error(err)
	}
	hold(ctx, f.Hold)
	_, err := tryDocker(up...)
	for _, b := range nodes {
		if err == nil {
			err = b.ready(context.WithoutCancel(ctx), len(r.kafka.nodes))
		}
	}
	if err != nil {
		r.Errorf("Kafka does not come back: %v", err)
	}
}

// hitInputs does what those can do who may write to the inputs.
func (r *run) hitInputs(ctx context.Context, f fault) (left string) {
	if f.Kind == zeros {
		return r.zeros(ctx, f)
	}
	return r.abandon(ctx, f)
}

// abandon submits an order and replies to it in a transaction that is never ended.
// Kafka aborts it some time after the hold, so nobody may ever act on it; until
// then the inputs behind it cannot be read. It says why, if it cannot.
func (r *run) abandon(ctx context.Context, f fault) (left string) {
	id := fmt.Sprintf("abandoned-%d", f.Detail)
	client := r.client(kgo.TransactionalID(id), kgo.TransactionTimeout(f.Hold))
	defer client.Close()
	err := client.BeginTransaction()
	if err == nil {
		err = client.ProduceSync(ctx,
			&kgo.Record{Topic: r.topics.Orders, Key: []byte(id), Value: []byte(`{"workflow":"chaos-0","input":{"n":0}}`)},
			&kgo.Record{Topic: r.topics.Replies, Key: []byte(id), Value: []byte(`{"order":"` + id + `","step":"one","attempt":1,"status":"completed"}`)},
		).FirstErr()
	}
	if err != nil {
		return fmt.Sprintf(", left out: %v", err)
	}
	hold(ctx, f.Hold)
	return ""
}

// hit inflicts a fault on an instance, and undoes it. It says why, if it cannot.
func (r *run) hit(ctx context.Context, i *instance, f fault) (left string) {
	by := rand.New(rand.NewPCG(f.Detail, 0))
	switch f.Kind {
	case kill, wipe, flip:
		i.down(syscall.SIGKILL, time.Minute)
		switch f.Kind {
		case wipe:
			if err := os.RemoveAll(filepath.Join(i.dir, "state")); err != nil {
				r.Error(err)
			}
		case flip:
			if err := flipBytes(filepath.Join(i.dir, "state"), by); err != nil {
				r.Error(err)
			}
		}
		hold(ctx, f.Hold)
		i.up()
	case handOver:
		if !i.down(syscall.SIGTERM, 30*time.Second) {
			r.mu.Lock()
			r.forced++
			r.mu.Unlock()
			note(i.log, "it did not end well when it was told to")
			r.Errorf("%s did not end well within 30 s of SIGTERM", i.name)
		}
		hold(ctx, f.Hold)
		i.up()
	case freeze, doze:
		i.signal(syscall.SIGSTOP)
		hold(ctx, f.Hold)
		i.signal(syscall.SIGCONT)
	case fill:
		if !i.full {
			return ", left out: no file system could be mounted"
		}
		balloon := filepath.Join(i.dir, "balloon")
		if err := inflate(balloon); err != nil {
			r.Error(err)
		}
		hold(ctx, f.Hold)
		if err := os.Remove(balloon); err != nil {
			r.Error(err)
		}
	default:
		hit := i.network
		if f.Kind == part {
			hit = network{hit[by.IntN(len(hit))]}
		}
		hit.set(map[kind]weather{
			cut: {cut: true}, part: {cut: true}, deafen: {holdDown: true}, mute: {holdUp: true}, swallow: {swallow: true},
			slow: {delay: 50*time.Millisecond + time.Duration(by.IntN(350))*time.Millisecond},
		}[f.Kind])
		hold(ctx, f.Hold)
		hit.set(weather{})
	}
	return ""
}

// inflate fills a file system.
func inflate(file string) error {
	balloon, err := os.Create(file)
	if err != nil {
		return err
	}
	defer balloon.Close()
	for size := 1 << 20; size > 0; size /= 16 {
		for air := make([]byte, size); ; {
			if _, err := balloon.Write(air); err != nil {
				break
			}
		}
	}
	return nil
}

// flipBytes changes some bytes of some files of a directory.
func flipBytes(dir string, by *rand.Rand) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || strings.HasSuffix(path, "LOCK") || by.IntN(2) > 0 {
			return err
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil || info.Size() == 0 {
			return err
		}
		for range 1 + by.IntN(8) {
			at := by.Int64N(info.Size())
			b := []byte{0}
			if _, err := file.ReadAt(b, at); err != nil {
				return err
			}
			b[0] ^= byte(1 + by.IntN(255))
			if _, err := file.WriteAt(b, at); err != nil {
				return err
			}
		}
		return nil
	})
}
