package kafka

import "github.com/twmb/franz-go/pkg/kmsg"

// FirstAnswersAlone has all nodes of an embedded broker but the first answer nothing to requests of a kind, until answer
// is called: they have taken them.
func (b *Broker) FirstAnswersAlone(kind kmsg.Key) (answer func()) {
	held := make(chan struct{})
	b.Fake.ControlKey(kind.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		if b.Fake.CurrentNode() != 0 {
			b.Fake.SleepControl(func() { <-held })
		}
		return nil, nil, false
	})
	return func() { close(held) }
}
