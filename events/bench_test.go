package events_test

import (
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// history is what an order of three steps writes, one of which is tried twice.
func history() []events.Event {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	all := []events.Event{{
		Type: events.OrderAccepted, Workflow: "order-fulfilment", Version: 1, Steps: []string{"reserve", "charge", "ship"},
		Input: []byte(`{"customer":"c-7","total":42}`), ReplyTo: "shop.status", Priority: events.Normal,
	}}
	attempt := func(step string, n int, ends events.Event) {
		ends.Step, ends.Attempt = step, n
		all = append(all, events.Event{
			Type: events.StepStarted, Step: step, Attempt: n, Agent: "payment", Operation: "do",
			IdempotencyKey: "o-1/" + step, CompleteBy: at.Add(30 * time.Second), LockedBy: "i-1",
		}, ends)
	}
	completed := events.Event{Type: events.StepCompleted, Output: []byte(`{"payment":"pay-9738b5282f08","amount":42}`)}
	attempt("reserve", 1, completed)
	attempt("charge", 1, events.Event{Type: events.StepFailed, Error: &events.Error{Code: "busy", Message: "try again later"}})
	all = append(all, events.Event{Type: events.StepRetried, Step: "charge", Attempt: 2, Due: at.Add(time.Second)})
	attempt("charge", 2, completed)
	attempt("ship", 1, completed)
	all = append(all, events.Event{Type: events.OrderCompleted})
	for i := range all {
		all[i].Order, all[i].Seq, all[i].At = "o-1", uint64(i+1), at
	}
	return all
}

// BenchmarkAppend and BenchmarkDecode are about one event of a history.
func BenchmarkAppend(b *testing.B) {
	all := history()
	var dst []byte
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		dst = all[i%len(all)].Append(dst[:0])
	}
}

func BenchmarkDecode(b *testing.B) {
	var values [][]byte
	for _, e := range history() {
		values = append(values, e.Append(nil))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := events.Decode[events.Event](values[i%len(values)]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAppendSeal and BenchmarkDecodeSeal are about the seal of a transaction.
func BenchmarkAppendSeal(b *testing.B) {
	seal := someSeal(b)
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = seal.Append(dst[:0])
	}
}

func BenchmarkDecodeSeal(b *testing.B) {
	header := []byte(sealText)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := events.DecodeSeal(header); err != nil {
			b.Fatal(err)
		}
	}
}

const sealText = `{"txn":123456,"events":38,"next":{"orders":234567,"replies":702345,"commands":1203}}`

func someSeal(b *testing.B) events.Seal {
	b.Helper()
	seal, err := events.DecodeSeal([]byte(sealText))
	if err != nil {
		b.Fatal(err)
	}
	return seal
}
