//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/test/world"
)

// garbled says that the submission of an order is cut short: it is put aside, and there is no order before an operator has put
// it back, mended. Those are none of the orders to which signals are sent.
func garbled(n int64) bool {
	return n%13 == 5 && n%7 != 0 && n%flowCount != hearing && n%flowCount != keyed
}

// correct puts back what was put aside and can be mended, again and again until ctx ends.
func (r *run) correct(ctx context.Context) {
	by := rand.New(rand.NewPCG(r.seed, 3000))
	for ctx.Err() == nil {
		r.putBack(ctx, r.instances[by.IntN(len(r.instances))].client, time.Now().Add(-2*time.Minute), by.IntN(3) == 0)
		hold(ctx, 500*time.Millisecond)
	}
}

// putBack puts back each submission that was cut short, was put aside since a time by the clock of whoever did, and is not known
// to be back. Whose answer is lost is put back once more, as is what is done twice.
func (r *run) putBack(ctx context.Context, client *api.Client, since time.Time, twice bool) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for after := ""; ; {
		page, err := client.DeadLetters(ctx, api.LetterFilter{Topic: "orders", Since: since}, 100, after)
		if err != nil {
			return // it is looked at again
		}
		for i := range page.DeadLetters {
			letter := &page.DeadLetters[i]
			if letter.Key == nil || letter.Key.Text == nil || r.mended[*letter.Key.Text] { // a batch of zeros has no key
				continue
			}
			whole, err := client.DeadLetter(ctx, letter.Partition, letter.Offset)
			if err != nil {
				return
			}
			if whole.Value == nil || whole.Value.Text == nil {
				continue
			}
			_, err = client.Replay(ctx, letter.Partition, letter.Offset, []byte(*whole.Value.Text+"}"))
			r.mended[*letter.Key.Text] = err == nil && !twice
		}
		if after = page.Next; after == "" {
			return
		}
	}
}

// unmended says which of the submissions that were cut short is not known to be back.
func (r *run) unmended() error {
	for n := range r.load.Acked() {
		if id := world.OrderID(n + 1); garbled(n+1) && !r.mended[id] {
			return fmt.Errorf("the submission of order %s was put aside, and is not put back", id)
		}
	}
	return nil
}
