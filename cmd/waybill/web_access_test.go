package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	fulfilment "github.com/waybill-dev/waybill/examples/order-fulfilment"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/identity"
)

// Other machines are answered only once somebody said who may what, or that all may all.
func TestWhatOtherMachinesMay(t *testing.T) {
	file, _ := accessFile(t, "admin")
	wrong := write(t, "access.yaml", "keys:\n  - {id: a}\n")
	onlyCertificates := write(t, "access.yaml", "certificates:\n  - {subject: CN=ana, roles: [viewer]}\n")
	for _, c := range []struct {
		addr, access string
		open         bool
		want         string
	}{
		{"127.0.0.1:0", "", false, ""},
		{"127.0.0.1:0", "", true, ""},
		{"127.0.0.1:0", file, false, ""},
		{"0.0.0.0:0", "", false, "--http-open"},
		{":0", "", false, "--access"},
		{"[::]:0", "", false, "waybill key new"},
		{"0.0.0.0:0", "", true, ""},
		{"0.0.0.0:0", file, false, ""},
		{"127.0.0.1:0", onlyCertificates, false, "--http-tls-client-ca"},
		{"0.0.0.0:0", file, true, "use one of the two"},
		{"127.0.0.1:0", wrong, false, wrong + ":2:10: "},
		{"0.0.0.0:0", wrong + ".not", false, "no such file"},
	} {
		server, err := listenHTTP(t.Context(), httpFlags{addr: c.addr, access: c.access, open: c.open}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		if err == nil {
			err = errors.Join(err, server.close())
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s with %q, open: %t: %v, want %q", c.addr, c.access, c.open, err, c.want)
		}
	}
	for want, flags := range map[string]httpFlags{"may submit, read and cancel every order": {open: true}, "pass in clear": {access: file}} {
		var log bytes.Buffer
		flags.addr = "0.0.0.0:0"
		server, err := listenHTTP(t.Context(), flags, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil || server.close() != nil || !strings.Contains(log.String(), want) {
			t.Errorf("it is not said that %s: %v\n%s", want, err, &log)
		}
	}
	if t.Failed() {
		return // what follows would run
	}
	waybill(t, "", "serve", "--brokers", "127.0.0.1:1", "--data-dir", t.TempDir(), "--http-addr", "0.0.0.0:0").want(t, 2, "", "--http-open")
	waybill(t, "", "dev", "--kafka-addr", "127.0.0.1:0", "--data-dir", t.TempDir(), "--http-addr", "0.0.0.0:0").want(t, 2, "", "--http-open")
}

// accessFile has one key, made as anybody makes one.
func accessFile(t *testing.T, role string, more ...string) (file, key string) {
	t.Helper()
	entry, key := aKey(t, "ci", role)
	return write(t, "access.yaml", "keys:\n"+entry+strings.Join(more, "\n")), key
}

// aKey is a key, and what an access file has of it.
func aKey(t *testing.T, id, role string) (entry, key string) {
	t.Helper()
	made := waybill(t, "", "key", "new", "--id", id, "--role", role)
	made.want(t, 0, "wbk_"+id+"_", fmt.Sprintf("- id: %q", id))
	_, entry, _ = strings.Cut(made.errs, "\n\n")
	entry, _, _ = strings.Cut(entry, "\nThe key")
	return entry, strings.TrimSpace(made.out)
}

func TestKeyNew(t *testing.T) {
	clearEnvironment(t)
	made := waybill(t, "", "key", "new", "--id", "ci", "--role", "submitter,viewer", "--workflow", "order-*", "--subject", "ci@shop", "--expires", "90d")
	made.want(t, 0, "wbk_ci_", "")
	key := strings.TrimSpace(made.out)
	if strings.Count(made.out, "\n") != 1 || strings.Contains(made.errs, key) {
		t.Errorf("the key does not stand on standard output alone:\n%s\n%s", made.out, made.errs)
	}
	until := time.Now().AddDate(0, 0, 90).UTC().Format("2006-01-02T")
	for _, line := range []string{`  - id: "ci"`, `    subject: "ci@shop"`, "    hash: sha256:", "    roles: [submitter, viewer]", `    workflows: ["order-*"]`, "    expires: " + until} {
		made.want(t, 0, "", "\n"+line)
	}
	for _, c := range [][]string{
		{"--role", "admin"},
		{"--id", "a_b", "--role", "admin"},
		{"--id", "a"},
		{"--id", "a", "--role", "rooot"},
		{"--id", "a", "--role", "approver"},
		{"--id", "a", "--role", "admin", "--workflow", "w"},
		{"--id", "a", "--role", "viewer", "--workflow", "["},
		{"--id", "a", "--role", "viewer", "--expires", "soon"},
		{"--id", "a", "--role", "viewer", "--expires", "-1d"},
		{"--id", "a", "--role", "viewer", "--expires", "2020-01-01T00:00:00Z"},
	} {
		waybill(t, "", append([]string{"key", "new"}, c...)...).want(t, 2, "", "--")
	}
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key = a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour)})
	return a
}

