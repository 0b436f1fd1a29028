//go:build unix

package chaos

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/test/child"
	"github.com/waybill-dev/waybill/test/office"
	"github.com/waybill-dev/waybill/test/oracle"
	"github.com/waybill-dev/waybill/test/world"
)

var (
	duration = flag.Duration("duration", 0, "how long faults are inflicted; 0 leaves TestChaos out")
	seed     = flag.Uint64("seed", 0, "draws the faults; 0 draws a seed")
	rate     = flag.Float64("rate", 15, "orders a second")
	session  = flag.Duration("session", 4*time.Second, "session time-out of the instances")
	without  = flag.String("without", "", "leaves out the faults whose names match this expression")
	brokers  = flag.Int("brokers", 1, "how many Kafka has")
)

const (
	instances  = 3
	partitions = 12
	// endPatience is how long the last order may take to end, once all is well.
	endPatience = 5 * time.Minute
)

// run is one run.
type run struct {
	*testing.T
	seed              uint64
	duration, session time.Duration
	rate              float64
	without           *regexp.Regexp // nil if nothing is left out
	brokers           int

	dir       string
	program   string
	topics    events.Topics
	kafka     *cluster
	instances []*instance
	service   *world.Service
	flows     []string
	office    *office.Office
	load      *world.Load

	caller, narrow, remote string // topics that some orders name

	mended map[string]bool // orders whose submission was put back, mended, for good: of who puts back

	agents     sync.WaitGroup // and other clients
	background sync.WaitGroup

	mu     sync.Mutex
	faults []done
	forced int // instances that did not end well when they were told to
	zeroed int // batches of zeros that may be on the inputs

	widened         int // partitions that were added to each input
	serveTroubled   func()
	dismissTroubled context.CancelFunc

	began, calm, ended time.Time
}

// Nothing is lost, nothing is doubled, nothing is stuck (S1 to S6, V2 to V6),
// whatever happens to instances, their disks, their network and Kafka.
func TestChaos(t *testing.T) {
	if *duration <= 0 {
		t.Skip("no -duration; make chaos gives one")
	}
	r := &run{T: t, seed: *seed, duration: *duration, session: *session, rate: *rate, brokers: *brokers, mended: make(map[string]bool), began: time.Now()}
	r.flows = append(slices.Clip(flows), troubledFlow(r.brokers))
	if len(r.flows) != flowCount {
		t.Fatalf("there are %d workflows", len(r.flows))
	}
	if *without != "" {
		r.without = regexp.MustCompile(*without)
	}
	if r.seed == 0 {
		r.seed = uint64(rand.Uint32())
	}
	t.Logf("-seed %d -duration %s -rate %g -session %s -brokers %d", r.seed, r.duration, r.rate, r.session, r.brokers)
	r.prepare()
	for _, i := range r.instances {
		i.up()
	}
	r.allReady()
	r.register()

	agents, dismiss := context.WithCancel(context.Background())
	defer r.agents.Wait()
	defer dismiss()
	r.service = world.NewService(r.seed)
	r.plainAgent(agents, "alpha", kgo.StickyKeyPartitioner(nil))
	r.plainAgent(agents, "beta", kgo.RoundRobinPartitioner())
	r.sdkAgent(agents, "gamma", "ship", "right", "un-right", "one", "un-one", "patient", "un-patient", "sure-2", "un-sure-2")
	r.troubledAgent(agents)
	desk := r.client()
	defer desk.Close()
	r.office = office.Open(desk, r.topics.Commands)

	troubled, rest := context.WithCancel(context.Background())
	r.submit(agents)
	var operators sync.WaitGroup
	operators.Go(func() { r.operate(troubled, agents) })
	operators.Go(func() { r.correct(troubled) })
	r.applySchedules(troubled, &operators)
	r.began = time.Now()
	r.inflict(t.Context(), r.began)
	rest()
	r.load.Cease()
	operators.Wait()
	<-r.load.Ended()
	r.calm = time.Now()
	t.Logf("%d orders were submitted; the faults are over", r.load.Acked())

	r.setClocks()
	r.allReady()
	t.Logf("all instances are ready %s after the last fault", time.Since(r.calm).Round(100*time.Millisecond))
	f := &findings{skipped: make(map[string]int)}
	r.finish(agents, f)
	r.ended = time.Now()
	r.check(f)
	for _, i := range r.instances {
		r.verify(i)
	}
	dismiss()
	r.agents.Wait()
	for _, i := range r.instances {
		if !i.down(syscall.SIGTERM, time.Minute) {
			t.Errorf("%s does not end well", i.name)
		}
	}
	f.measure(r)
	f.report(r)
	for _, what := range slices.Sorted(maps.Keys(f.said)) {
		t.Logf("%6d times: %s", f.said[what], what)
	}
	f.fail(r)
}

