package deploy

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/waybill-dev/waybill/examples/order-fulfilment/services"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
)

// What compose.yaml starts runs orders, also when one of its orchestrators is
// killed, and nothing of it is root.
func TestComposeRunsOrders(t *testing.T) {
	docker := engine(t)
	images(t, docker)
	d := up(t, docker)
	one, two := d.client("waybill-1"), d.client("waybill-2")

	d.submit(one, "o-1")
	d.await(two, "o-1") // any instance answers for any order

	// The file agent, the Go agent, and the services behind them.
	if got := d.ledger(); len(got) != 1 || got[0].Order != "o-1" || got[0].Calls != 1 {
		t.Errorf("the ledger has %+v", got)
	}
	if got := d.get(d.url("services", 8082) + "/parcels"); !strings.Contains(got, `"key":"o-1/ship"`) {
		t.Errorf("the carrier has %s", got)
	}
	for _, name := range []string{"waybill-1", "waybill-2", "agents", "shipping", "services"} {
		d.nobodysRoot(name)
	}

	d.switchPayments("flaky")
	d.submit(one, "o-2")
	d.await(two, "o-2")
	d.switchPayments("healthy")
	if got := d.ledger(); len(got) != 2 || got[1].Order != "o-2" || got[1].Calls < 5 {
		t.Errorf("the ledger has %+v", got)
	}

	// Both have their share, and the one that is left takes over that of the other.
	owners := map[string]bool{}
	d.until("both instances own partitions", func() bool {
		clear(owners)
		partitions, err := two.Partitions(t.Context())
		for _, p := range partitions {
			if p.Owner != nil {
				owners[*p.Owner] = true
			}
		}
		return err == nil && len(owners) == 2
	})
	if !owners["waybill-1"] || !owners["waybill-2"] {
		t.Errorf("the owners are %v", owners)
	}
	if _, err := docker.ContainerKill(t.Context(), d.running["waybill-1"].GetContainerID(), client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		t.Fatal(err)
	}
	more := []string{"o-3", "o-4", "o-5", "o-6", "o-7", "o-8", "o-9", "o-10"} // in all partitions, more or less
	for _, id := range more {
		d.submit(two, id)
	}
	for _, id := range more {
		d.await(two, id)
	}
	if got := d.ledger(); len(got) != 2+len(more) {
		t.Errorf("%d charges for %d orders: %+v", len(got), 2+len(more), got)
	}
}

func (d *deployment) client(name string) *api.Client {
	d.Helper()
	c, err := api.NewClient(d.url(name, 8080))
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(c.Close)
	d.until(name+" is ready", func() bool { return c.Ready(d.Context()) == nil })
	return c
}

func (d *deployment) submit(c *api.Client, id string) {
	d.Helper()
	if _, err := c.Submit(d.Context(), &api.Submission{ID: id, Workflow: "order-fulfilment", Input: json.RawMessage(`{"customer":"c-7","total":42}`)}); err != nil {
		d.Fatal(err)
	}
}

func (d *deployment) await(c *api.Client, id string) {
	d.Helper()
	var last *api.Order
	d.until("order "+id+" is Processed", func() bool {
		o, err := c.Order(d.Context(), id)
		if problem := (*api.Problem)(nil); err != nil && !errors.As(err, &problem) {
			d.Fatal(err)
		}
		if err == nil {
			last = o
		}
		if last != nil && last.ProcessState != projections.Processed && (last.ProcessState.Final() || last.ProcessState == projections.Error) {
			d.Fatalf("order %s is %s", id, last.ProcessState)
		}
		return last != nil && last.ProcessState == projections.Processed
	})
}

func (d *deployment) until(what string, done func() bool) {
	d.Helper()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(startTimeout); !done(); {
		if time.Now().After(end) {
			d.Fatalf("%s, and it is not after %s", what, startTimeout)
		}
		<-again.C
	}
}

func (d *deployment) ledger() []services.Charge {
	d.Helper()
	var ledger []services.Charge
	if err := json.Unmarshal([]byte(d.get(d.url("services", 8081)+"/ledger")), &ledger); err != nil {
		d.Fatal(err)
	}
	return ledger
}

func (d *deployment) switchPayments(mode string) {
	d.Helper()
	request, err := http.NewRequestWithContext(d.Context(), http.MethodPut, d.url("services", 8081)+"/mode", strings.NewReader(mode))
	if err != nil {
		d.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		d.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		d.Fatalf("PUT /mode was answered with %s", response.Status)
	}
}

// nobodysRoot looks at the processes of a service.
func (d *deployment) nobodysRoot(name string) {
	d.Helper()
	top, err := d.docker.ContainerTop(d.Context(), d.running[name].GetContainerID(), client.ContainerTopOptions{Arguments: []string{"-eo", "uid,pid,comm"}})
	if err != nil {
		d.Fatal(err)
	}
	uid := slices.Index(top.Titles, "UID")
	if uid < 0 || len(top.Processes) == 0 {
		d.Fatalf("%s: found %v %v", name, top.Titles, top.Processes)
	}
	for _, process := range top.Processes {
		if process[uid] != "65532" {
			d.Errorf("%s runs as user %s: %v", name, process[uid], process)
		}
	}
}

// What a run leaves behind is found by its label, and removed.
func TestReaperRemovesWhatARunMade(t *testing.T) {
	docker := engine(t)
	images(t, docker)
	ctx := t.Context()
	other := run + "-reaped"
	labels := map[string]string{label: other}
	if _, err := docker.NetworkCreate(ctx, "waybill-test-"+other, client.NetworkCreateOptions{Labels: labels}); err != nil {
		t.Fatal(err)
	}
	provider, err := testcontainers.ProviderDefault.GetProvider()
	if err != nil {
		t.Fatal(err)
	}
	defer provider.Close()
	if _, err := provider.RunContainer(ctx, testcontainers.ContainerRequest{Image: exampleImage, Cmd: []string{"services"}, Labels: labels}); err != nil {
		t.Fatal(err)
	}
	count := func() (n int) {
		containers, networks, images, err := made(ctx, docker, other)
		if err != nil {
			t.Fatal(err)
		}
		return len(containers) + len(networks) + len(images)
	}
	if n := count(); n != 2 {
		t.Fatalf("%d things are labelled, want 2", n)
	}
	if err := removeAll(ctx, docker, other); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 0 {
		t.Errorf("%d things are left", n)
	}
}