func (a *authority) sign(t *testing.T, what *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	what.SerialNumber, what.NotBefore = big.NewInt(time.Now().UnixNano()), time.Now().Add(-2*time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = what, key
	}
	der, err := x509.CreateCertificate(rand.Reader, what, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// files has a certificate written, and its key.
func (a *authority) files(t *testing.T, dir, name string, until time.Duration) (cert, key string) {
	t.Helper()
	c, k := a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost", name}, NotAfter: time.Now().Add(until),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: c.Raw}, key: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func (a *authority) file(t *testing.T, dir, name string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TLS, with certificates that say who asks, those that say nothing, and those that are of
// no authority, expired, or of one that is not trusted any more.
func TestCertificatesOverTLS(t *testing.T) {
	clearEnvironment(t)
	dir := t.TempDir()
	ours, theirs := newAuthority(t), newAuthority(t)
	ca, other := ours.file(t, dir, "ca.pem"), theirs.file(t, dir, "other.pem")
	cert, key := ours.files(t, dir, "server", time.Hour)
	access, token := accessFile(t, "viewer", "certificates:", "  - {subject: CN=ana, roles: [viewer]}", "")
	onlyCertificates := write(t, "access.yaml", "certificates:\n  - {subject: CN=ana, roles: [viewer]}\n")
	tokenFile := write(t, "token", token+"\n")
	person := func(a *authority, name string, until time.Duration) []string {
		cert, key := a.files(t, dir, name, until)
		return []string{"--cert", cert, "--key", key}
	}
	ana, eve := person(ours, "ana", time.Hour), person(ours, "eve", time.Hour)
	ana2 := []string{"--cert", filepath.Join(dir, "ana.pem"), "--key", filepath.Join(dir, "ana.key")}
	expired := person(ours, "old", -time.Hour)
	forged := person(theirs, "forged", time.Hour)

	serve := func(access string) (server *web, url string) {
		server, err := listenHTTP(t.Context(), httpFlags{addr: "127.0.0.1:0", access: access, tls: tlsFlags{cert, key, ca}}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return server, strings.Replace(server.url, "127.0.0.1", "localhost", 1)
	}
	ask := func(url string, args ...string) call { // once: the commands ask what is not ready again and again
		t.Helper()
		flags := pflag.NewFlagSet("once", pflag.ContinueOnError)
		server := addServer(flags)
		if err := flags.Parse(append([]string{"--server", url}, args...)); err != nil {
			t.Fatal(err)
		}
		err := server.talk(func(c *api.Client) error {
			_, err := c.Alerts(t.Context(), 1, "")
			return err //nolint:wrapcheck // as the commands do
		})
		if err == nil {
			t.Fatalf("%q was answered", args)
		}
		return call{code: exitCode(err), errs: err.Error()}
	}
	const notReady = "not ready: the instance starts" // so it was let in
	server, url := serve(access)
	if !strings.HasPrefix(url, "https://") {
		t.Errorf("the server is at %s", url)
	}
	in := func(args ...string) []string { return append([]string{"--ca", ca}, args...) }
	ask(url, in("--token-file", tokenFile)...).want(t, 6, "", notReady)
	ask(url, in(ana...)...).want(t, 6, "", notReady)
	ask(url, in()...).want(t, 5, "", "who asks is not known")
	waybill(t, "", append([]string{"alerts", "--server", url}, in(eve...)...)...).want(t, 5, "", "names neither its subject")
	ask(url, in(eve...)...).want(t, 5, "", "names neither its subject")
	ask(url, in(append(eve, "--token-file", tokenFile)...)...).want(t, 6, "", notReady) // a token goes first
	ask(url, in(append(ana2, "--token", token+"x")...)...).want(t, 5, "", "there is no such key")
	ask(url, in(expired...)...).want(t, 6, "", "expired certificate")
	ask(url, in(forged...)...).want(t, 6, "", "unknown certificate authority")
	ask(url, "--ca", other, "--token-file", tokenFile).want(t, 6, "", "certificate signed by unknown authority")
	ask(strings.Replace(url, "https", "http", 1), "--token-file", tokenFile).want(t, 1, "", "")
	if _, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10, InsecureSkipVerify: true}); err == nil {
		t.Error("TLS 1.1 was spoken")
	}
	if err := server.close(); err != nil {
		t.Error(err)
	}
	// Where nothing else says who asks, who has no certificate does not even connect.
	server, url = serve(onlyCertificates)
	ask(url, in(ana2...)...).want(t, 6, "", notReady)
	ask(url, in()...).want(t, 6, "", "certificate required")
	if err := server.close(); err != nil {
		t.Error(err)
	}
	for want, flags := range map[string]tlsFlags{
		"belong together": {cert: cert}, "of use with TLS only": {clientCA: ca}, "no certificate in PEM": {cert, key, key}, "private key does not match": {cert, filepath.Join(dir, "ana.key"), ""},
	} {
		if server, err := listenHTTP(t.Context(), httpFlags{addr: "127.0.0.1:0", tls: flags}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, %v", flags, server, err)
		}
	}
}

// Certificates and authorities are changed while the server runs; files that became wrong
// change nothing.
func TestCertificatesThatChange(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := newAuthority(t), newAuthority(t)
	cert, key := ours.files(t, dir, "server", time.Hour)
	ca := ours.file(t, dir, "ca.pem")
	var log bytes.Buffer
	s, err := openTLS(&tlsFlags{cert, key, ca}, nil, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	now := func() *tls.Config {
		t.Helper()
		s.looked = time.Time{}
		config, err := s.forClient(nil)
		if err != nil {
			t.Fatal(err)
		}
		return config
	}
	first := now()
	if again := now(); !bytes.Equal(first.Certificates[0].Certificate[0], again.Certificates[0].Certificate[0]) || first.ClientAuth != tls.RequireAndVerifyClientCert {
		t.Error("nothing changed, and another certificate is shown")
	}
	if err := os.WriteFile(cert, []byte("half a certif"), 0o600); err != nil {
		t.Fatal(err)
	}
	now() // it is tried at each look, and told once
	if held := now(); !bytes.Equal(first.Certificates[0].Certificate[0], held.Certificates[0].Certificate[0]) || strings.Count(log.String(), "files of TLS are wrong") != 1 {
		t.Errorf("while a file is wrong: %s", &log)
	}
	ours.files(t, dir, "server", 2*time.Hour)
	theirs.file(t, dir, "ca.pem")
	changed := now()
	if bytes.Equal(first.Certificates[0].Certificate[0], changed.Certificates[0].Certificate[0]) || first.ClientCAs.Equal(changed.ClientCAs) {
		t.Error("what changed is not shown")
	}
}

// What says who asks goes nowhere in clear but where somebody wrote that.
func TestNoTokenInClear(t *testing.T) {
	for _, c := range []struct {
		flags serverFlags
		want  string
	}{
		{serverFlags{server: "127.0.0.1:1"}, ""},
		{serverFlags{server: "[::1]:1"}, ""},
		{serverFlags{server: "localhost"}, ""},
		{serverFlags{server: "http://shop.example"}, ""},
		{serverFlags{server: "https://shop.example"}, ""},
		{serverFlags{server: "shop.example:8080"}, "in clear"},
		{serverFlags{server: "10.0.0.1"}, "in clear"},
	} {
		if err := c.flags.inClear(true, false); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.flags.server, err)
		}
		if err := c.flags.inClear(false, true); (err == nil) != strings.HasPrefix(c.flags.server, "https") {
			t.Errorf("with a certificate, %s: %v", c.flags.server, err)
		}
	}
	if _, err := (&serverFlags{tokenFile: "wbk_ci_secret"}).bearer(); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a key in the place of a file: %v", err)
	}
}

