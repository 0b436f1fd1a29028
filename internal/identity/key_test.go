package identity

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestKeys(t *testing.T) {
	now := time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)
	token, hash, err := NewKey("ci")
	other, otherHash, _ := NewKey("ci")
	if err != nil || !regexp.MustCompile(`^wbk_ci_[A-Za-z0-9_-]{43}$`).MatchString(token) || token == other || strings.Contains(hash, token) {
		t.Fatalf("%s %s: %v", token, hash, err)
	}
	f, err := read("a", []byte("keys:\n"+
		"  - {id: ci, hash: \""+hash+"\", roles: [operator], workflows: [w], expires: 2030-01-02T00:00:01Z}\n"+
		"  - {id: other, hash: \""+otherHash+"\", roles: [admin]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := f.byKey(token, now)
	if err != nil || c.Subject != "ci" || c.Method != "key" || !c.May(Operator, "w") || c.May(Operator, "x") {
		t.Errorf("%+v, %v", c, err)
	}
	for what, wrong := range map[string]string{
		"another secret of its id": other, "a part": token[:len(token)-1], "more": token + "A", "no secret": "wbk_ci_", "no id": "wbk__", "nothing": "wbk_",
		"what the file has": hash, "the hash as the secret": "wbk_ci_" + strings.TrimPrefix(hash, "sha256:"), "an unknown id": strings.Replace(token, "_ci_", "_no_", 1),
		"the secret of another id": strings.Replace(other, "_ci_", "_other_", 1),
	} {
		if c, err := f.byKey(wrong, now); !errors.Is(err, errNoSuchKey) {
			t.Errorf("%s: %+v, %v", what, c, err)
		}
	}
	if c, err := f.byKey(token, now.Add(time.Second)); !errors.Is(err, errExpired) {
		t.Errorf("one that has expired: %+v, %v", c, err)
	}
	if _, _, err := NewKey("a_b"); err == nil {
		t.Error("an id that the file would refuse")
	}
}

// A certificate has the roles of all entries that fit it, and of no others.
func TestCertificates(t *testing.T) {
	f, err := read("a", []byte(`
certificates:
  - {subject: "CN=ana,O=Shop", roles: [viewer]}
  - {san: ana@shop.example, roles: [operator]}
  - {san: "spiffe://shop/billing", roles: [deployer]}
  - {san: "CN=ana,O=Shop", roles: [admin]}
  - {subject: ana@shop.example, roles: [admin]}
`))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	named := func(parts ...string) []byte { // in the order of the certificate, which is not that of the text
		var all pkix.RDNSequence
		for n := 0; n < len(parts); n += 2 {
			kind := asn1.ObjectIdentifier{2, 5, 4, 3}
			if parts[n] == "O" {
				kind = asn1.ObjectIdentifier{2, 5, 4, 10}
			}
			all = append(all, pkix.RelativeDistinguishedNameSET{{Type: kind, Value: parts[n+1]}})
		}
		raw, err := asn1.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	leaf := &x509.Certificate{RawSubject: named("O", "Shop", "CN", "ana"), EmailAddresses: []string{"ana@shop.example"}, NotAfter: now.Add(time.Hour)}
	c, err := f.byCertificate(leaf, now)
	if err != nil || c.Subject != "CN=ana,O=Shop" || !c.May(Operator, "w") || c.May(Deployer, "w") {
		t.Errorf("%+v, %v", c, err)
	}
	// A connection lives longer than the certificate that it began with.
	if c, err := f.byCertificate(leaf, now.Add(2*time.Hour)); !errors.Is(err, errExpired) {
		t.Errorf("expired: %+v, %v", c, err)
	}
	service := &x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "shop", Path: "/billing"}}, NotAfter: now.Add(time.Hour)}
	if c, err := f.byCertificate(service, now); err != nil || !c.May(Deployer, "w") || c.May(Operator, "w") {
		t.Errorf("a service: %+v, %v", c, err)
	}
	for what, unknown := range map[string]*x509.Certificate{
		"nameless": {}, "of another name": {RawSubject: named("CN", "ana"), DNSNames: []string{"shop.example"}},
		"of two names": {RawSubject: named("O", "Shop", "CN", "mallory", "CN", "ana")}, "of two, in the other order": {RawSubject: named("O", "Shop", "CN", "ana", "CN", "mallory")},
		"of another order": {RawSubject: named("CN", "ana", "O", "Shop")},
	} {
		unknown.NotAfter = now.Add(time.Hour)
		if c, err := f.byCertificate(unknown, now); !errors.Is(err, errUnknownCertificate) {
			t.Errorf("%s: %+v, %v", what, c, err)
		}
	}
}

// Ten failures of an address are looked into, then one in six seconds. Another address
// has its own, and all of one IPv6 network are one.
func TestFailures(t *testing.T) {
	f, now := NewFailures(), time.Now()
	among := func(address string, n int, now time.Time) (tooMany int) {
		for range n {
			if f.Another(address, now) {
				tooMany++
			}
		}
		return tooMany
	}
	if n := among("10.0.0.1", 15, now); n != 5 {
		t.Errorf("%d of 15 were too many", n)
	}
	if n := among("10.0.0.1", 5, now.Add(13*time.Second)); n != 3 {
		t.Errorf("%d of 5 were too many 13 s later", n)
	}
	if n := among("10.0.0.2", 10, now) + among("2001:db8::1", 10, now); n != 0 {
		t.Errorf("%d of other addresses were too many", n)
	}
	if n := among("2001:db8::ffff:2", 3, now); n != 3 {
		t.Errorf("%d of 3 of the same network were too many", n)
	}
}
