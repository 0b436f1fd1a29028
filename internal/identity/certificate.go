package identity

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"time"
)

// certificate is an entry of the file: whose certificate has which roles.
type certificate struct {
	subject string // the subject's whole name, or
	san     string // one of its alternative names
	grant   Grant
}

var errUnknownCertificate = errors.New("the access file names neither its subject nor any of its alternative names")

// byCertificate is the caller that a certificate names whose chain was verified.
// What it may is in all entries that fit; its name is that of the first.
func (f *file) byCertificate(leaf *x509.Certificate, now time.Time) (*Caller, error) {
	// The handshake saw to that, once: a connection may live longer.
	if now.After(leaf.NotAfter) {
		return nil, errExpired
	}
	names := slices.Concat(leaf.DNSNames, leaf.EmailAddresses)
	for _, u := range leaf.URIs {
		names = append(names, u.String())
	}
	subject := subjectOf(leaf)
	c := &Caller{Method: "certificate"}
	for _, entry := range f.certificates {
		name := entry.san
		if entry.subject != "" {
			if name = entry.subject; name != subject {
				continue
			}
		} else if !slices.Contains(names, name) {
			continue
		}
		if c.Subject == "" {
			c.Subject = name
		}
		c.grants = append(c.grants, entry.grant)
	}
	if c.grants == nil {
		return nil, fmt.Errorf("%w: the subject is %s", errUnknownCertificate, subject)
	}
	return c, nil
}

// subjectOf is the whole name that a certificate is of, with all of its parts in their order:
// [x509.Certificate.Subject] has one of each kind alone.
func subjectOf(leaf *x509.Certificate) string {
	var parts pkix.RDNSequence
	if rest, err := asn1.Unmarshal(leaf.RawSubject, &parts); err != nil || len(rest) > 0 {
		return ""
	}
	return parts.String()
}