// Probes and metrics at an address of their own.
func TestAdminAddr(t *testing.T) {
	var log bytes.Buffer
	server, err := listenHTTP(t.Context(), httpFlags{addr: "127.0.0.1:0", admin: "127.0.0.1:0"}, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]int{server.url: http.StatusNotFound, httpAddress.FindString(log.String()): http.StatusOK} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != want || response.Body.Close() != nil {
			t.Errorf("%s: %s", address, response.Status)
		}
	}
	if err := server.close(); err != nil {
		t.Error(err)
	}
	if _, err := listenHTTP(t.Context(), httpFlags{addr: "127.0.0.1:0", admin: "256.0.0.1:0"}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--admin-addr") {
		t.Errorf("an address that there is not: %v", err)
	}
}

// What says who asks is sent and not printed.
func TestSecretsAreNotPrinted(t *testing.T) {
	clearEnvironment(t)
	const secret = "wbk_ci_s3cret"
	for _, args := range [][]string{
		{"--server", "http://ana:" + secret + "@127.0.0.1:1"},
		{"--server", "http://" + secret + "@127.0.0.1:1"},
		{"--server", "ftp://ana:" + secret + "@127.0.0.1:1"},
		{"--server", "http://ana:" + secret + "@[::1"},
		{"--token", secret, "--server", "http://127.0.0.1:1"},
		{"--token", secret + " x"},
		{"--token", secret, "--token-file", "x"},
		{"--token-file", write(t, "token", secret+"\n"+secret)},
	} {
		c := waybill(t, "", append([]string{"alerts"}, args...)...)
		if c.code == 0 || strings.Contains(c.out+c.errs, secret) || strings.Contains(c.errs, "s3cret") {
			t.Errorf("%q: %d\n%s", args, c.code, c.errs)
		}
	}
	for want, args := range map[string][]string{
		"use one of the two": {"--token", "a", "--token-file", "b"}, "is empty": {"--token-file", write(t, "token", "\n")},
		"no such file": {"--token-file", "/none"}, "belong together": {"--cert", "x"}, "no certificate in PEM": {"--ca", write(t, "ca", "x")},
	} {
		waybill(t, "", append([]string{"alerts"}, args...)...).want(t, 2, "", want)
	}
}

