package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
)

// Upgrade says how far the namespace is with an upgrade.
type Upgrade struct {
	Format  int                   `json:"format" doc:"The oldest format of a partition that this instance owns or follows"`
	Speaks  int                   `json:"speaks" doc:"The format that every instance knows"`
	Members []orchestrator.Member `json:"members" nullable:"false" doc:"The instances in the group, and what each says of its release"`
	Rises   *Time                 `json:"rises,omitempty" doc:"When this instance begins to write in that format; left out if it does already, or not every instance knows a newer one"`
}

func (s *Server) upgrades(api huma.API) {
	register(api, identity.Viewer, huma.Operation{
		OperationID: "get-upgrade", Method: http.MethodGet, Path: "/api/v1/upgrade",
		Summary: "Tell how far the namespace is with an upgrade", Tags: []string{"upgrade"},
		Errors: []int{http.StatusServiceUnavailable},
	}, s.getUpgrade)
	register(api, identity.Admin, huma.Operation{
		OperationID: "finish-upgrade", Method: http.MethodPost, Path: "/api/v1/upgrade/finish",
		Summary: "Write the newest format from now on", Tags: []string{"upgrade"},
		Description: "Older releases cannot own a partition from then on. 409 while one is in the group. Doing it again changes nothing.",
		Errors:      []int{http.StatusConflict, http.StatusServiceUnavailable},
	}, s.finishUpgrade)
}

func (s *Server) getUpgrade(ctx context.Context, _ *struct{}) (*struct{ Body *Upgrade }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return toldOf(i.Upgrade(ctx))
}

func (s *Server) finishUpgrade(ctx context.Context, _ *struct{}) (*struct{ Body *Upgrade }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := i.FinishUpgrade(ctx); err != nil {
		return nil, upgradeError(err)
	}
	return toldOf(i.Upgrade(ctx))
}

// upgradeError says why it is not known how far an upgrade is, or why it is not finished.
func upgradeError(err error) error {
	switch {
	case errors.Is(err, orchestrator.ErrOlderRelease):
		return typed(upgradeNeeded, huma.Error409Conflict(err.Error()))
	case errors.Is(err, orchestrator.ErrUnsettled), errors.Is(err, context.Canceled):
		return retryUnknown(err.Error())
	case errors.Is(err, orchestrator.ErrOwnsNone): // maybe for ever: another is to be asked
		return typed(notReady, huma.Error503ServiceUnavailable(err.Error()))
	}
	return typed(kafkaSilent, retry(behindRetry, huma.Error503ServiceUnavailable(err.Error())))
}

func toldOf(u *orchestrator.Upgrade, err error) (*struct{ Body *Upgrade }, error) {
	if err != nil {
		return nil, upgradeError(err)
	}
	told := &Upgrade{Format: u.Format, Speaks: u.Speaks, Members: u.Members}
	if !u.Rises.IsZero() {
		told.Rises = &Time{u.Rises}
	}
	return &struct{ Body *Upgrade }{told}, nil
}
