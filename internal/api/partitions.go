package api

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/projections"
)

// Partitions says how far the instance has folded each partition.
type Partitions struct {
	Partitions []Partition `json:"partitions" nullable:"false"`
	Instances  []Present   `json:"instances,omitzero" nullable:"true" doc:"Those that are there, by name, if the query asks for them; 256 at most"`
	More       int         `json:"moreInstances,omitzero" doc:"How many instances more there are"`
	NotTold    string      `json:"instancesUnknown,omitempty" doc:"Why it is not known which instances there are"`
}

// Present is an instance that is there, as Kafka says.
type Present struct {
	Instance   string  `json:"instance" doc:"Its name, or, of a release before there was something to say, the id that Kafka gave it"`
	URL        string  `json:"url,omitempty" doc:"Where it is asked, if it advertises an address, and, with keys of the namespace, if one of them vouches for that"`
	Partitions []int32 `json:"partitions" nullable:"false" doc:"Those that the group gives it"`
}

// Entry is one key of a partition's projection.
type Entry struct {
	Key   string `json:"key" doc:"In hexadecimal"`
	Value []byte `json:"value" doc:"In base64"`
}

const projectionPath = "/api/v1/partitions/{partition}/projection"

func (s *Server) partitions(api huma.API) {
	register(api, identity.Viewer, huma.Operation{
		OperationID: "list-partitions", Method: http.MethodGet, Path: "/api/v1/partitions",
		Summary: "List the partitions, their owners and how far they were folded here", Tags: []string{"partitions"},
		Errors: []int{http.StatusServiceUnavailable},
	}, s.listPartitions)
	register(api, identity.Admin, huma.Operation{
		OperationID: "get-projection", Method: http.MethodGet, Path: projectionPath,
		Summary: "Stream the projection of a partition", Tags: []string{"partitions"},
		Description: "NDJSON: the partition as in the listing, then one line with key (hexadecimal) and value (base64) for each key, in order, as of one moment. A stream that breaks off is not the whole.",
		Errors:      []int{http.StatusNotFound, http.StatusServiceUnavailable},
	}, s.getProjection)
	register(api, identity.Admin, huma.Operation{
		OperationID: "skip-lost", Method: http.MethodPost, Path: "/api/v1/partitions/{partition}/skip-lost",
		Summary: "Go on behind inputs that were lost", Tags: []string{"operators"},
		Description: "For a partition that is stopped because inputs were deleted before they were read. Only its owner can do it; others answer with 421 and the owner's name. Who had it done, and why, stands in the journal. 409 if nothing was lost.",
		RequestBody: &huma.RequestBody{}, MaxBodyBytes: maxBody, BodyReadTimeout: bodyTimeout,
		Errors: []int{http.StatusNotFound, http.StatusConflict, http.StatusMisdirectedRequest, http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
	}, s.skipLost)
}

type skipLostInput struct {
	Partition int64 `path:"partition" minimum:"0"` // huma would cut what an int32 does not hold
	Body      *Act
}

func (s *Server) skipLost(ctx context.Context, in *skipLostInput) (*struct{ Body Partition }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if in.Partition >= int64(i.Partitions()) {
		return nil, huma.Error404NotFound(fmt.Sprintf("there is no partition %d; the namespace has %d, from 0", in.Partition, i.Partitions()))
	}
	partition := int32(in.Partition)
	act := Act{}
	if in.Body != nil {
		act = *in.Body
	}
	by, err := author(ctx, act.By, askingOf(ctx).address)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	if err := i.SkipLost(bounded, partition, lane.Author{By: by, Actor: actor(ctx, func() string { return "" })}, act.Note); err != nil {
		return nil, skipError(i.OwnerAddress(partition), err)
	}
	heads, err := i.Store().Heads(i.Partitions())
	if err != nil {
		return nil, s.broken("list partitions", err)
	}
	return &struct{ Body Partition }{partitionOf(i, partition, &heads[partition])}, nil
}

// skipError says why a partition does not go on behind inputs that were lost. Its owner is asked at an address, "" if that is not known.
func skipError(owner string, err error) error {
	switch {
	case errors.Is(err, orchestrator.ErrRefused):
		return typed(refusedByOwner, huma.Error409Conflict(strings.TrimPrefix(err.Error(), orchestrator.ErrRefused.Error()+": ")))
	case errors.Is(err, orchestrator.ErrNotOwner):
		return elsewhereAt(owner, err.Error())
	}
	return typed(kafkaSilent, retry(behindRetry, huma.Error503ServiceUnavailable(err.Error())))
}

func (s *Server) listPartitions(ctx context.Context, in *struct {
	Instances bool `query:"instances" default:"false" doc:"Whether Kafka is asked which instances there are, for two seconds at most"`
},
) (*struct{ Body Partitions }, error) {
	i, _, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	heads, err := i.Store().Heads(i.Partitions())
	if err != nil {
		return nil, s.broken("list partitions", err)
	}
	out := &struct{ Body Partitions }{Partitions{Partitions: make([]Partition, len(heads))}}
	for p := range heads {
		out.Body.Partitions[p] = partitionOf(i, int32(p), &heads[p])
		out.Body.Partitions[p].OwnerURL = i.OwnerAddress(int32(p))
		out.Body.Partitions[p].SharesURL = i.SharesAddress(int32(p))
	}
	for _, p := range i.Elsewhere() {
		out.Body.Partitions[p].Elsewhere = true
	}
	if in.Instances {
		out.Body.present(i.Present(ctx))
	}
	return out, nil
}

// present tells which instances there are, or why that is not known.
func (p *Partitions) present(all []orchestrator.Present, more int, err error) {
	if err != nil {
		p.NotTold = err.Error()
		return
	}
	p.Instances, p.More = make([]Present, len(all)), more
	for n, is := range all {
		p.Instances[n] = Present{is.Instance, is.URL, append([]int32{}, is.Partitions...)}
	}
}

type projectionInput struct {
	Partition int64 `path:"partition" minimum:"0"` // huma would cut what an int32 does not hold
}

// maxStreams is how many projections are sent at a time: what a slow reader takes has
// no end.
const maxStreams = 4

// lineTimeout is how long a reader of a stream may keep it waiting: a stream
// holds back what the state store could clean up.
const lineTimeout = 30 * time.Second

func (s *Server) getProjection(_ context.Context, in *projectionInput) (*huma.StreamResponse, error) {
	return &huma.StreamResponse{Body: func(c huma.Context) {
		r, w := humago.Unwrap(c)
		i, ctx, done, err := s.use(r.Context())
		if err != nil {
			NotReady(w, err.Error())
			return
		}
		defer done()
		if in.Partition >= int64(i.Partitions()) {
			refuse(w, http.StatusNotFound, fmt.Sprintf("there is no partition %d; the namespace has %d, from 0", in.Partition, i.Partitions()))
			return
		}
		select {
		case s.streams <- struct{}{}:
			defer func() { <-s.streams }()
		default:
			busy(w, fmt.Sprintf("%d projections are being sent, which is the most at a time; try again later", maxStreams))
			return
		}
		s.audit(ctx, "payloads were read", "operation", "get-projection", "of", strconv.FormatInt(in.Partition, 10)) // a stream passes no [Server.mask]
		partition := int32(in.Partition)
		w.Header().Set("Content-Type", "application/x-ndjson")
		patience := http.NewResponseController(w)
		out := bufio.NewWriterSize(w, 64<<10)
		line := func(v any) error {
			if out.Available() < out.Size()/2 {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := patience.SetWriteDeadline(time.Now().Add(lineTimeout)); err != nil {
					return err
				}
				if err := out.Flush(); err != nil {
					return err
				}
			}
			if err := jsonv2.MarshalWrite(out, v, jsontext.AllowInvalidUTF8(true)); err != nil {
				return err
			}
			return out.WriteByte('\n')
		}
		err = i.Store().Dump(partition,
			func(h projections.Head) error { return line(partitionOf(i, partition, &h)) },
			func(key, value []byte) error { return line(Entry{hex.EncodeToString(key), value}) })
		if err == nil {
			err = out.Flush()
		}
		if err != nil {
			s.log.Warn("a projection was not streamed to its end", "partition", in.Partition, "error", err)
			panic(http.ErrAbortHandler) // the reader must see that it is cut off
		}
	}}, nil
}