// prepare builds the program, and starts Kafka and all that stands around it.
func (r *run) prepare() {
	dir, err := os.MkdirTemp("", "waybill-chaos-")
	if err != nil {
		r.Fatal(err)
	}
	r.dir = dir
	r.Cleanup(func() {
		if !r.Failed() {
			if err := os.RemoveAll(dir); err != nil {
				r.Error(err)
			}
			return
		}
		r.Logf("what was written is in %s: logs of the instances, of Kafka, and state stores", dir)
	})
	r.program = filepath.Join(dir, "waybill")
	build := exec.Command("go", "build", "-tags", "clockoffset", "-o", r.program, "github.com/waybill-dev/waybill/cmd/waybill")
	if said, err := build.CombinedOutput(); err != nil {
		r.Fatalf("%s: %v\n%s", build, err, said)
	}
	if r.topics, err = events.NewTopics("chaos"); err != nil {
		r.Fatal(err)
	}
	proxies := make([][]string, instances)
	for i := range proxies {
		for range r.brokers {
			proxies[i] = append(proxies[i], child.FreeAddress(r.T))
		}
	}
	r.kafka = startKafka(r.T, dir, proxies)
	r.Cleanup(func() {
		if r.Failed() {
			r.keepKafka()
		}
	})
	r.waybill("topics", "create", "--partitions", fmt.Sprint(partitions), "--brokers", r.addresses(), "--namespace", r.topics.Namespace)
	r.caller = r.topics.Namespace + "-caller"
	caller := r.client()
	defer caller.Close()
	if _, err := kadm.NewClient(caller).CreateTopic(r.Context(), 2, -1, nil, r.caller); err != nil {
		r.Fatal(err)
	}
	r.prepareTopics()
	for i, addresses := range proxies {
		var net network
		for n, address := range addresses {
			net = append(net, newProxy(r.T, address, r.kafka.nodes[n].behind[i]))
		}
		r.instances = append(r.instances, r.instance(fmt.Sprintf("i%d", i+1), net, strings.Join(addresses, ",")))
	}
	r.instances[instances-1].clock = rand.New(rand.NewPCG(r.seed, 2000))
}

// addresses are where all but the instances find Kafka.
func (r *run) addresses() string { return strings.Join(r.kafka.addresses(), ",") }

// keepKafka keeps what Kafka logged and what it has, for who looks into it.
func (r *run) keepKafka() {
	for _, b := range r.kafka.nodes {
		logs, err := tryDocker("logs", b.name)
		if err == nil {
			err = os.WriteFile(filepath.Join(r.dir, b.name+".log"), []byte(logs), 0o600)
		}
		if err == nil {
			_, err = tryDocker("stop", b.name)
		}
		if err == nil {
			_, err = tryDocker("cp", b.name+":/tmp/kraft-combined-logs", filepath.Join(r.dir, b.name))
		}
		if err != nil {
			r.Logf("keeping what %s has: %v", b.name, err)
		}
	}
}

func (r *run) instance(name string, network network, kafka string) *instance {
	i := &instance{
		T: r.T, name: name, program: r.program, dir: filepath.Join(r.dir, name), log: filepath.Join(r.dir, name+".log"),
		http: child.FreeAddress(r.T), network: network,
	}
	if err := os.Mkdir(i.dir, 0o700); err != nil {
		r.Fatal(err)
	}
	// The store has a small file system of its own, where one can be mounted.
	if err := exec.Command("mount", "-t", "tmpfs", "-o", "size=256m", "waybill-chaos", i.dir).Run(); err == nil {
		i.full = true
		r.Cleanup(func() {
			if r.Failed() {
				if err := os.CopyFS(i.dir+"-data", os.DirFS(i.dir)); err != nil {
					r.Logf("keeping what %s has: %v", name, err)
				}
			}
			if out, err := exec.Command("umount", i.dir).CombinedOutput(); err != nil {
				r.Errorf("umount %s: %v: %s", i.dir, err, out)
			}
		})
	}
	i.args = []string{
		"serve", "--id", name, "--brokers", kafka, "--namespace", r.topics.Namespace, "--data-dir", i.dir,
		"--http-addr", i.http, "--session-timeout", r.session.String(), "--clock-skew", allowance.String(), "--claimed-approvals",
	}
	client, err := api.NewClient(i.http)
	if err != nil {
		r.Fatal(err)
	}
	i.client = client
	r.Cleanup(func() {
		i.down(syscall.SIGKILL, time.Minute)
		client.Close()
	})
	return i
}

// waybill runs a command to its end.
func (r *run) waybill(args ...string) {
	r.Helper()
	var said bytes.Buffer
	cmd := exec.Command(r.program, args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		r.Errorf("waybill %q: %v\n%s", args, err, &said)
	}
}

func (r *run) verify(i *instance) {
	r.waybill("replay", "--verify", "--brokers", r.addresses(), "--namespace", r.topics.Namespace, "--server", i.http)
}

func (r *run) register() {
	for n, source := range append(slices.Clip(r.flows), tickFlow, inTurn(1, "5s")) {
		file := filepath.Join(r.dir, fmt.Sprintf("flow-%d.yaml", n))
		if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
			r.Fatal(err)
		}
		r.waybill("workflow", "register", file, "--server", r.instances[0].http)
	}
	oracle.Until(r, "the namespace is in the newest format", func() error { return office.NewestFormat(r.Context(), r.instances[0].client) })
	file := filepath.Join(r.dir, "limit.yaml")
	if err := os.WriteFile(file, []byte(limit), 0o600); err != nil {
		r.Fatal(err)
	}
	r.waybill("limit", "apply", file, "--server", r.instances[0].http)
	if r.Failed() {
		r.FailNow()
	}
}

// allReady waits until every instance serves what it was given. One whose clock is
// far off says so instead.
func (r *run) allReady() {
	deadline := time.Now().Add(endPatience)
	for _, i := range r.instances {
		for {
			ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
			err := i.client.Ready(ctx)
			cancel()
			if err == nil || i.offsetAt(time.Now()).Abs() > believed && strings.Contains(err.Error(), lane.ErrClock.Error()) {
				break
			}
			if time.Now().After(deadline) {
				r.Fatalf("%s is not ready in %s: %v", i.name, endPatience, err)
			}
			hold(r.Context(), 50*time.Millisecond)
		}
	}
}
