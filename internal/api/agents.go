package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
)

// Agents is how an instance stands with the agents that workflows name.
type Agents struct {
	Instance   string   `json:"instance" doc:"Who says so: all that follows is of the partitions that it serves, and of the replies that it read since it began"`
	Partitions int      `json:"partitions" doc:"How many of the namespace's partitions it serves"`
	Of         int32    `json:"of" doc:"How many there are"`
	Since      Time     `json:"since" doc:"When it began"`
	Keys       []string `json:"keys" nullable:"false" doc:"The ids of the keys of the namespace that it has, the first of which signs"`
	Agents     []Agent  `json:"agents" nullable:"false"`
}

// Agent is how an instance stands with one.
type Agent struct {
	Name         string  `json:"name"`
	Tokens       string  `json:"tokens" enum:"off,watch,require" doc:"Whether requests have a token, and whether replies must repeat it"`
	Replies      Replies `json:"replies"`
	Waiting      int     `json:"waiting" doc:"Steps and undos that wait until it can be asked"`
	WaitingSince *Time   `json:"waitingSince,omitempty" doc:"From when on that could have begun which waits longest"`
	UnderWay     int     `json:"underWay" doc:"Requests that are with it"`
	AskedSince   *Time   `json:"askedSince,omitempty" doc:"Since when that is with it which is with it for longest"`
	Members      *int    `json:"members,omitempty" doc:"How many members its consumer group has, of all partitions: 0 is an agent that nobody runs, or that reads without a group. Not there where Kafka does not say"`
	Behind       *int64  `json:"behind,omitempty" doc:"How many records of its request topic its consumer group has not committed, of all partitions, and roughly: markers of transactions between them count. Not there where Kafka does not say"`
	SilentSince  *Time   `json:"silentSince,omitempty" doc:"Since when it has answered nothing in time, once an operator was called for that"`
}

// Replies counts an agent's replies to requests that had a token.
type Replies struct {
	Repeated uint64 `json:"repeated" doc:"With the token of their request"`
	Missing  uint64 `json:"missing" doc:"Without one"`
	Wrong    uint64 `json:"wrong" doc:"With another"`
	Unknown  uint64 `json:"unknown" doc:"With one under a key that this instance does not have"`
	Last     *Last  `json:"last,omitempty" doc:"The last that did not repeat it"`
}

// Last is a reply that did not repeat its token.
type Last struct {
	Source string `json:"source" doc:"Its ce_source: who says that it answered"`
	At     Time   `json:"at" doc:"When it was read"`
}

func (s *Server) agents(api huma.API) {
	register(api, identity.Viewer, huma.Operation{
		OperationID: "list-agents", Method: http.MethodGet, Path: "/api/v1/agents",
		Summary: "List the agents", Tags: []string{"agents"},
		Description: "The agents that registered workflows name which the caller may see, how this instance stands with each, who reads its requests now, as Kafka says, and whether their replies repeat the tokens of their requests.",
		Errors:      []int{http.StatusServiceUnavailable},
	}, s.listAgents)
}

func (s *Server) listAgents(ctx context.Context, in *struct {
	Attendance bool `query:"attendance" default:"true" doc:"Whether Kafka is asked who reads their requests, and how far: members and behind"`
},
) (*struct{ Body Agents }, error) {
	i, _, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	names, asked, repeats, setting := i.AgentNames(visible(callerOf(ctx), identity.Viewer)), i.Agents(), i.Repeats(), i.Setting()
	out := &struct{ Body Agents }{Agents{Instance: i.ID(), Partitions: i.Owned(), Of: i.Partitions(), Since: Time{i.Began()}, Keys: i.Keys(), Agents: make([]Agent, len(names))}}
	var attendance map[string]orchestrator.Attendance
	if in.Attendance {
		attendance = i.Attendance(ctx)
	}
	for n, name := range names {
		a, r, there := asked[name], repeats[name], attendance[name]
		is := Agent{
			Name: name, Tokens: string(setting(name)), Waiting: a.Waiting, UnderWay: a.UnderWay, WaitingSince: at(a.WaitingSince), SilentSince: at(a.SilentSince),
			AskedSince: at(a.AskedSince), Members: there.Members, Behind: there.Behind,
			Replies: Replies{Repeated: r.Repeated, Missing: r.Missing, Wrong: r.Wrong, Unknown: r.Unknown},
		}
		if !r.LastAt.IsZero() {
			is.Replies.Last = &Last{r.Last, Time{r.LastAt}}
		}
		out.Body.Agents[n] = is
	}
	return out, nil
}