// dev asks who asks, too, and registers its example by itself; the command line brings a
// key, and its acts have the key's name.
func TestDevWithAccess(t *testing.T) {
	clearEnvironment(t)
	viewer, hash, err := identity.NewKey("viewer")
	if err != nil {
		t.Fatal(err)
	}
	file, key := accessFile(t, "admin", fmt.Sprintf("  - {id: viewer, hash: %q, roles: [viewer]}", hash), "")
	server, _, _ := startDev(t, t.TempDir(), "--access", file)
	t.Setenv("WAYBILL_SERVER", server)
	waybill(t, "", "workflow", "list").want(t, 5, "", "say who asks with --token-file or WAYBILL_TOKEN")
	waybill(t, "", "health").want(t, 0, "ready", "")
	t.Setenv("WAYBILL_TOKEN", key)
	waybill(t, "", "workflow", "list").want(t, 0, "order-fulfilment", "")
	waybill(t, "", "submit", "order-fulfilment", "--id", "o-1", "--input", `{"card":"declined"}`, "--wait").want(t, 7, "", "o-1 is Error")
	waybill(t, "", "submit", "order-fulfilment", "--id", "o-2", "--input", `{"card":"declined"}`, "--wait").want(t, 7, "", "o-2 is Error")
	waybill(t, "", "order", "cancel", "o-1", "--by", "somebody@else").want(t, 5, "", "leave by out")
	waybill(t, "", "order", "cancel", "o-1").want(t, 0, "", "")
	waybill(t, "", "order", "history", "o-1").want(t, 0, "by ci", "")

	// Who may not read payloads is told so in the place of what is left out.
	t.Setenv("WAYBILL_TOKEN", viewer)
	waybill(t, "", "order", "get", "o-1").want(t, 0, "Masked       "+leftOutHere, "")
	waybill(t, "", "order", "get", "o-2").want(t, 0, "charge   failed       1        1         -            (permanent)", "")
	waybill(t, "", "order", "history", "o-1").want(t, 0, "step.failed", leftOutHere)
	waybill(t, "", "alerts").want(t, 0, leftOutHere, "")
	for _, args := range [][]string{{"order", "get", "o-2"}, {"order", "history", "o-2"}, {"order", "list"}, {"alerts"}} {
		if c := waybill(t, "", append(args, "-o", "json")...); strings.Contains(c.out, "declined") || !strings.Contains(c.out, "masked") {
			t.Errorf("%q: %s", args, c.out)
		}
	}
}

