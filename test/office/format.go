package office

import (
	"context"
	"fmt"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
)

// NewestFormat fails until a namespace without older releases is in the newest format: a new one may begin in an older one while
// instances start side by side.
func NewestFormat(ctx context.Context, client *api.Client) error {
	u, err := client.Upgrade(ctx)
	if err == nil && u.Format < events.JournalFormat {
		err = fmt.Errorf("it is in format %d", u.Format)
	}
	return err
}