// ADR 0026: the history says how who acted is known, and that he is claimed where somebody
// else wrote the command, whatever he wrote.
func TestWhoActedIsKnown(t *testing.T) {
	clearEnvironment(t)
	made := waybill(t, "", "key", "namespace", "--id", "2030-01")
	made.want(t, 0, `  - id: "2030-01"`, "")
	waybill(t, "", "key", "namespace").want(t, 2, "", "--id")
	waybill(t, "", "key", "namespace", "--id", "a.b").want(t, 2, "", "--id")
	waybill(t, "", "serve", "--brokers", "127.0.0.1:1", "--data-dir", t.TempDir(), "--http-addr", "127.0.0.1:0", "--namespace-keys", write(t, "keys.yaml", "keys: 7\n")).want(t, 1, "", "the file of the namespace's keys")
	file, key := accessFile(t, "admin")
	server, brokers, _ := startDev(t, t.TempDir(), "--access", file, "--namespace-keys", write(t, "keys.yaml", "keys:\n"+made.out+"tokens: {others: require}\n"))
	t.Setenv("WAYBILL_SERVER", server)
	t.Setenv("WAYBILL_TOKEN", key)
	waybill(t, "", "submit", "order-fulfilment", "--id", "o-1", "--input", `{"card":"declined"}`, "--wait").want(t, 7, "", "o-1 is Error")
	waybill(t, "", "order", "history", "o-1").want(t, 0, "from /waybill/agents/payment, as it says, at waybill.replies/", "")
	waybill(t, "", "order", "skip-step", "o-1", "--step", "ship").want(t, 0, "", "")
	waybill(t, "", "order", "history", "o-1").want(t, 0, "by ci, known by key as admin", "")
	waybill(t, "", "agents").want(t, 0, "payment    require  1         0        0      0        -", "dev, which signs with key 2030-01, serves 4 of 4 partitions")

	client, err := kgo.NewClient(kgo.SeedBrokers(brokers), kgo.DisableClientMetrics(), kgo.ConsumeTopics("waybill.commands"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	commands := client.PollRecords(t.Context(), 1).Records()
	if len(commands) != 1 || events.Header(commands[0], events.HeaderActor) == "" {
		t.Fatalf("the command is not signed: %+v", commands)
	}
	forge := func(value string, headers []kgo.RecordHeader) {
		t.Helper()
		r := &kgo.Record{Topic: "waybill.commands", Partition: commands[0].Partition, Key: []byte("o-1"), Value: []byte(value), Headers: headers}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	forge(string(commands[0].Value), commands[0].Headers) // once more, as it is
	forge(`{"command":"resubmit","by":"ci","id":"f-1","note":"forged"}`, commands[0].Headers)
	for {
		history := waybill(t, "", "order", "history", "o-1")
		if strings.Contains(history.out, "forged") {
			history.want(t, 0, "by ci, as the sender claims; forged", "")
			if n := strings.Count(history.out, "known by"); n != 2 { // with the submission
				t.Errorf("%d commands are known:\n%s", n, history.out)
			}
			break
		}
	}
}

// Two instances behind a proxy that has them under a path: keys hold on both alike, also once
// they are taken away, and what one takes the other tells.
func TestTwoInstancesBehindAProxy(t *testing.T) {
	clearEnvironment(t)
	_, brokers, _ := startDev(t, t.TempDir())
	t.Setenv("WAYBILL_BROKERS", brokers)
	waybill(t, "", "topics", "create", "--namespace", "shop", "--partitions", "2").want(t, 0, "shop.orders", "")
	file, key := accessFile(t, "admin")
	made := waybill(t, "", "key", "namespace", "--id", "one")
	keys := write(t, "keys.yaml", "keys:\n"+made.out)
	waybill(t, "", "serve", "--brokers", "127.0.0.1:1", "--data-dir", t.TempDir(), "--http-addr", "127.0.0.1:0", "--http-base", "/waybill/").want(t, 2, "", "--http-base")
	var instances []string
	for range 2 {
		said, _ := background(t, true, "took the partition over", "serve", "--namespace", "shop", "--data-dir", t.TempDir(), "--http-addr", "127.0.0.1:0",
			"--http-base", "/tools/waybill", "--access", file, "--namespace-keys", keys, "--session-timeout", "6s")
		instances = append(instances, httpAddress.FindString(said))
	}
	var turn atomic.Int64
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		target, _ := url.Parse(instances[turn.Add(1)%2])
		r.SetURL(target)
	}})
	t.Cleanup(proxy.Close)
	t.Setenv("WAYBILL_TOKEN", key)
	through := func(args ...string) call {
		return waybill(t, "", append(args, "--server", proxy.URL+"/tools/waybill")...)
	}
	settles := func(what string, done func() bool) {
		t.Helper()
		for !done() {
			if t.Context().Err() != nil {
				t.Fatal(what)
			}
		}
	}
	for _, instance := range instances {
		settles("they are not ready", func() bool { return waybill(t, "", "health", "--server", instance).code == 0 })
	}
	through("workflow", "register", write(t, "w.yaml", flow)).want(t, 0, "w@1", "")
	through("submit", "w", "--id", "a/b").want(t, 0, "a/b", "")
	for _, instance := range instances {
		settles("it is not there", func() bool {
			return waybill(t, "", "order", "get", "a/b", "--server", instance+"/tools/waybill").code == 0
		})
		waybill(t, "", "order", "get", "a/b", "--server", instance).want(t, 0, "a/b", "")
	}
	through("order", "pause", "a/b").want(t, 0, "", "")
	through("order", "resume", "a/b").want(t, 0, "", "")
	for range 2 { // of each
		settles("the acts are not in the history", func() bool {
			return strings.Count(through("order", "history", "a/b").out, "by ci, known by key as admin") == 3 // with the submission
		})
		through("agents").want(t, 0, "nobody  watch", "which signs with key one, serves")
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, proxy.URL+"/tools/waybill/api/v1/orders", strings.NewReader(`{"workflow":"w","id":"o-2"}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	answer, err := proxy.Client().Do(request)
	if err != nil || answer.Header.Get("Location") != "/tools/waybill/api/v1/orders/o-2" {
		t.Errorf("%v, %v", answer, err)
	}
	_ = answer.Body.Close()

	other, _ := accessFile(t, "admin")
	if err := os.Rename(other, file); err != nil {
		t.Fatal(err)
	}
	for _, instance := range instances {
		settles("the key that was taken away counts", func() bool { return waybill(t, "", "workflow", "list", "--server", instance).code != 0 })
	}
}

// Every role by the commands that ask a server: who may not is told which role it takes.
func TestWhoMayWhatByCommands(t *testing.T) {
	clearEnvironment(t)
	keys, text := map[string]string{}, "keys:\n"
	for _, role := range identity.Roles {
		key, hash, err := identity.NewKey(string(role))
		if err != nil {
			t.Fatal(err)
		}
		keys[string(role)] = key
		granted := string(role)
		if role == identity.Approver {
			granted = events.ApproverRole("finance")
		}
		text += fmt.Sprintf("  - {id: %s, hash: %q, roles: [%s]}\n", role, hash, granted)
	}
	server, _, _ := startDev(t, t.TempDir(), "--access", write(t, "access.yaml", text))
	t.Setenv("WAYBILL_SERVER", server)
	flow := write(t, "workflow.yaml", string(fulfilment.Workflow))
	for takes, c := range map[string]struct {
		commands []string
		may      string // besides who has the role by name
	}{
		"viewer":         {[]string{"alerts", "approvals", "signals", "agents", "order list", "order get o-1", "order history o-1", "workflow list", "workflow versions order-fulfilment", "workflow show order-fulfilment", "upgrade status"}, "payload-reader operator approver deployer admin"},
		"submitter":      {[]string{"submit order-fulfilment"}, "admin"},
		"operator":       {[]string{"order cancel o-1", "order resubmit o-1", "order skip-step o-1 --step ship", "order pause o-1", "order resume o-1", "order release o-1", "order change o-1 --priority low", "order terminate o-1 --note enough"}, "admin"},
		"approver":       {[]string{"order decide o-1 credit approved"}, "admin"},
		"deployer":       {[]string{"workflow register " + flow, "workflow retire order-fulfilment@1"}, "admin"},
		"payload-reader": {[]string{"dead-letters list", "dead-letters show 0/0"}, "admin"},
		"admin":          {[]string{"upgrade finish", "partition skip-lost 0", "dead-letters replay 0/0", "dead-letters discard 0/0"}, ""},
	} {
		for _, command := range c.commands {
			for role, key := range keys {
				t.Setenv("WAYBILL_TOKEN", key)
				made := waybill(t, "", strings.Fields(command)...)
				if role == takes || slices.Contains(strings.Fields(c.may), role) {
					if strings.Contains(made.errs, "role") || made.code == 2 {
						t.Errorf("%s of a %s: %d\n%s", command, role, made.code, made.errs)
					}
					continue
				}
				if strings.HasPrefix(command, "workflow register") && role == "submitter" {
					made.want(t, 5, "", "submitter does not have the role viewer") // it looks at what there is, first
					continue
				}
				made.want(t, 5, "", role+" does not have the role "+takes+" that this takes")
			}
		}
	}
	for role, lacks := range map[string]string{"operator": "submitter", "submitter": "operator", "payload-reader": "operator"} { // which takes two
		t.Setenv("WAYBILL_TOKEN", keys[role])
		waybill(t, "", "order", "rerun", "o-1").want(t, 5, "", role+" does not have the role "+lacks+" that this takes")
	}
}

// Many orders are acted on only if somebody says so.
func TestManyOrdersAskForYes(t *testing.T) {
	clearEnvironment(t)
	acted := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/v1/bulk") { // it has no bulk acts: each order is asked
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"status":404,"title":"Not Found"}`))
			return
		}
		acted = acted || r.Method != http.MethodGet
		_, _ = w.Write([]byte(`{"orders":[{"orderId":"a","processState":"Error"},{"orderId":"b","processState":"Error"}]}`))
	}))
	defer server.Close()
	waybill(t, "y\n", "order", "cancel", "--state", "Error", "--server", server.URL).want(t, 2, "", "2 orders would be cancelled, and without a terminal nobody can be asked: look with --dry-run, and say --yes")
	if acted {
		t.Error("they were cancelled all the same")
	}
	waybill(t, "", "order", "cancel", "--state", "Error", "--server", server.URL, "--yes").want(t, 0, "Done       2", "")
}
